//! What is wrong with a program or a kernel is told with the file and what was expected.
//!
//! The tables are changes to files that are good; `UPDATE_EXPECT=1` writes the problems beside them anew.

mod common;

use common::elf::{self as file, DATA, ElfFile, R, RW, RX, Segment};
use expect_test::expect_file;
use nom_abi::layout::{KERNEL_IMAGE, LOADER_LOAD};
use nom_image::{Lowered, Result, Symbols, lower, manifest, pack};
use object::elf;
use std::path::Path;

type Change = fn(&mut ElfFile);

/// What turns a good program into a bad one.
const PROGRAMS: &[(&str, Change)] = &[
    ("32 bits", |program| program.class = elf::ELFCLASS32),
    ("big endian", |program| program.data = elf::ELFDATA2MSB),
    ("another processor", |program| program.machine = elf::EM_AARCH64),
    ("fixed addresses", |program| program.kind = elf::ET_EXEC),
    ("dynamic linker", |program| {
        let path = b"/lib64/ld-linux-x86-64.so.2\0".to_vec();
        program.segments.push(Segment::new(elf::PT_INTERP, R, 0x80, path));
    }),
    ("no segments", |program| program.segments.clear()),
    ("writable and executable", |program| program.segments[1].flags = 7),
    ("two segments on one page", |program| program.segments[2].address = 0x20f0),
    ("overlapping segments", |program| program.segments[1].address = 0x10),
    ("more in the file than in memory", |program| program.segments[1].memory_bytes = 0x10),
    ("contents behind the file's end", |program| program.segments[1].contents = vec![1]),
    ("endless contents", |program| {
        (program.segments[1].file_bytes, program.segments[1].memory_bytes) = (1 << 40, 1 << 40);
    }),
    ("end of the address space", |program| program.segments[2].address = u64::MAX - 0x100),
    ("huge image", |program| program.segments[2].memory_bytes = 1 << 40),
    ("entry in constants", |program| program.entry = 0),
    ("entry behind the code", |program| program.entry = 0x2100),
    ("relocation by a symbol", |program| relocate(program, DATA, 6)),
    ("relocation by a function", |program| relocate(program, 0x5000, 37)),
    ("relocation in constants", |program| relocate(program, 0x10, RELATIVE)),
    ("relocation in code", |program| relocate(program, 0x1044, RELATIVE)),
    ("relocation over a segment's end", |program| relocate(program, 0x500c, RELATIVE)),
    ("relocation at the last address", |program| relocate(program, u64::MAX - 3, RELATIVE)),
    ("shared library", |program| set_dynamic(program, &[1, 1, 0, 0])),
    ("DT_RELR outside", |program| set_dynamic(program, &[36, 0xffff_0000, 35, 8, 0, 0])),
    ("DT_RELR not whole", |program| set_dynamic(program, &[36, 0x40, 35, 7, 0, 0])),
    ("DT_REL", |program| set_dynamic(program, &[17, 0x40, 0, 0])),
    ("DT_JMPREL", |program| set_dynamic(program, &[2, 24, 23, 0x40, 0, 0])),
    ("more relocations than bytes", |program| set_dynamic(program, &[7, 0x40, 8, 48, 0, 0])),
    ("part of a relocation", |program| set_dynamic(program, &[7, 0x40, 8, 23, 0, 0])),
    ("relocations in zeros", |program| set_dynamic(program, &[7, 0x3f00, 8, 24, 0, 0])),
    ("relocations nowhere", |program| set_dynamic(program, &[7, u64::MAX, 8, 24, 0, 0])),
];

/// What turns a good kernel into a bad one.
const KERNELS: &[(&str, Change)] = &[
    ("any address", |kernel| kernel.kind = elf::ET_DYN),
    ("no notes", |kernel| drop(kernel.segments.pop())),
    ("another note", |kernel| kernel.segments[2].contents[8] = 17),
    ("note of somebody else", |kernel| kernel.segments[2].contents[12] = b'x'),
    ("PVH entry outside", |kernel| kernel.segments[2].contents[18] = 0x20),
    ("PVH entry in the last page", |kernel| kernel.segments[2].contents[16..20].fill(0xff)),
    ("linked elsewhere", |kernel| kernel.segments[0].physical = 0x20_0000),
    ("in the loader's place", |kernel| {
        kernel.segments[0].physical = LOADER_LOAD;
        kernel.segments[0].address = KERNEL_IMAGE + LOADER_LOAD;
    }),
    ("writable and executable", |kernel| kernel.segments[1].flags = RX | RW),
    ("up to the last address", |kernel| kernel.segments[1].memory_bytes = 0x7fee_f000),
    ("no room for the bundle", |kernel| kernel.segments[1].memory_bytes = 0x7fee_e000),
];

