//! QEMU and binutils accept the image: a loader of a few instructions finds what it is to unpack in memory.

mod common;

use common::image::{Loaded, load, packed_behind};
use nom_image::Symbols;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const MANIFEST: &str = "name = \"one\"\nprogram = \"p\"\narguments = [\"x\"]\n";
/// What QEMU returns when the guest writes 0x10 to its exit device: `value * 2 + 1`.
const GOOD: i32 = 33;
/// Likewise for 0x11.
const BAD: i32 = 35;

/// A loader that adds up `length` bytes at `address` and tells QEMU whether that makes `sum`.
fn summing_loader(address: u32, length: u32, sum: u32) -> Vec<u8> {
    let mut code = Vec::new();
    code.push(0xbe); // mov esi, address
    code.extend(address.to_le_bytes());
    code.push(0xb9); // mov ecx, length
    code.extend(length.to_le_bytes());
    code.extend([0x31, 0xd2]); // xor edx, edx
    code.extend([0x31, 0xc0, 0xac, 0x01, 0xc2, 0xe2, 0xf9]); // xor eax, eax; lodsb; add edx, eax; loop
    code.extend([0x81, 0xfa]); // cmp edx, sum
    code.extend(sum.to_le_bytes());
    code.extend([0xb8, 0x10, 0, 0, 0]); // mov eax, 0x10
    code.extend([0x74, 0x05]); // je over the next instruction
    code.extend([0xb8, 0x11, 0, 0, 0]); // mov eax, 0x11
    code.extend([0x66, 0xba, 0xf4, 0x00, 0xef]); // mov dx, 0xf4; out dx, eax
    code.extend([0xf4, 0xeb, 0xfd]); // hlt, for ever
    code.resize(code.len().next_multiple_of(8), 0x90);
    code
}

/// Packs a loader that checks the sum of the compressed kernel and bundle, or one that is wrong by `error`.
fn self_checking_image(error: u32) -> Vec<u8> {
    let packed = |loader: Vec<u8>| packed_behind(&loader, MANIFEST, vec![0x90; 64], Symbols::Keep).elf;
    let draft = packed(summing_loader(0, 0, 0));
    let Loaded { physical, memory, .. } = load(&draft).pop().expect("the streams");
    let sum: u32 = memory.iter().map(|&byte| u32::from(byte)).sum();
    packed(summing_loader(physical as u32, memory.len() as u32, sum + error))
}

fn write(directory: &Path, image: &[u8]) -> std::path::PathBuf {
    let path = directory.join("image.elf");
    std::fs::write(&path, image).expect("a file");
    path
}

/// Boots an image and returns QEMU's exit status.
fn boot(machine: &str, image: &[u8]) -> i32 {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut qemu = Command::new("qemu-system-x86_64");
    qemu.args(["-M", machine, "-accel", "tcg", "-m", "16M", "-smp", "1,maxcpus=2", "-nodefaults"]);
    qemu.args(["-display", "none", "-no-reboot", "-device", "isa-debug-exit,iobase=0xf4,iosize=4"]);
    qemu.arg("-kernel").arg(write(directory.path(), image)).stdin(Stdio::null());
    let mut child = qemu.spawn().expect("qemu-system-x86_64, which `./nom` installs");
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().expect("the child is ours") {
            return status.code().expect("QEMU ends by itself");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().and_then(|()| child.wait()).expect("the child is ours");
    panic!("{machine}: the image did not end within a minute");
}

#[test]
fn the_streams_are_whole_in_memory() {
    let image = self_checking_image(0);
    assert_eq!(boot("q35", &image), GOOD);
    assert_eq!(boot("microvm", &image), GOOD);
}

#[test]
fn a_wrong_sum_would_be_noticed() {
    assert_eq!(boot("q35", &self_checking_image(1)), BAD);
}

#[test]
fn readelf_finds_nothing_wrong() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = write(directory.path(), &self_checking_image(0));
    let Output { status, stdout, stderr } = Command::new("readelf")
        .args(["--wide", "--file-header", "--segments", "--notes"])
        .arg(path)
        .output()
        .expect("readelf, which comes with the linker");
    let (text, warnings) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success() && warnings.is_empty(), "{warnings}");
    assert_eq!(text.lines().filter(|line| line.trim_start().starts_with("LOAD ")).count(), 3, "{text}");
    assert!(text.contains("Xen") && text.contains("EXEC"), "{text}");
}
