//! The initramfs: a cpio archive in the "newc" format
//! (Linux, `Documentation/driver-api/early-userspace/buffer-format.rst`).

use anyhow::Result;
use cpio::newc::{Builder, ModeFileType, trailer};
use std::io::Write;

/// An archive that holds `program` as `/init`, and the console that Linux opens for it.
pub fn archive(program: &[u8]) -> Result<Vec<u8>> {
    let directory = Builder::new("dev").mode(0o755).set_mode_file_type(ModeFileType::Directory);
    let console = Builder::new("dev/console")
        .mode(0o600)
        .set_mode_file_type(ModeFileType::Char)
        .rdev_major(5)
        .rdev_minor(1);
    let init = Builder::new("init").mode(0o755).set_mode_file_type(ModeFileType::Regular);
    let mut archive = Vec::new();
    for (inode, (entry, content)) in
        [(directory, &[][..]), (console, &[]), (init, program)].into_iter().enumerate()
    {
        let mut writer = entry.ino(inode as u32 + 1).write(&mut archive, content.len() as u32);
        writer.write_all(content)?;
        writer.finish()?;
    }
    trailer(&mut archive)?;
    Ok(archive)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpio::newc::Reader;
    use std::io::Read;

    #[test]
    fn archive_holds_the_program_and_its_console() {
        let archive = archive(b"program").unwrap();
        assert!(archive.starts_with(b"070701") && archive.len().is_multiple_of(4));
        let mut entries = Vec::new();
        let mut rest = &archive[..];
        loop {
            let mut reader = Reader::new(rest).unwrap();
            let entry = reader.entry().clone();
            let mut content = String::new();
            reader.read_to_string(&mut content).unwrap();
            rest = reader.finish().unwrap();
            if entry.is_trailer() {
                break;
            }
            entries.push((
                entry.name().to_owned(),
                entry.mode(),
                entry.rdev_major(),
                entry.rdev_minor(),
                content,
            ));
        }
        let expected = [
            ("dev", 0o040755, 0, 0, ""),
            ("dev/console", 0o020600, 5, 1, ""),
            ("init", 0o100755, 0, 0, "program"),
        ];
        let expected = expected
            .map(|(name, mode, major, minor, content)| (name.into(), mode, major, minor, content.into()));
        assert_eq!(entries, expected);
    }
}