const RELATIVE: u32 = 8;

fn relocate(program: &mut ElfFile, target: u64, kind: u32) {
    program.segments[0].contents.truncate(0x40);
    program.segments[0].contents.extend(file::relocation(target, kind));
}

fn set_dynamic(program: &mut ElfFile, words: &[u64]) {
    program.segments[3] = Segment::new(elf::PT_DYNAMIC, RW, DATA, file::words(words));
}

/// Writes a program and lowers a bundle of it, of which `fields` is the rest of the manifest.
fn lower_program(directory: &Path, fields: &str, program: &[u8]) -> Result<Lowered> {
    let path = directory.join("p.elf");
    std::fs::write(&path, program).expect("a file");
    std::fs::write(directory.join("app.toml"), format!("name = \"a\"\nprogram = \"p\"\n{fields}\n"))
        .expect("a file");
    let bundle = manifest::load(directory).expect("the manifest is good");
    lower(&bundle, |_| Ok(path.clone()))
}

/// The problem with a program, or with the manifest's fields in view of the program.
fn problem(fields: &str, program: &[u8]) -> String {
    let directory = common::directory("");
    let error = lower_program(directory.path(), fields, program).expect_err("one of them is bad");
    common::without(directory.path(), error)
}

fn kernel_problem(change: Change) -> String {
    let directory = common::directory("");
    let lowered = lower_program(directory.path(), "", &file::program().build()).expect("it is good");
    let mut kernel = file::kernel(vec![0x90; 64]);
    change(&mut kernel);
    let path = directory.path().join("kernel.elf");
    std::fs::write(&path, kernel.build()).expect("a file");
    let loader = common::image::any_loader(directory.path());
    common::without(directory.path(), pack(&loader, &path, &lowered, Symbols::Keep).expect_err("it is bad"))
}

fn table(problems: impl Iterator<Item = (&'static str, String)>) -> String {
    problems.map(|(title, problem)| format!("{title}\n    {problem}\n")).collect()
}

#[test]
fn every_flaw_of_a_program_is_told() {
    let problems = PROGRAMS.iter().map(|(title, change)| {
        let mut program = file::program();
        change(&mut program);
        (*title, problem("", &program.build()))
    });
    expect_file!["bad_programs.txt"].assert_eq(&table(problems));
}

#[test]
fn every_flaw_of_a_kernel_is_told() {
    let problems = KERNELS.iter().map(|(title, change)| (*title, kernel_problem(*change)));
    expect_file!["bad_kernels.txt"].assert_eq(&table(problems));
}

#[test]
fn files_that_are_no_whole_elf_file() {
    let good = file::program().build();
    let no_elf = "p.elf: no 64-bit ELF file, expected an executable for x86-64";
    assert_eq!(problem("", b""), no_elf);
    assert_eq!(
        problem("", "#!/bin/sh\necho long enough to hold an ELF header\n".repeat(2).as_bytes()),
        no_elf
    );
    let damaged = "p.elf: damaged program headers: Invalid ELF program header size or alignment";
    assert_eq!(problem("", &good[..100]), damaged);
    assert_eq!(problem("", &good[..0x800]), "p.elf: the segment at 0x1000 is not wholly in the file");
}

#[test]
fn limits_that_are_too_tight_for_the_program() {
    let good = file::program().build();
    let directory = common::directory("");
    lower_program(directory.path(), "memory = \"76KiB\"\nstack = \"4KiB\"", &good).expect("just enough");
    assert_eq!(
        problem("\nmemory = \"72KiB\"\nstack = \"4KiB\"", &good),
        "app.toml:4: `memory`: 72 KiB, expected at least 76 KiB, which `a` needs to start (program 12, \
         stack 4, start page 4, page tables 52, state of its first core 4)"
    );
    let arguments = format!("{:?},", "x".repeat(1000)).repeat(70);
    assert_eq!(
        problem(&format!("arguments = [\n{arguments}]"), &good),
        "app.toml:3: `arguments` and `environment` of `a` take 70070 bytes, expected at most 63872"
    );
}

#[test]
fn programs_that_cannot_be_had() {
    let directory = common::directory("name = \"a\"\n\nprogram = \"nom-a\"\n");
    let bundle = manifest::load(directory.path()).expect("the manifest is good");
    let problem = |path: Option<&Path>| {
        let resolved = lower(&bundle, |_| path.map(Path::to_owned).ok_or("no such package".into()));
        common::without(directory.path(), resolved.expect_err("there is none"))
    };
    assert_eq!(problem(None), "app.toml:3: program `nom-a`: no such package");
    let missing = directory.path().join("missing");
    assert_eq!(problem(Some(&missing)), "missing: cannot be read: No such file or directory (os error 2)");
}
