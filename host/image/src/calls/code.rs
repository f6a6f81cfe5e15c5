//! What one function does, as far as its instructions say: which system calls it makes, whom it calls with
//! what, and whose addresses it takes.
//!
//! Values of registers are followed from constants to uses, forwards through the function; where paths meet,
//! a register may have one of a few values.

use iced_x86::{
    Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};
use std::collections::BTreeMap;

/// Values that a register is followed with at most; with more it is anything.
const VALUES_MAX: usize = 4;
/// The registers that arguments of functions are in, by the order of the System V ABI; behind them that of
/// the first in Go's ABI.
const ARGUMENTS: [Register; 7] =
    [Register::RDI, Register::RSI, Register::RDX, Register::RCX, Register::R8, Register::R9, Register::RAX];
/// What a called function may change.
const SCRATCH: [Register; 9] = [
    Register::RAX,
    Register::RCX,
    Register::RDX,
    Register::RSI,
    Register::RDI,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
];

/// What a register may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// A number.
    Constant(u64),
    /// What the function was given as the argument of this number.
    Argument(u8),
}

/// All that a register may have; anything if there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Value([Option<Item>; VALUES_MAX]);

impl Value {
    const ANYTHING: Value = Value([None; VALUES_MAX]);

    fn of(item: Item) -> Value {
        let mut value = Value::ANYTHING;
        value.0[0] = Some(item);
        value
    }

    /// What it may be; nothing if that is anything.
    pub fn items(&self) -> impl Iterator<Item = Item> {
        self.0.iter().copied().flatten()
    }

    /// Whether nothing is known of it.
    pub fn is_anything(&self) -> bool {
        self.0[0].is_none()
    }

    /// One of both.
    fn or(self, other: Value) -> Value {
        if self.is_anything() || other.is_anything() {
            return Value::ANYTHING;
        }
        let mut both = self;
        for item in other.items().filter(|item| !self.0.contains(&Some(*item))) {
            match both.0.iter_mut().find(|free| free.is_none()) {
                Some(free) => *free = Some(item),
                None => return Value::ANYTHING,
            }
        }
        both
    }
}

/// What the registers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State([Value; 16]);

impl State {
    fn at_start() -> State {
        let mut state = State([Value::ANYTHING; 16]);
        for (number, register) in (0..).zip(ARGUMENTS) {
            state.set(register, Value::of(Item::Argument(number)));
        }
        state
    }

    fn get(&self, register: Register) -> Value {
        let full = register.full_register();
        if full.is_gpr64() { self.0[full.number()] } else { Value::ANYTHING }
    }

    fn set(&mut self, register: Register, value: Value) {
        let full = register.full_register();
        if full.is_gpr64() {
            self.0[full.number()] = value;
        }
    }

    fn or(&self, other: &State) -> State {
        let mut both = *self;
        both.0.iter_mut().zip(&other.0).for_each(|(own, other)| *own = own.or(*other));
        both
    }

    fn arguments(&self) -> [Value; ARGUMENTS.len()] {
        ARGUMENTS.map(|register| self.get(register))
    }
}

/// A place that a function leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CodeUse {
    /// The instruction.
    pub from: u64,
    /// The address of code, or of a word that holds an address.
    pub to: u64,
    /// What is in the registers of arguments then.
    pub arguments: [Value; ARGUMENTS.len()],
}

/// What a function does.
#[derive(Clone, Debug, Default)]
pub(super) struct Effects {
    /// Where it makes system calls, and their numbers.
    pub calls: Vec<(u64, Value)>,
    /// Where it leads to.
    pub uses: Vec<CodeUse>,
}

/// How often a function with system calls is gone through, so that what is known where a path leads back is
/// known there.
const PASSES_MAX: usize = 4;

/// Reads a function's instructions.
pub(super) fn read(bytes: &[u8], address: u64) -> Effects {
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    let mut targets = BTreeMap::new();
    if bytes.windows(SYSCALL.len()).any(|window| window == SYSCALL) {
        for _ in 1..PASSES_MAX {
            let before = targets.clone();
            pass(bytes, address, &mut targets, None);
            if targets == before {
                break;
            }
        }
    }
    // What no path leads to that was seen, such as the cases of a switch, may begin with anything.
    pass(bytes, address, &mut targets, Some(State([Value::ANYTHING; 16])))
}

