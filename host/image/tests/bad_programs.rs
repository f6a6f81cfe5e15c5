//! What is wrong with a program or a kernel is told with the file and what was expected.

mod common;

use common::elf::{self as file, DATA, ElfFile, R, RW, RX, Segment};
use expect_test::{Expect, expect};
use nom_image::{Symbols, lower, manifest, pack};
use object::elf;

/// Lowers a bundle of one whose program is `bytes`.
fn lower_program(manifest: &str, bytes: &[u8]) -> (tempfile::TempDir, nom_image::Result<nom_image::Lowered>) {
    let directory = common::directory(&format!("name = \"a\"\nprogram = \"p\"\n{manifest}\n"));
    let path = directory.path().join("p.elf");
    std::fs::write(&path, bytes).expect("a file");
    let bundle = manifest::load(directory.path()).expect("the manifest is good");
    let lowered = lower(&bundle, |_| Ok(path.clone()));
    (directory, lowered)
}

fn check_bytes(bytes: &[u8], expected: Expect) {
    let (directory, lowered) = lower_program("", bytes);
    expected.assert_eq(&common::without(directory.path(), lowered.expect_err("the program is bad")));
}

/// A good program after a change that makes it bad.
fn check(change: impl FnOnce(&mut ElfFile), expected: Expect) {
    let mut program = file::program();
    change(&mut program);
    check_bytes(&program.build(), expected);
}

fn check_manifest(manifest: &str, expected: Expect) {
    let (directory, lowered) = lower_program(manifest, &file::program().build());
    expected.assert_eq(&common::without(directory.path(), lowered.expect_err("the manifest is bad")));
}

/// A good kernel after a change that makes it bad.
fn check_kernel(change: impl FnOnce(&mut ElfFile), expected: Expect) {
    let (directory, lowered) = lower_program("", &file::program().build());
    let mut kernel = file::kernel(vec![0x90; 64]);
    change(&mut kernel);
    let path = directory.path().join("kernel.elf");
    std::fs::write(&path, kernel.build()).expect("a file");
    let packed = pack(&path, &lowered.expect("the program is good"), Symbols::Keep);
    expected.assert_eq(&common::without(directory.path(), packed.expect_err("the kernel is bad")));
}

#[test]
fn the_unchanged_program_is_good() {
    let (_directory, lowered) = lower_program("", &file::program().build());
    lowered.expect("it is good");
}

#[test]
fn no_elf_file_for_x86_64() {
    check_bytes(b"", expect!["p.elf: no 64-bit ELF file, expected an executable for x86-64"]);
    check_bytes(
        b"#!/bin/sh\necho not a program, but long enough to hold an ELF header\n",
        expect!["p.elf: no 64-bit ELF file, expected an executable for x86-64"],
    );
    check(
        |program| program.class = elf::ELFCLASS32,
        expect!["p.elf: no 64-bit ELF file, expected an executable for x86-64"],
    );
    check(
        |program| program.data = elf::ELFDATA2MSB,
        expect!["p.elf: made for another processor, expected x86-64"],
    );
    check(
        |program| program.machine = elf::EM_AARCH64,
        expect!["p.elf: made for another processor, expected x86-64"],
    );
    let good = file::program().build();
    check_bytes(
        &good[..100],
        expect!["p.elf: damaged program headers: Invalid ELF program header size or alignment"],
    );
    check_bytes(&good[..0x800], expect!["p.elf: the segment at 0x1000 is not wholly in the file"]);
}

#[test]
fn no_static_position_independent_executable() {
    check(
        |program| program.kind = elf::ET_EXEC,
        expect![
            "p.elf: no position-independent executable (ET_DYN), expected one: link with `-pie --no-dynamic-linker`"
        ],
    );
    let interpreter = || Segment::new(elf::PT_INTERP, R, 0x80, b"/lib64/ld-linux-x86-64.so.2\0".to_vec());
    check(
        |program| program.segments.push(interpreter()),
        expect![
            "p.elf: asks for a dynamic linker, expected a static executable: link with `--no-dynamic-linker`"
        ],
    );
    check(|program| program.segments.clear(), expect!["p.elf: nothing to load, expected an executable"]);
}

