//! How much of its stack each function of the kernel takes.

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, Register};
use nom_build::Project;
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};

/// Bytes that one function may take: an eighth of a stack. The largest holds a start page.
const FRAME_BYTES_MAX: u64 = 2048;
/// Functions that run once, on boot's own stack of 128 KiB.
const OF_BOOT: [&str; 2] = ["nom_kernel_x86::boot::", "kernel_main"];

/// Bytes that an instruction takes from the stack pointer at once; a larger frame is taken page by page.
fn taken(instruction: &Instruction) -> Option<u64> {
    let is_of_stack = instruction.op_count() == 2 && instruction.op0_register() == Register::RSP;
    match instruction.mnemonic() {
        Mnemonic::Sub if is_of_stack => instruction.try_immediate(1).ok(),
        Mnemonic::Add if is_of_stack => instruction.try_immediate(1).ok().map(u64::wrapping_neg),
        _ => None,
    }
    .filter(|bytes| *bytes <= i64::MAX as u64)
}

/// Each function of an ELF file with the bytes that its largest single step takes.
fn frames(elf: &[u8]) -> Vec<(String, u64)> {
    let file = object::File::parse(elf).expect("the kernel is an ELF file");
    let text = file.section_by_name(".text").expect("it has code");
    let code = text.data().expect("the code is in the file");
    let functions = file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0);
    let frame = |symbol: object::Symbol<'_, '_>| {
        let start = usize::try_from(symbol.address() - text.address()).ok()?;
        let body = code.get(start..start + usize::try_from(symbol.size()).ok()?)?;
        let decoder = Decoder::with_ip(64, body, symbol.address(), DecoderOptions::NONE);
        let bytes = decoder.into_iter().filter_map(|instruction| taken(&instruction)).max().unwrap_or(0);
        Some((format!("{:#}", rustc_demangle::demangle(symbol.name().ok()?)), bytes))
    };
    functions.filter_map(frame).collect()
}

#[test]
fn no_function_of_the_kernel_takes_much_of_its_stack() {
    let kernel = Project::find().and_then(|project| project.kernel()).expect("the kernel builds");
    let frames = frames(&std::fs::read(kernel).expect("the kernel is there"));
    assert!(frames.len() > 300, "only {} functions are found", frames.len());
    let is_of_boot = |name: &str| OF_BOOT.iter().any(|part| name.contains(part));
    let boots = frames.iter().filter(|(name, _)| is_of_boot(name)).map(|(_, bytes)| *bytes).max();
    assert!(boots > Some(FRAME_BYTES_MAX), "frames are seen where they are large");
    let large: Vec<_> =
        frames.iter().filter(|(name, bytes)| *bytes > FRAME_BYTES_MAX && !is_of_boot(name)).collect();
    assert!(large.is_empty(), "frames of more than {FRAME_BYTES_MAX} bytes: {large:#?}");
}
