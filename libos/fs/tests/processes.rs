//! What `/proc` tells of processes, and to whom (proc(5)).

use linux_raw_sys::general::{O_PATH, O_RDONLY};
use nom_fs::proc::{DescriptorFacts, MachineFacts, Mapped, Pid, ProcessFacts, Processes};
use nom_fs::{
    Access, Caller, Credentials, Errno, FileTime, LOCK_END, LastLink, Lock, LockKind, LockOwner, LockTable,
    NodeId, Vfs,
};

/// Processes: 1 is root's, 1001 and 1002 are user 1000's, and so is 1003, which root began.
struct Known {
    root: NodeId,
    locked: Option<NodeId>,
}

fn owner(process: Pid) -> Option<u32> {
    match process {
        1 => Some(0),
        1001..=1003 => Some(1000),
        _ => None,
    }
}

impl Processes for Known {
    fn list(&self) -> Vec<Pid> {
        vec![1, 1001, 1002, 1003]
    }
    fn facts(&self, process: Pid) -> Option<ProcessFacts> {
        let user = owner(process)?;
        let real = if process == 1003 { 0 } else { user };
        let limits = std::array::from_fn(|resource| match resource {
            0 => [60, 120],
            3 => [8 << 20, u64::MAX],
            6 => [4096, 4096],
            7 => [1024, 65_536],
            13 => [0, 0],
            _ => [u64::MAX; 2],
        });
        Some(ProcessFacts {
            name: b"some".to_vec(),
            state: 'S',
            users: [real, user, user, user],
            user_groups: [real, user, user, user],
            threads: vec![process],
            umask: 0o77,
            limits,
            ..ProcessFacts::default()
        })
    }
    fn command_line(&self, _: Pid) -> Vec<u8> {
        b"some\0".to_vec()
    }
    fn environment(&self, _: Pid) -> Vec<u8> {
        b"SECRET=1\0".to_vec()
    }
    fn auxiliary(&self, _: Pid) -> Vec<u8> {
        Vec::new()
    }
    fn mapped(&self, _: Pid) -> Vec<Mapped> {
        Vec::new()
    }
    fn program(&self, _: Pid) -> Option<NodeId> {
        Some(self.root)
    }
    fn directories(&self, _: Pid) -> Option<(NodeId, NodeId)> {
        Some((self.root, self.root))
    }
    fn descriptors(&self, _: Pid) -> Vec<u32> {
        vec![5]
    }
    fn descriptor(&self, _: Pid, descriptor: u32) -> Option<DescriptorFacts> {
        let label = b"pipe:[5]".to_vec();
        (descriptor == 5).then_some(DescriptorFacts { node: None, label, position: 0, flags: 0 })
    }
    fn locks(&self) -> Vec<(NodeId, LockTable, Lock)> {
        let lock = Lock { owner: LockOwner::Process(1), kind: LockKind::Shared, range: 0..LOCK_END };
        self.locked.iter().map(|node| (*node, LockTable::Records, lock.clone())).collect()
    }
    fn machine(&self) -> MachineFacts {
        MachineFacts::default()
    }
}

fn user(number: u32) -> Credentials {
    Credentials { user: number, group: number, groups: Vec::new() }
}

