//! Disks that machines write, files of this computer with an ext4 in them; and files that are lent alone.
//!
//! A disk's file system is mounted by this computer's kernel, in a mount namespace that QEMU alone is in, and
//! lent as a directory. So a file that is synchronised lies on the disk by the rules of that kernel's own
//! ext4 and journal, and when the machine ends, however it does, the namespace ends with it, and the file
//! system is unmounted and clean. A lock that QEMU holds keeps others from mounting it meanwhile.
//!
//! A file is mounted over an empty one in a directory that has nothing else, there, too: what is beside it is
//! not lent, and whoever replaces it here by another of its name does so without the machine, as with Docker.

use crate::config::{DirectoryAccess, LENT_FILE, Lent, LentDirectory};
use anyhow::{Context, Result, ensure};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;
use std::process::Command;

/// Where the magic number of a superblock is, and the number (Linux, Documentation/filesystems/ext4, "The
/// Super Block").
const MAGIC_AT: u64 = 1024 + 0x38;
const MAGIC: [u8; 2] = [0x53, 0xef];
/// What mounts never do, whoever wrote the disk.
const CAREFUL: &str = "loop,nosuid,nodev,noexec";
/// Words that start what is behind them in a mount namespace of its own.
const APART: [&str; 5] = ["unshare", "--mount", "--propagation", "private", "--"];

/// Mounts disks and files, of which each has four words, up to `--`, and becomes what is behind that. Of a
/// disk: its file, where it is mounted, how, and which loop devices of the same file are to be gone first, by
/// whether they are read-only; a machine that has just ended may not have unmounted yet. Of a file: where it
/// is, the directory that it is to be in, its name there, and `file`.
const MOUNT: &str = r#"
while [ "$1" != -- ]; do
    if [ "$4" = file ]; then
        mkdir -p "$2" && mount --types tmpfs --options mode=755,size=64k none "$2" \
            && : >"$2/$3" && mount --bind -- "$1" "$2/$3" || exit 75
        shift 4
        continue
    fi
    tries=200
    while losetup --noheadings --output RO --associated "$1" | grep -q "$4"; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || { echo "$1: in use: losetup --associated $1 says where" >&2; exit 75; }
        sleep 0.05
    done
    mkdir -p "$2" && mount --types ext4 --options "$3" -- "$1" "$2" || exit 75
    shift 4
done
shift
exec "$@"
"#;

/// Checks that a file is a disk that a machine can have.
///
/// # Errors
/// If it has no ext4, or a damaged one, is in use, or this process may not mount it.
pub fn check(image: &Path, access: DirectoryAccess) -> Result<()> {
    let name = image.display();
    let kind = image.metadata()?.file_type();
    ensure!(kind.is_file() || kind.is_block_device(), "{name} is neither a directory nor a file");
    let file = File::options().read(true).write(access == DirectoryAccess::ReadWrite).open(image)?;
    let is_ext = start(&file).is_some_and(|start| start.ends_with(&MAGIC));
    ensure!(is_ext, "{name} is no directory and has no ext4: expected one made by `mkfs.ext4 {name}`");
    ensure!(rustix::process::geteuid().is_root(), "root mounts a disk: run nom as root, or lend a directory");
    flock(&file, lock(access)).with_context(|| format!("{name} is in use by another machine"))?;
    let mut trial = Command::new(APART[0]);
    let options = format!("{CAREFUL},ro,noload");
    trial.args(&APART[1..]).args(["mount", "--types", "ext4", "--options", &options, "--"]);
    let output = trial.arg(image).arg(std::env::temp_dir()).output().context("cannot start unshare")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{name} cannot be mounted: {}: `e2fsck -f {name}` mends what is damaged",
        complaint.lines().next().unwrap_or_default()
    );
    Ok(())
}

/// Whether what a file has may be a disk: an ext4, or nothing at all yet, where one is forgotten to be made.
///
/// # Errors
/// If it cannot be read.
pub fn is_one(image: &Path) -> Result<bool> {
    let start = start(&File::open(image)?);
    Ok(start.is_some_and(|start| start.ends_with(&MAGIC) || start.iter().all(|byte| *byte == 0)))
}

/// What a file has up to where a superblock's magic number ends, if it is as long.
fn start(file: &File) -> Option<[u8; MAGIC_AT as usize + MAGIC.len()]> {
    let mut start = [0; MAGIC_AT as usize + MAGIC.len()];
    file.read_exact_at(&mut start, 0).ok().map(|()| start)
}

/// Checks that a file can be lent alone.
///
/// # Errors
/// If this process cannot read it, or may not mount.
pub fn check_file(file: &Path) -> Result<()> {
    let name = file.display();
    File::open(file).with_context(|| format!("cannot read {name}"))?;
    let is_root = rustix::process::geteuid().is_root();
    ensure!(is_root, "root lends a file alone: run nom as root, or lend the directory that it is in");
    Ok(())
}