#[test]
fn segments() {
    check(
        |program| program.segments[1].flags = 7,
        expect!["p.elf: the segment at 0x1000 is writable and executable, expected one or the other"],
    );
    check(
        |program| program.segments[2].address = 0x20f0,
        expect![
            "p.elf: the segments at 0x1000 and 0x20f0 share a page, expected pages of their own: link with `-z separate-loadable-segments`"
        ],
    );
    check(
        |program| program.segments[1].address = 0x10,
        expect![
            "p.elf: the segments at 0x0 and 0x10 share a page, expected pages of their own: link with `-z separate-loadable-segments`"
        ],
    );
    check(
        |program| program.segments[1].memory_bytes = 0x10,
        expect!["p.elf: the segment at 0x1000 is larger in the file than in memory"],
    );
    check(
        |program| program.segments[1].contents = vec![1],
        expect!["p.elf: the segment at 0x1000 is not wholly in the file"],
    );
    check(
        |program| program.segments[1].file_bytes = u64::MAX,
        expect!["p.elf: the segment at 0x1000 is larger in the file than in memory"],
    );
    check(
        |program| program.segments[2].address = u64::MAX - 0x100,
        expect!["p.elf: the segment at 0xfffffffffffffeff leaves the address space"],
    );
    check(
        |program| program.segments[2].memory_bytes = 1 << 40,
        expect!["p.elf: spans 0x10000004000 bytes from address 0, expected a smaller image"],
    );
}

#[test]
fn entry_point() {
    check(
        |program| program.entry = 0,
        expect!["p.elf: the entry point 0x0 is in no executable segment, expected the address of `_start`"],
    );
    check(
        |program| program.entry = 0x2100,
        expect![
            "p.elf: the entry point 0x2100 is in no executable segment, expected the address of `_start`"
        ],
    );
}

fn with_relocation(target: u64, kind: u32) -> impl FnOnce(&mut ElfFile) {
    move |program| {
        program.segments[0].contents.truncate(0x40);
        program.segments[0].contents.extend(file::relocation(target, kind));
    }
}

#[test]
fn relocations() {
    const RELATIVE: u32 = 8;
    check(
        with_relocation(DATA, 6),
        expect![
            "p.elf: the relocation of `VALUE` at 0x3010 is of kind 6, expected R_X86_64_RELATIVE alone: link statically"
        ],
    );
    check(
        with_relocation(0x5000, 37),
        expect![
            "p.elf: the relocation of address 0x5000 is of kind 37, expected R_X86_64_RELATIVE alone: link statically"
        ],
    );
    check(
        with_relocation(0x10, RELATIVE),
        expect![
            "p.elf: address 0x10 must be relocated but is in no writable segment, expected it in .data or .data.rel.ro: link with `-z text`, which tells the object file"
        ],
    );
    check(
        with_relocation(0x1044, RELATIVE),
        expect![
            "p.elf: `core::fmt::write` at 0x1044 must be relocated but is in no writable segment, expected it in .data or .data.rel.ro: link with `-z text`, which tells the object file"
        ],
    );
    check(
        with_relocation(0x500c, RELATIVE),
        expect![
            "p.elf: address 0x500c must be relocated but is in no writable segment, expected it in .data or .data.rel.ro: link with `-z text`, which tells the object file"
        ],
    );
    check(
        with_relocation(u64::MAX - 3, RELATIVE),
        expect![
            "p.elf: address 0xfffffffffffffffc must be relocated but is in no writable segment, expected it in .data or .data.rel.ro: link with `-z text`, which tells the object file"
        ],
    );
}

#[test]
fn dynamic_section() {
    let check_dynamic = |words: &[u64], expected| {
        let contents = file::words(words);
        check(|program| program.segments[3] = Segment::new(elf::PT_DYNAMIC, RW, DATA, contents), expected);
    };
    check_dynamic(&[1, 1, 0, 0], expect!["p.elf: needs shared libraries, expected a static executable"]);
    check_dynamic(
        &[36, 0x40, 0, 0],
        expect![
            "p.elf: has relocations in another table than DT_RELA, expected that one alone: link with `-z rela -z nopack-relative-relocs`"
        ],
    );
    check_dynamic(
        &[17, 0x40, 0, 0],
        expect![
            "p.elf: has relocations in another table than DT_RELA, expected that one alone: link with `-z rela -z nopack-relative-relocs`"
        ],
    );
    check_dynamic(
        &[2, 24, 23, 0x40, 0, 0],
        expect!["p.elf: has a procedure linkage table, expected a static executable"],
    );
    check_dynamic(
        &[7, 0x40, 8, 48, 0, 0],
        expect!["p.elf: its relocations at 0x40 (48 bytes) are not in a segment"],
    );
    check_dynamic(
        &[7, 0x40, 8, 23, 0, 0],
        expect!["p.elf: its relocations at 0x40 (23 bytes) are not in a segment"],
    );
    check_dynamic(
        &[7, 0x3f00, 8, 24, 0, 0],
        expect!["p.elf: its relocations at 0x3f00 (24 bytes) are not in a segment"],
    );
    check_dynamic(
        &[7, u64::MAX, 8, 24, 0, 0],
        expect!["p.elf: its relocations at 0xffffffffffffffff (24 bytes) are not in a segment"],
    );
}