/// Does something as a process.
fn as_process<T>(process: Pid, act: impl FnOnce(&mut Vfs, &Caller<'_>) -> T) -> T {
    let mut vfs = Vfs::new(FileTime::default(), 1 << 20);
    let (first, root) = (Credentials::default(), vfs.root());
    vfs.mount_system(&Caller::first(&first, root, FileTime::default()), 1).expect("/proc");
    let (credentials, processes) = (user(owner(process).unwrap_or(0)), Known { root, locked: None });
    let caller = Caller::first(&credentials, root, FileTime::default());
    act(&mut vfs, &Caller { process, thread: process, processes: &processes, ..caller })
}

fn open(process: Pid, path: &str) -> Result<NodeId, Errno> {
    as_process(process, |vfs, caller| vfs.open(caller, caller.root, path.as_bytes(), O_RDONLY, 0))
}

fn read_link(process: Pid, path: &str) -> Result<Vec<u8>, Errno> {
    as_process(process, |vfs, caller| {
        let link = vfs.resolve(caller, caller.root, path.as_bytes(), LastLink::Keep)?;
        vfs.read_link(caller, link)
    })
}

const KEPT: [&str; 4] = ["environ", "auxv", "maps", "smaps"];
const TOLD: [&str; 6] = ["status", "stat", "statm", "cmdline", "comm", "limits"];
const WAYS: [&str; 4] = ["cwd", "root", "exe", "fd/5"];

#[test]
fn what_a_process_keeps_to_itself_others_of_its_user_and_root_see_and_nobody_else() {
    for (by, of, sees) in [
        (1001, 1, false),
        (1001, 1002, true),
        (1001, 1003, false),
        (1001, 1001, true),
        (1003, 1003, true),
        (1, 1001, true),
        (1, 1003, true),
    ] {
        let expected = if sees { None } else { Some(Errno::EACCES) };
        for name in KEPT {
            assert_eq!(open(by, &format!("/proc/{of}/{name}")).err(), expected, "{by} opens {name} of {of}");
        }
        for name in WAYS {
            let path = format!("/proc/{of}/{name}");
            assert_eq!(read_link(by, &path).err(), expected, "{by} reads {name} of {of}");
            let led = as_process(by, |vfs, caller| {
                vfs.resolve(caller, caller.root, path.as_bytes(), LastLink::Follow)
            });
            assert_eq!(led.err(), expected, "{by} follows {name} of {of}");
            let opened =
                as_process(by, |vfs, caller| vfs.open(caller, caller.root, path.as_bytes(), O_PATH, 0));
            assert_eq!(opened.err(), expected, "{by} opens {name} of {of}");
        }
        for name in TOLD {
            assert!(open(by, &format!("/proc/{of}/{name}")).is_ok(), "{by} opens {name} of {of}");
        }
    }
}

#[test]
fn a_process_lists_its_own_descriptors_and_others_of_another_user_do_not() {
    for name in ["fd", "fdinfo"] {
        assert_eq!(open(1001, &format!("/proc/1/{name}")), Err(Errno::EACCES));
        assert!(open(1001, &format!("/proc/1001/{name}")).is_ok());
        assert!(open(1003, &format!("/proc/self/{name}")).is_ok());
        assert!(open(1, &format!("/proc/1001/{name}")).is_ok());
    }
    assert_eq!(open(1001, "/proc/1/fdinfo/5"), Err(Errno::EACCES));
    assert_eq!(open(1001, "/proc/1/task/1/fd/5"), Err(Errno::EACCES));
    let asked = as_process(1001, |vfs, caller| {
        let node = vfs.resolve(caller, caller.root, b"/proc/1/comm", LastLink::Follow)?;
        vfs.access(caller, node, Access::WRITE)
    });
    assert_eq!(asked, Err(Errno::EACCES));
}

#[test]
fn a_lock_on_a_file_that_is_gone_is_not_told() {
    let mut vfs = Vfs::new(FileTime::default(), 1 << 20);
    let (credentials, root) = (Credentials::default(), vfs.root());
    let first = Caller::first(&credentials, root, FileTime::default());
    vfs.mount_system(&first, 1).expect("/proc");
    let gone = vfs.nameless(&first, 0o600);
    vfs.release(gone);
    let processes = Known { root, locked: Some(gone) };
    let caller = Caller { processes: &processes, ..first };
    let locks = vfs.resolve(&caller, root, b"/proc/locks", LastLink::Follow).expect("it is there");
    assert_eq!(vfs.text(&caller, locks), Ok(Vec::new()));
}

/// What a file of `/proc` says to root.
fn text(path: &str) -> String {
    as_process(1, |vfs, caller| {
        let node = vfs.resolve(caller, caller.root, path.as_bytes(), LastLink::Follow).expect("it is there");
        String::from_utf8(vfs.text(caller, node).expect("a text")).expect("letters")
    })
}

#[test]
fn limits_are_told_as_they_are_and_as_linux_writes_them() {
    let told = text("/proc/1001/limits");
    let own = std::fs::read_to_string("/proc/self/limits").expect("this computer's");
    let names = |text: &str| -> Vec<(String, String)> {
        text.lines().map(|line| (line[..26].to_owned(), line[68.min(line.len())..].to_owned())).collect()
    };
    assert_eq!(names(&told), names(&own));
    assert_eq!(told.lines().next(), own.lines().next());
    for line in [
        "Max cpu time              60                   120                  seconds   ",
        "Max file size             unlimited            unlimited            bytes     ",
        "Max stack size            8388608              unlimited            bytes     ",
        "Max processes             4096                 4096                 processes ",
        "Max open files            1024                 65536                files     ",
        "Max nice priority         0                    0                    ",
    ] {
        assert!(told.lines().any(|told| told == line), "{line}\n{told}");
    }
}

#[test]
fn the_mask_of_permissions_is_the_processs_own() {
    assert!(text("/proc/1001/status").contains("\nUmask:\t0077\n"));
}