fn lock(access: DirectoryAccess) -> FlockOperation {
    match access {
        DirectoryAccess::ReadOnly => FlockOperation::NonBlockingLockShared,
        DirectoryAccess::ReadWrite => FlockOperation::NonBlockingLockExclusive,
    }
}

/// Words that mount the disks and files of a machine, before those that start it; none if it has neither.
pub(crate) fn words(directories: &[LentDirectory]) -> Vec<String> {
    let all = || directories.iter().enumerate();
    let disks: Vec<_> = all().filter_map(|(number, it)| disk(number, it)).collect();
    let files: Vec<_> = all().filter_map(|(number, it)| file(number, it)).collect();
    if disks.is_empty() && files.is_empty() {
        return Vec::new();
    }
    let own = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let locks = disks.iter().flat_map(|(access, [image, ..])| {
        let kind = if *access == DirectoryAccess::ReadOnly { "--shared" } else { "--exclusive" };
        own(&["flock", "--no-fork", "--nonblock", "--conflict-exit-code", "75", kind, image])
    });
    let mounts = disks.iter().map(|(_, words)| words).chain(&files).flatten().cloned();
    let script = own(&APART).into_iter().chain(own(&["sh", "-c", MOUNT, "sh"]));
    locks.chain(script).chain(mounts).chain(own(&["--"])).collect()
}

/// What [`MOUNT`] is told of a directory that a file is lent by.
fn file(number: usize, directory: &LentDirectory) -> Option<[String; 4]> {
    let Lent::File(file) = &directory.lent else { return None };
    let at = directory.lent.place(number).display().to_string();
    Some([file.display().to_string(), at, LENT_FILE.to_owned(), "file".to_owned()])
}

/// What [`MOUNT`] is told of a directory that is a disk's.
fn disk(number: usize, directory: &LentDirectory) -> Option<(DirectoryAccess, [String; 4])> {
    let Lent::Disk(image) = &directory.lent else { return None };
    let (options, in_the_way) = match directory.access {
        DirectoryAccess::ReadOnly => (format!("{CAREFUL},ro"), "0"),
        DirectoryAccess::ReadWrite => (format!("{CAREFUL},discard"), "."),
    };
    let at = directory.lent.place(number).display().to_string();
    Some((directory.access, [image.display().to_string(), at, options, in_the_way.to_owned()]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Owners;

    fn lent(lent: Lent, access: DirectoryAccess) -> LentDirectory {
        LentDirectory { lent, access, owners: Owners::None }
    }

    #[test]
    fn disks_alone_are_mounted_and_locked() {
        let directory = lent(Lent::Directory("/srv".into()), DirectoryAccess::ReadWrite);
        assert!(words(std::slice::from_ref(&directory)).is_empty());
        let disk = |name: &str, access| lent(Lent::Disk(name.into()), access);
        let all =
            [disk("/a b", DirectoryAccess::ReadOnly), directory, disk("/c", DirectoryAccess::ReadWrite)];
        let words = words(&all);
        let line = words.join("|");
        assert!(line.starts_with("flock|--no-fork|--nonblock|--conflict-exit-code|75|--shared|/a b|flock|"));
        assert!(line.contains("|--exclusive|/c|unshare|--mount|--propagation|private|--|sh|-c|"));
        let told = "|/a b|volume0|loop,nosuid,nodev,noexec,ro|0|\
            /c|volume2|loop,nosuid,nodev,noexec,discard|.|--";
        assert!(line.ends_with(told), "{line}");
    }

    #[test]
    fn a_file_is_mounted_in_a_directory_of_its_own_and_not_locked() {
        let file = lent(Lent::File("/etc/motd".into()), DirectoryAccess::ReadOnly);
        let line = words(&[file]).join("|");
        assert!(line.starts_with("unshare|--mount|"), "{line}");
        assert!(line.ends_with("|sh|/etc/motd|volume0|file|file|--"), "{line}");
    }

    #[test]
    fn a_disk_without_a_file_system_is_no_file_that_somebody_reads() {
        let site = tempfile::tempdir().expect("a directory");
        let path = site.path().join("it");
        let mut disk = [0; 4096];
        disk[MAGIC_AT as usize..][..MAGIC.len()].copy_from_slice(&MAGIC);
        for (content, expected) in [
            (&b""[..], false),
            (b"user www;\n", false),
            (&[b'#'; 9000], false),
            (&[0; 4096], true),
            (&disk, true),
        ] {
            std::fs::write(&path, content).expect("written");
            assert_eq!(is_one(&path).expect("readable"), expected, "{} bytes", content.len());
        }
    }

    #[test]
    fn a_file_without_a_file_system_is_named() {
        let site = tempfile::tempdir().expect("a directory");
        let file = site.path().join("it.img");
        for content in [&b""[..], &[0; 4096]] {
            std::fs::write(&file, content).expect("written");
            let error = check(&file, DirectoryAccess::ReadWrite).expect_err("refused").to_string();
            assert!(error.contains("it.img is no directory and has no ext4"), "{error}");
        }
    }
}
