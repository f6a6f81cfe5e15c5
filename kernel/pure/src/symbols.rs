//! Names for addresses, from the symbol tables in the bundle ([`nom_abi::image::SymbolTable`]).

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
    todo!()
}