#[test]
fn limits_of_the_manifest() {
    check_manifest(
        "memory = \"64KiB\"",
        expect![
            "app.toml:3: `memory`: 64 KiB, expected at least 136 KiB that `a` needs to start: program 12, stack 64, start page 4, page tables 52, first core 4"
        ],
    );
    check_manifest(
        "\nmemory = \"72KiB\"\nstack = \"4KiB\"",
        expect![
            "app.toml:4: `memory`: 72 KiB, expected at least 76 KiB that `a` needs to start: program 12, stack 4, start page 4, page tables 52, first core 4"
        ],
    );
    let long = "x".repeat(1000);
    let arguments = format!("{long:?},").repeat(70);
    check_manifest(
        &format!("arguments = [\n{arguments}]"),
        expect!["app.toml:3: `arguments` and `environment` of `a` take 70070 bytes, expected at most 63880"],
    );
}

#[test]
fn programs_that_cannot_be_had() {
    let directory = common::directory("name = \"a\"\n\nprogram = \"nom-a\"\n");
    let bundle = manifest::load(directory.path()).expect("the manifest is good");
    let error = lower(&bundle, |_| Err("no such package".into())).expect_err("there is none");
    expect!["app.toml:3: program `nom-a`: no such package"]
        .assert_eq(&common::without(directory.path(), error));
    let missing = directory.path().join("missing");
    let error = lower(&bundle, |_| Ok(missing.clone())).expect_err("there is none");
    expect!["missing: cannot be read: No such file or directory (os error 2)"]
        .assert_eq(&common::without(directory.path(), error));
}

#[test]
fn kernels() {
    check_kernel(
        |kernel| kernel.kind = elf::ET_DYN,
        expect!["kernel.elf: no executable at fixed addresses (ET_EXEC), expected the kernel"],
    );
    check_kernel(
        |kernel| drop(kernel.segments.pop()),
        expect!["kernel.elf: has no PVH entry point, expected a note `Xen` of type 18 with its address"],
    );
    check_kernel(
        |kernel| kernel.segments[2].contents[8] = 17,
        expect!["kernel.elf: has no PVH entry point, expected a note `Xen` of type 18 with its address"],
    );
    check_kernel(
        |kernel| kernel.segments[2].contents[18] = 0x20,
        expect!["kernel.elf: its PVH entry point 0x200000 is in no executable segment"],
    );
    check_kernel(
        |kernel| kernel.segments[0].physical = 0x20_0000,
        expect![
            "kernel.elf: the segment at 0xffffffff80100000 is loaded at 0x200000, expected a kernel linked at 0xffffffff80000000 plus its physical address, which is 0x100000 or higher"
        ],
    );
    check_kernel(
        |kernel| {
            kernel.segments[0].physical = 0x1000;
            kernel.segments[0].address = nom_abi::layout::KERNEL_IMAGE + 0x1000;
        },
        expect![
            "kernel.elf: the segment at 0xffffffff80001000 is loaded at 0x1000, expected a kernel linked at 0xffffffff80000000 plus its physical address, which is 0x100000 or higher"
        ],
    );
    check_kernel(
        |kernel| kernel.segments[1].flags = RX | RW,
        expect![
            "kernel.elf: the segment at 0xffffffff80101000 is writable and executable, expected one or the other"
        ],
    );
    check_kernel(
        |kernel| kernel.segments[1].memory_bytes = 0x7fef_f000,
        expect!["kernel.elf: the segment at 0xffffffff80101000 leaves the address space"],
    );
    check_kernel(
        |kernel| kernel.segments[1].memory_bytes = 0x7fef_e000,
        expect![
            "the image is too large: kernel and bundle end at physical address 0x80003018, expected at most 2 GiB"
        ],
    );
}
