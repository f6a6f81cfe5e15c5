//! The compact symbol tables behind readable backtraces.

use crate::elf::{Elf, Named};
use crate::error::Result;
use nom_abi::image;
use object::elf;
use std::collections::BTreeMap;
use zerocopy::IntoBytes;

/// Longest name, in bytes; of a longer one the end is kept, which says most.
const NAME_BYTES_MAX: usize = 80;

/// Whether the image carries the symbol tables behind readable backtraces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Symbols {
    /// Of the kernel and of every application.
    #[default]
    Keep,
    /// None: addresses stay numbers.
    Omit,
}

/// The functions of one ELF file, by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SymbolTable(BTreeMap<u32, String>);

impl SymbolTable {
    /// The functions of `elf`, with addresses from `base` on. Labels in assembly that nobody declared as
    /// functions count too, unless a function starts there.
    pub fn new(elf: &Elf<'_>, base: u64) -> Result<SymbolTable> {
        let symbols = elf.symbols()?;
        let mut best: BTreeMap<u32, Named<'_>> = BTreeMap::new();
        for symbol in symbols.iter() {
            let function = matches!(symbol.kind, elf::STT_FUNC | elf::STT_NOTYPE);
            let address = symbol.address.checked_sub(base).and_then(|address| u32::try_from(address).ok());
            let Some(address) = address.filter(|_| function && symbols.in_text(&symbol)) else { continue };
            match best.get(&address) {
                Some(known) if rank(known) <= rank(&symbol) => {}
                _ => drop(best.insert(address, symbol)),
            }
        }
        Ok(SymbolTable(best.into_iter().map(|(address, symbol)| (address, readable(symbol.name))).collect()))
    }

    /// Number of functions.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The table as the image has it, see [`image::SymbolTable`]; nothing if there are no symbols.
    pub fn encode(&self) -> Vec<u8> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let (mut functions, mut names, mut numbers) = (Vec::new(), Vec::new(), BTreeMap::new());
        for (address, name) in &self.0 {
            let next = numbers.len();
            let number = *numbers.entry(name).or_insert_with(|| {
                names.extend_from_slice(name.as_bytes());
                names.push(0);
                next
            });
            // Of more names than there are numbers the rest has none.
            let name = u16::try_from(number).unwrap_or(u16::MAX);
            functions.push(image::SymbolRecord { start: (*address).into(), name: name.into() });
        }
        let header = image::SymbolTable { symbols: self.0.len() as u32, names: names.len() as u32 };
        [header.as_bytes(), functions.as_bytes(), &names].concat()
    }
}

/// Which of two symbols at one address is better (less): functions, then the one that sorts first, so that
/// the choice does not depend on the linker's order.
fn rank<'s>(symbol: &'s Named<'_>) -> (bool, &'s str) {
    (symbol.kind != elf::STT_FUNC, symbol.name)
}

/// A symbol's name for people: demangled, without hashes and generic arguments, of bounded length.
pub(crate) fn readable(name: &str) -> String {
    let name = match rustc_demangle::try_demangle(name) {
        Ok(demangled) => shorten(&format!("{demangled:#}")),
        Err(_) => name.to_owned(),
    };
    if name.len() <= NAME_BYTES_MAX {
        return name;
    }
    let start = (name.len() - (NAME_BYTES_MAX - 2)..).find(|&start| name.is_char_boundary(start));
    format!("..{}", &name[start.unwrap_or(name.len())..])
}

/// Drops generic arguments, and the modules of types inside `<Type as Trait>`:
/// `<alloc::vec::Vec<u8> as core::fmt::Write>::write_str` becomes `<Vec as Write>::write_str`.
/// A function of a type itself keeps the type's path: `<a::b::Type<u8>>::new` becomes `a::b::Type::new`.
fn shorten(name: &str) -> String {
    let after = if name.starts_with('<') { skip_arguments(name) } else { name };
    match name[..name.len() - after.len()].strip_prefix('<').and_then(|inner| inner.strip_suffix('>')) {
        Some(path) if path.starts_with(char::is_alphabetic) && !path.contains(' ') => {
            shorten_paths(&format!("{path}{after}"))
        }
        _ => shorten_paths(name),
    }
}

