//! Sockets in a machine's directory, however long its path.

use rustix::fs::{Mode, OFlags, open};
use std::io::Result;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Connects to the socket `name` in `directory`. A socket's path may have 107 bytes at most; through a
/// handle of its directory it has few.
pub fn connect(directory: &Path, name: &str) -> Result<UnixStream> {
    let handle = open(directory, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    UnixStream::connect(PathBuf::from(format!("/proc/self/fd/{}/{name}", handle.as_raw_fd())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_socket_with_a_long_path_is_reached() {
        let root = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir(root.path().join("s")).expect("a directory");
        let listener = UnixListener::bind(root.path().join("s/socket")).expect("a socket");
        let long = root.path().join("d".repeat(200));
        std::fs::rename(root.path().join("s"), &long).expect("renamed");
        assert!(UnixStream::connect(long.join("socket")).is_err(), "too long to reach by its path");
        connect(&long, "socket").expect("reached through its directory");
        drop(listener);
    }
}