/// Goes through a function once. `targets` has what registers may have where branches lead; `otherwise` is
/// what they have where nothing is known to lead to: without that, what is there is left out.
fn pass(bytes: &[u8], address: u64, targets: &mut BTreeMap<u64, State>, otherwise: Option<State>) -> Effects {
    let mut effects = Effects::default();
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let mut state = Some(State::at_start());
    let end = address.wrapping_add(bytes.len() as u64);
    let mut instruction = Instruction::default();
    let mut information = InstructionInfoFactory::new();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        let at = instruction.ip();
        let known = match (state, targets.get(&at)) {
            (Some(falls), Some(jumps)) => Some(falls.or(jumps)),
            (falls, jumps) => falls.or(jumps.copied()),
        };
        let Some(mut now) = known.or(otherwise) else { continue };
        if instruction.mnemonic() == Mnemonic::Syscall {
            effects.calls.push((at, now.get(Register::RAX)));
        }
        let target = target(&instruction);
        if let Some(to) = target {
            effects.uses.push(CodeUse { from: at, to, arguments: now.arguments() });
        }
        step(&mut now, &instruction, &mut information);
        let is_branch = instruction.op0_kind() == OpKind::NearBranch64;
        // What is only guessed says nothing of where it leads.
        let is_inside = |to: &u64| is_branch && known.is_some() && *to >= address && *to < end;
        if let Some(to) = target.filter(is_inside) {
            targets.entry(to).and_modify(|there| *there = there.or(&now)).or_insert(now);
        }
        let goes_on = !matches!(instruction.mnemonic(), Mnemonic::Jmp | Mnemonic::Ret | Mnemonic::Ud2);
        state = known.and(goes_on.then_some(now));
    }
    effects
}

/// The address that an instruction leads to: a branch's, or that of what it reads or takes the address of.
fn target(instruction: &Instruction) -> Option<u64> {
    if instruction.op0_kind() == OpKind::NearBranch64 {
        return Some(instruction.near_branch_target());
    }
    if instruction.is_ip_rel_memory_operand() {
        return Some(instruction.ip_rel_memory_address());
    }
    // Addresses of programs at fixed ones.
    let is_number = instruction.mnemonic() == Mnemonic::Mov && instruction.op1_kind() == OpKind::Immediate32;
    is_number.then(|| instruction.immediate(1))
}

fn step(state: &mut State, instruction: &Instruction, information: &mut InstructionInfoFactory) {
    let to = (instruction.op_count() > 0 && instruction.op0_kind() == OpKind::Register)
        .then(|| instruction.op0_register());
    let is_whole = |register: Register| register.is_gpr64() || register.is_gpr32();
    match (instruction.mnemonic(), to) {
        (Mnemonic::Call, _) => SCRATCH.iter().for_each(|register| state.set(*register, Value::ANYTHING)),
        (Mnemonic::Syscall, _) => {
            [Register::RAX, Register::RCX, Register::R11]
                .iter()
                .for_each(|register| state.set(*register, Value::ANYTHING));
        }
        (Mnemonic::Mov, Some(to)) => {
            let value = match instruction.op1_kind() {
                _ if !is_whole(to) => Value::ANYTHING,
                OpKind::Register if instruction.op1_register().is_segment_register() => Value::ANYTHING,
                OpKind::Register => state.get(instruction.op1_register()),
                OpKind::Memory => Value::ANYTHING,
                _ => Value::of(Item::Constant(instruction.immediate(1))),
            };
            state.set(to, value);
        }
        (Mnemonic::Movsxd, Some(to)) if instruction.op1_kind() == OpKind::Register => {
            state.set(to, state.get(instruction.op1_register()));
        }
        (Mnemonic::Xor | Mnemonic::Sub, Some(to))
            if is_whole(to)
                && instruction.op1_kind() == OpKind::Register
                && instruction.op1_register() == to =>
        {
            state.set(to, Value::of(Item::Constant(0)));
        }
        _ => {
            let used = information.info(instruction).used_registers();
            let written = used.iter().filter(|used| is_write(used.access()));
            written.for_each(|written| state.set(written.register(), Value::ANYTHING));
        }
    }
}

