//! The Linux guest's only program, compiled when it is needed.

use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

const SOURCE: &str = include_str!("../../guest/init.rs");

/// Compiles the program in `directory` and returns it: a static ELF file without a library.
pub fn compile(directory: &Path) -> Result<Vec<u8>> {
    let (source, program) = (directory.join("init.rs"), directory.join("init"));
    super::save(&source, SOURCE.as_bytes())?;
    let output = Command::new("rustc")
        .args(["--edition", "2024", "-O", "-Cpanic=abort", "-Crelocation-model=static", "-Cstrip=symbols"])
        .arg("-Clink-args=-nostartfiles -nostdlib -static -Wl,--build-id=none")
        .args(["-Dwarnings".as_ref(), "-o".as_ref(), program.as_os_str(), source.as_os_str()])
        .output()
        .context("cannot run rustc, which compiles the Linux guest's program")?;
    if !output.status.success() {
        bail!("rustc cannot compile {}:\n{}", source.display(), String::from_utf8_lossy(&output.stderr));
    }
    super::read(&program)
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::{Object, ObjectSegment};

    #[test]
    fn program_is_static_and_reads_the_counter_first() {
        let directory = tempfile::tempdir().unwrap();
        let program = compile(directory.path()).unwrap();
        let elf = object::File::parse(&*program).unwrap();
        assert_eq!(elf.kind(), object::ObjectKind::Executable);
        assert!(!program.windows(8).any(|bytes| bytes == b"/lib64/l"), "no dynamic linker is asked for");
        let entry = elf.entry();
        let text = elf
            .segments()
            .find(|segment| (segment.address()..segment.address() + segment.size()).contains(&entry))
            .unwrap();
        let offset = (entry - text.address()) as usize;
        assert_eq!(text.data().unwrap()[offset..][..2], [0x0f, 0x31], "rdtsc");
    }
}
