use super::*;
use proptest::prelude::*;

/// A file with these entries, each kind, flags, offset, address, bytes in the file and in memory.
fn file(kind: u16, entries: &[[u64; 6]]) -> Vec<u8> {
    let mut header = Header::read_from_bytes(&[0; HEADER_BYTES]).unwrap();
    (header.magic, header.class, header.order) = (MAGIC, CLASS_64, LITTLE_ENDIAN);
    (header.kind, header.machine, header.entry) = (kind, MACHINE_X86_64, 0x1040);
    (header.table, header.entry_bytes) = (HEADER_BYTES as u64, ENTRY_BYTES as u16);
    header.entries = entries.len() as u16;
    let mut bytes = header.as_bytes().to_vec();
    for [kind, flags, offset, address, file_bytes, memory_bytes] in entries.iter().copied() {
        let entry = Entry {
            kind: kind as u32,
            flags: flags as u32,
            offset,
            address,
            physical: 0,
            file_bytes,
            memory_bytes,
            align: PAGE,
        };
        bytes.extend_from_slice(entry.as_bytes());
    }
    bytes.resize(0x3000, 0);
    bytes
}

fn parse(bytes: &[u8]) -> Result<Program, BadProgram> {
    let header = Header::parse(bytes)?;
    let (at, length) = header.table();
    let table = usize::try_from(at).ok().and_then(|at| bytes.get(at..)?.get(..length));
    header.program(table.ok_or(BadProgram::Short)?, bytes.len() as u64)
}

const TEXT: [u64; 6] = [PT_LOAD as u64, 5, 0, 0, 0x1800, 0x1800];
const DATA: [u64; 6] = [PT_LOAD as u64, 6, 0x1800, 0x2800, 0x100, 0x5000];

#[test]
fn a_movable_program_is_described() {
    let program = parse(&file(TYPE_MOVABLE, &[TEXT, DATA])).expect("a good program");
    assert!(program.is_movable && program.interpreter.is_none());
    assert_eq!((program.entry, program.table, program.table_entries), (0x1040, Some(64), 2));
    assert_eq!(program.pages(), 0..0x8000);
    assert_eq!(program.segments[0].rights, Rights::READ_EXECUTE);
    assert_eq!(program.segments[1].rights, Rights::READ_WRITE);
    assert_eq!((program.segments[1].file_bytes, program.segments[1].pages()), (0x100, 0x2000..0x8000));
}

#[test]
fn the_program_that_runs_this_test_is_one() {
    let bytes = std::fs::read("/proc/self/exe").expect("it runs");
    let program = parse(&bytes).expect("it runs");
    let named = program.interpreter.expect("it is linked against libc");
    assert!(bytes[named.start as usize..named.end as usize].starts_with(b"/lib"));
}

#[test]
fn what_is_no_program_is_refused_by_what_it_is() {
    let changed = |at: usize, byte: u8| {
        let mut bytes = file(TYPE_FIXED, &[TEXT]);
        bytes[at] = byte;
        parse(&bytes)
    };
    assert_eq!(parse(b"#!/bin/sh"), Err(BadProgram::NotElf));
    assert_eq!(parse(b"\x7fELF\x02\x01"), Err(BadProgram::Short));
    assert_eq!(changed(4, 1), Err(BadProgram::Class));
    assert_eq!(changed(18, 183), Err(BadProgram::Machine(183)));
    assert_eq!(changed(16, 1), Err(BadProgram::Kind(1)));
    assert_eq!(changed(54, 32), Err(BadProgram::Wrong("its table of segments")));
    assert_eq!(parse(&file(TYPE_FIXED, &[])), Err(BadProgram::Wrong("it has nothing to load")));
    assert!(std::format!("{}", BadProgram::Machine(183)).contains("aarch64"));
}

#[test]
fn segments_that_cannot_be_are_refused() {
    let with = |segment: [u64; 6]| parse(&file(TYPE_MOVABLE, &[segment])).unwrap_err();
    let load = u64::from(PT_LOAD);
    assert_eq!(with([load, 5, 0x2000, 0, 0x1001, 0x1001]), BadProgram::Short);
    assert_eq!(with([load, 5, u64::MAX, 0xfff, 2, 2]), BadProgram::Short);
    for segment in [
        [load, 5, 0, 0, 2, 1],
        [load, 5, 0, u64::MAX - 0xfff, 0, 0x2000],
        [load, 5, 0, 1 << 47, 0, 1],
        [load, 5, 1, 0, 1, 1],
    ] {
        assert!(matches!(with(segment), BadProgram::Wrong(_)), "{segment:x?}");
    }
    let overlapping = parse(&file(TYPE_MOVABLE, &[TEXT, [load, 6, 0x1000, 0x1000, 0x10, 0x10]]));
    assert!(matches!(overlapping, Err(BadProgram::Wrong(_))));
}

#[test]
fn scripts_name_their_interpreter() {
    let script = |text: &str| {
        super::script(text.as_bytes()).map(|script| {
            let argument = script.argument.map(|bytes| String::from_utf8(bytes).unwrap());
            (String::from_utf8(script.interpreter).unwrap(), argument)
        })
    };
    let some = |name: &str, argument: Option<&str>| Some((name.to_owned(), argument.map(str::to_owned)));
    assert_eq!(script("#!/bin/sh\necho"), some("/bin/sh", None));
    assert_eq!(script("#! /usr/bin/env  python3 -u \n"), some("/usr/bin/env", Some("python3 -u")));
    assert_eq!(script("#!/bin/sh"), some("/bin/sh", None));
    assert_eq!((script("#!\n/bin/sh"), script("# !/bin/sh"), script("")), (None, None, None));
}

proptest! {
    /// Whatever is in a file: a description whose parts lie within it, or a refusal.
    #[test]
    fn no_file_can_harm(
        damage in proptest::collection::vec((0..300usize, any::<u8>()), 0..12),
        cut in 0..0x3000usize,
    ) {
        let mut bytes = file(TYPE_MOVABLE, &[TEXT, DATA, [PT_INTERP.into(), 4, 0x200, 0x200, 28, 28]]);
        for (at, byte) in damage {
            bytes[at] = byte;
        }
        bytes.truncate(0x3000 - cut);
        if let Ok(program) = parse(&bytes) {
            let length = bytes.len() as u64;
            for segment in &program.segments {
                prop_assert!(segment.offset + segment.file_bytes <= length);
                prop_assert!(segment.file_bytes <= segment.memory_bytes);
                prop_assert!(segment.pages().end <= 1 << 47);
            }
            for pair in program.segments.windows(2) {
                prop_assert!(pair[0].pages().end <= pair[1].pages().start);
            }
            prop_assert!(program.interpreter.is_none_or(|name| name.start < name.end && name.end < length));
        }
    }

    #[test]
    fn no_first_line_can_harm(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Some(script) = script(&bytes) {
            prop_assert!(!script.interpreter.is_empty() && script.interpreter.len() < SCRIPT_LINE_MAX);
        }
    }
}
