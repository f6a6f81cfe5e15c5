//! What a test with a TAP device needs.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Whether this process may make a network namespace with a TAP device. If not, it says that `name` is
/// skipped and why.
pub fn tap_is_possible(name: &str) -> bool {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    let is_possible = is_root && Path::new("/dev/net/tun").exists();
    if !is_possible {
        println!("skipped: {name} on a TAP device needs root and /dev/net/tun");
    }
    is_possible
}
