//! Whether tests failed because the disk is full, which is otherwise told in a hundred ways, none at the end.

use rustix::fs::statvfs;
use std::path::Path;

/// Less than this, and a link or an image is likely to have failed for want of room, in bytes.
const LITTLE: u64 = 1 << 30;

/// Bytes that may still be written to the disk that `directory` is on, where that can be told.
pub fn room(directory: &Path) -> Option<u64> {
    let disk = statvfs(directory).ok()?;
    disk.f_bavail.checked_mul(disk.f_frsize)
}

/// What to say of a disk that has `room` bytes left, once something failed; nothing where there is enough.
pub fn complaint(directory: &Path, room: u64) -> Option<String> {
    (room < LITTLE).then(|| {
        format!(
            "the disk of {} has {} MB left: failures may come of that; `./nom clean` frees some, \
             and CARGO_TARGET_DIR names another place to build in",
            directory.display(),
            room / 1_000_000
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_named_and_one_with_room_is_not() {
        let target = Path::new("/build");
        let said = complaint(target, 5_300_000).expect("nearly full");
        assert!(said.contains("/build has 5 MB left") && said.contains("nom clean"), "{said}");
        assert_eq!(complaint(target, LITTLE), None);
    }

    #[test]
    fn room_is_told_of_directories_that_exist() {
        assert!(room(Path::new(env!("CARGO_MANIFEST_DIR"))).is_some());
        assert_eq!(room(Path::new("/no/such/directory")), None);
    }
}