fn is_write(access: OpAccess) -> bool {
    use OpAccess::{CondWrite, ReadCondWrite, ReadWrite, Write};
    matches!(access, Write | CondWrite | ReadWrite | ReadCondWrite)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(bytes: &[u8]) -> Vec<Vec<Item>> {
        read(bytes, 0x1000).calls.iter().map(|(_, value)| value.items().collect()).collect()
    }

    #[test]
    fn numbers_of_calls_are_followed_to_them() {
        let constant = |number| vec![Item::Constant(number)];
        // mov eax, 1; syscall
        assert_eq!(numbers(b"\xb8\x01\0\0\0\x0f\x05"), [constant(1)]);
        // xor eax, eax; syscall; syscall: the first has changed RAX.
        assert_eq!(numbers(b"\x31\xc0\x0f\x05\x0f\x05"), [constant(0), vec![]]);
        // mov r8d, 0xca; mov eax, r8d; syscall
        assert_eq!(numbers(b"\x41\xb8\xca\0\0\0\x44\x89\xc0\x0f\x05"), [constant(0xca)]);
        // mov rax, rdi; syscall
        assert_eq!(numbers(b"\x48\x89\xf8\x0f\x05"), [vec![Item::Argument(0)]]);
        // mov eax, 1; test edi, edi; jz +5; mov eax, 2; syscall
        let either = b"\xb8\x01\0\0\0\x85\xff\x74\x05\xb8\x02\0\0\0\x0f\x05";
        assert_eq!(numbers(either), [vec![Item::Constant(2), Item::Constant(1)]]);
        // mov edx, 60; jmp +4; mov eax, edx; syscall; test eax, eax; jz -8: the way leads back.
        let back = b"\xba\x3c\0\0\0\xeb\x04\x89\xd0\x0f\x05\x85\xc0\x74\xf8";
        assert_eq!(numbers(back), [constant(60)]);
        // The same with a nop behind the jump, which nobody comes to.
        let padded = b"\xba\x3c\0\0\0\xeb\x05\x90\x89\xd0\x0f\x05\x85\xc0\x74\xf8";
        assert_eq!(numbers(padded), [constant(60)]);
        // mov eax, [rdi]; syscall
        assert_eq!(numbers(b"\x8b\x07\x0f\x05"), [vec![]]);
        // mov eax, 0x101; xor al, al; syscall
        assert_eq!(numbers(b"\xb8\x01\x01\0\0\x30\xc0\x0f\x05"), [vec![]]);
        // mov edi, 39; rep stosb; mov eax, edi; syscall: nobody names the registers of a string instruction.
        assert_eq!(numbers(b"\xbf\x27\0\0\0\xf3\xaa\x89\xf8\x0f\x05"), [vec![]]);
        // mov eax, 39; bt eax, 1; push rax; imul ecx, ecx; syscall: none of them changes RAX.
        assert_eq!(numbers(b"\xb8\x27\0\0\0\x0f\xba\xe0\x01\x50\x0f\xaf\xc9\x0f\x05"), [constant(39)]);
        // mov eax, 1; jmp +2; xor eax, eax; syscall: the way leads around the second.
        assert_eq!(numbers(b"\xb8\x01\0\0\0\xeb\x02\x31\xc0\x0f\x05").len(), 1);
    }

    #[test]
    fn calls_are_seen_with_their_arguments() {
        // mov edi, 39; call +0x10; jmp [rip+0x20]
        let effects = read(b"\xbf\x27\0\0\0\xe8\x10\0\0\0\xff\x25\x20\0\0\0", 0x1000);
        let places: Vec<u64> = effects.uses.iter().map(|place| place.to).collect();
        assert_eq!(places, [39, 0x101a, 0x1030], "a number may be an address");
        let first: Vec<Item> = effects.uses[1].arguments[0].items().collect();
        assert_eq!(first, [Item::Constant(39)]);
        assert!(effects.uses[2].arguments[0].is_anything(), "a call may change it");
    }

    #[test]
    fn no_bytes_are_too_odd() {
        let odd: Vec<u8> =
            (0..40_000_u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        read(&odd, u64::MAX - 100_000);
    }
}
