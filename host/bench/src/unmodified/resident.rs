//! How much of its memory a guest has touched.

use anyhow::{Context, Result};
use nom_vmm::meminfo;
use std::path::Path;

/// Bytes of a machine's memory, of `memory_bytes`, that its QEMU has of this computer: what the guest has
/// touched since it began, where memory is taken as it is touched.
///
/// # Errors
/// If Linux does not say, or QEMU has no mapping of that size.
pub fn guest_memory(process: u32, memory_bytes: u64) -> Result<u64> {
    let path = Path::new("/proc").join(process.to_string()).join("smaps");
    let maps = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    resident(&maps, memory_bytes)
        .with_context(|| format!("{}: no mapping of {memory_bytes} bytes", path.display()))
}

/// The resident bytes of the first mapping of that size (proc(5), `smaps`).
fn resident(maps: &str, size_bytes: u64) -> Option<u64> {
    let has_size = |map: &&str| map.split_whitespace().next() == Some(&(size_bytes >> 10).to_string());
    let map = maps.split("\nSize:").skip(1).find(has_size)?;
    meminfo::value(map, "Rss").map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mapping_of_a_size_is_found() {
        let maps = "7f00-7f01 rw-p 0 00:00 0\nSize:                  4 kB\nRss:                   4 kB\n\
            8000-9000 rw-p 0 00:00 0\nSize:             524288 kB\nKernelPageSize:        4 kB\n\
            Rss:               70000 kB\nPss:                   0 kB\n";
        assert_eq!(resident(maps, 512 << 20), Some(70_000 << 10));
        assert_eq!(resident(maps, 4096), Some(4096));
        assert_eq!(resident(maps, 8192), None);
    }
}
