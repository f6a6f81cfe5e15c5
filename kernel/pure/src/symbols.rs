//! Names for addresses, from the symbol tables in the bundle ([`nom_abi::image::SymbolTable`]).

use core::ffi::CStr;
use nom_abi::image::{Symbol, SymbolTable};
use zerocopy::FromBytes;

/// Where an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location<'t> {
    /// Demangled name of the function.
    pub name: &'t str,
    /// Bytes from the function's start.
    pub offset: u64,
}

/// Finds the function that `address` (from the image's base) is in: the last one that does not start after
/// it. None if there is none or the table is damaged where the search came by.
pub fn lookup(table: &[u8], address: u64) -> Option<Location<'_>> {
    let (header, rest) = SymbolTable::read_from_prefix(table).ok()?;
    let (symbols, names) = rest.split_at_checked(header.symbols as usize * size_of::<Symbol>())?;
    let symbol = last_at_or_before(symbols, address)?;
    let names = names.get(..header.names as usize)?;
    let name = CStr::from_bytes_until_nul(names.get(symbol.name as usize..)?).ok()?;
    Some(Location { name: name.to_str().ok()?, offset: address - u64::from(symbol.address) })
}

/// The last of the symbols in `bytes` that does not start after `address`.
fn last_at_or_before(bytes: &[u8], address: u64) -> Option<Symbol> {
    // Read one by one: the table need not be aligned.
    let (symbols, _) = bytes.as_chunks::<{ size_of::<Symbol>() }>();
    let read = |chunk: &[u8; size_of::<Symbol>()]| -> Symbol { zerocopy::transmute!(*chunk) };
    let after = symbols.partition_point(|chunk| u64::from(read(chunk).address) <= address);
    let found = read(symbols.get(after.checked_sub(1)?)?);
    // In a table that is not sorted the search can end anywhere.
    (u64::from(found.address) <= address).then_some(found)
}