fn shorten_paths(name: &str) -> String {
    let mut short = String::new();
    // Where the path that is being read inside of `<..>` begins in `short`, one for each nesting.
    let mut paths: Vec<usize> = Vec::new();
    let mut rest = name;
    while let Some(next) = rest.chars().next() {
        if rest.starts_with("::<") && !rest.starts_with("::<impl ") {
            rest = skip_arguments(&rest[2..]);
            continue;
        }
        if next == '<' && short.ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            rest = skip_arguments(rest);
            continue;
        }
        rest = &rest[next.len_utf8()..];
        short.push(next);
        match next {
            '<' => paths.push(short.len()),
            '>' if !short.ends_with("->") => drop(paths.pop()),
            ':' if short.ends_with("::") => {
                if let Some(&path) = paths.last() {
                    short.truncate(path);
                }
            }
            ' ' | '&' | '(' | '[' | ',' | '*' => {
                if let Some(path) = paths.last_mut() {
                    *path = short.len();
                }
            }
            _ => {}
        }
    }
    short
}

/// What follows the `<..>` at the start of `text`.
fn skip_arguments(text: &str) -> &str {
    let mut depth = 0;
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' if before != '-' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[at + c.len_utf8()..];
        }
        before = c;
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_demangled_and_shortened() {
        for (mangled, expected) in [
            ("memcpy", "memcpy"),
            ("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write"),
            ("_RNvNtCs1dzzKqUvCVo_4core3fmt5write", "core::fmt::write"),
            (
                "_RNvXs_NtCs4Vy1yP01IVg_7nom_sys7consoleNtB4_6BufferNtNt\
                 Cs1dzzKqUvCVo_4core3fmt5Write9write_str",
                "<Buffer as Write>::write_str",
            ),
            (
                "_RNvMsa_NtCs1dzzKqUvCVo_4core3fmtNtB5_9Formatter12pad_integral",
                "core::fmt::Formatter::pad_integral",
            ),
        ] {
            assert_eq!(readable(mangled), expected);
        }
    }

    #[test]
    fn generic_arguments_and_inner_modules_are_dropped() {
        for (long, expected) in [
            ("core::ptr::drop_in_place::<alloc::vec::Vec<u8>>", "core::ptr::drop_in_place"),
            ("core::ptr::drop_in_place<alloc::vec::Vec<u8>>", "core::ptr::drop_in_place"),
            ("<alloc::vec::Vec<fn(u8) -> u8> as core::ops::Drop>::drop", "<Vec as Drop>::drop"),
            ("<a::f::<u8>::{closure#0} as core::ops::FnOnce<()>>::call", "<{closure#0} as FnOnce>::call"),
            (
                "core::fmt::num::<impl core::fmt::Display for u8>::fmt",
                "core::fmt::num::<impl Display for u8>::fmt",
            ),
            ("<&(dyn core::any::Any + core::marker::Send)>::type_id", "<&(dyn Any + Send)>::type_id"),
            ("<nom::frames::Frames<4>>::unit", "nom::frames::Frames::unit"),
            ("<[u8]>::len", "<[u8]>::len"),
            ("a::b::<unclosed", "a::b"),
            ("<unclosed::a", "<a"),
        ] {
            assert_eq!(shorten(long), expected);
        }
    }

    #[test]
    fn a_long_name_keeps_its_end() {
        let name = readable(&format!("{}é{}", "a".repeat(100), "z".repeat(77)));
        assert_eq!(name, format!("..{}", "z".repeat(77)));
        assert!(name.len() <= NAME_BYTES_MAX);
    }

    #[test]
    fn functions_stand_in_the_order_of_addresses_and_share_names() {
        let names = [(48, "one"), (32, "two"), (16, "one")];
        let table = SymbolTable(names.map(|(address, name)| (address, name.to_owned())).into());
        let header = [3, 0, 0, 0, 8, 0, 0, 0];
        let functions = [16, 0, 0, 0, 0, 0, 32, 0, 0, 0, 1, 0, 48, 0, 0, 0, 0, 0];
        assert_eq!(table.encode(), [&header[..], &functions, b"one\0two\0"].concat());
    }
}
