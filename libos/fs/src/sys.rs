//! What programs read of `/sys`: which processors there are.

use crate::caller::Caller;
use crate::errno::Errno;
use crate::listing::NodeType;
use crate::node::NodeId;
use crate::vfs::Vfs;
use alloc::format;
use alloc::vec::Vec;

const DIRECTORIES: [&[u8]; 10] = [
    b"devices",
    b"devices/system",
    b"devices/system/cpu",
    b"devices/system/node",
    b"devices/system/node/node0",
    b"class",
    b"class/net",
    b"kernel",
    b"kernel/mm",
    b"kernel/mm/transparent_hugepage",
];

/// Large pages as Linux names them: wherever a program asks for them, and beside what it has filled.
const LARGE: [(&str, &str); 2] = [
    ("kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
    ("kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152\n"),
];

/// Makes what is in `/sys` of a machine with so many processors.
pub(crate) fn fill(vfs: &mut Vfs, caller: &Caller<'_>, sys: NodeId, cores: u32) -> Result<(), Errno> {
    for name in DIRECTORIES {
        vfs.make_directory(caller, sys, name, 0o755)?;
    }
    let range = if cores == 1 { "0\n".into() } else { format!("0-{}\n", cores - 1) };
    let cpus = ["online", "possible", "present"].map(|name| format!("devices/system/cpu/{name}"));
    // Those of the one node of memory: it is as far from itself as any is.
    let map = format!("{:x}\n", (1_u128 << cores.min(64)) - 1);
    let nodes = [("online", "0\n"), ("possible", "0\n"), ("has_memory", "0\n")];
    let nodes = nodes.into_iter().chain([
        ("node0/cpulist", &*range),
        ("node0/cpumap", &*map),
        ("node0/distance", "10\n"),
    ]);
    let nodes: Vec<_> = nodes.map(|(name, text)| (format!("devices/system/node/{name}"), text)).collect();
    let nodes = nodes.iter().map(|(path, text)| (&**path, *text));
    let files = cpus.iter().map(|path| (&**path, &*range)).chain(nodes).chain(LARGE);
    for (path, text) in files {
        let node = vfs.make_node(caller, sys, path.as_bytes(), NodeType::File, 0o444, 0)?;
        vfs.set_permissions(caller, node, 0o444)?;
        vfs.write(node, 0, text.as_bytes(), caller)?;
    }
    for core in 0..cores {
        vfs.make_directory(caller, sys, format!("devices/system/cpu/cpu{core}").as_bytes(), 0o755)?;
    }
    Ok(())
}
