//! Names for addresses, from the symbol tables in the bundle ([`nom_abi::image::SymbolTable`]).

use core::ffi::CStr;
use core::fmt;
use nom_abi::image::{SymbolRecord, SymbolTable};
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
    let (functions, names) =
        <[SymbolRecord]>::ref_from_prefix_with_elems(rest, header.symbols as usize).ok()?;
    let behind = functions.partition_point(|function| u64::from(function.start.get()) <= address);
    let function = functions.get(behind.checked_sub(1)?)?;
    let mut names = names.get(..header.names as usize)?.split_inclusive(|byte| *byte == 0);
    let name = CStr::from_bytes_with_nul(names.nth(function.name.get().into())?).ok()?;
    // In a table that is not sorted the search can end anywhere.
    Some(Location { name: name.to_str().ok()?, offset: address.checked_sub(function.start.get().into())? })
}

/// A line of a backtrace: the call at `address`, in an image that begins at `base`.
#[derive(Clone, Copy, Debug)]
pub struct Call<'t> {
    /// How many calls are above it.
    pub depth: usize,
    /// Where it returns to, or at depth 0 where the program is.
    pub address: u64,
    /// Where the image begins.
    pub base: u64,
    /// The image's symbols.
    pub table: &'t [u8],
}

impl fmt::Display for Call<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Call { depth, address, base, table } = *self;
        let offset = address.wrapping_sub(base);
        // A call that never returns can be its function's last instruction, and returns behind it.
        let behind = u64::from(depth > 0);
        match lookup(table, offset.wrapping_sub(behind)) {
            Some(place) => write!(out, "  #{depth} {address:#x} {}+{:#x}", place.name, place.offset + behind),
            None => write!(out, "  #{depth} image+{offset:#x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::cases;
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    fn table(functions: &[(u32, &str)]) -> Vec<u8> {
        let (mut starts, mut names) = (Vec::new(), Vec::new());
        for (number, &(address, name)) in (0_u16..).zip(functions) {
            starts.extend_from_slice(&address.to_le_bytes());
            starts.extend_from_slice(&number.to_le_bytes());
            names.extend_from_slice(name.as_bytes());
            names.push(0);
        }
        let header = SymbolTable { symbols: functions.len() as u32, names: names.len() as u32 };
        [header.as_bytes(), &starts, &names].concat()
    }

    fn is_at(table: &[u8], address: u64, name: &str, offset: u64) -> bool {
        lookup(table, address) == Some(Location { name, offset })
    }

    #[test]
    fn an_address_is_in_the_last_function_that_starts_before_it() {
        let table = table(&[(0x1000, "main"), (0x1040, "<Grüße as From>::from"), (0x2000, "exit")]);
        assert_eq!(lookup(&table, 0xfff), None);
        assert!(is_at(&table, 0x1000, "main", 0));
        assert!(is_at(&table, 0x103f, "main", 0x3f));
        assert!(is_at(&table, 0x1040, "<Grüße as From>::from", 0));
        assert!(is_at(&table, 0x1_0000_0000, "exit", 0xffff_e000));
    }

    #[test]
    fn a_table_need_not_be_aligned() {
        let mut bytes = vec![0];
        bytes.extend(table(&[(16, "start")]));
        assert!(is_at(&bytes[1..], 17, "start", 1));
    }

    #[test]
    fn a_table_without_functions_knows_nothing() {
        assert_eq!(lookup(&[], 1), None);
        assert_eq!(lookup(&table(&[]), 1), None);
    }

    #[test]
    fn a_table_that_is_cut_off_has_no_names() {
        let whole = table(&[(0, "a"), (8, "b")]);
        for length in 0..whole.len() {
            assert_eq!(lookup(&whole[..length], 9), None, "{length} bytes");
        }
        assert!(is_at(&whole, 9, "b", 1));
    }

    #[test]
    fn functions_share_names_and_none_has_one_that_is_not_there() {
        let mut shared = table(&[(0, "a"), (8, "b"), (16, "c")]);
        let number_at = size_of::<SymbolTable>() + 2 * size_of::<SymbolRecord>() + size_of::<u32>();
        shared[number_at] = 1;
        assert!(is_at(&shared, 17, "b", 1));
        shared[number_at] = 3;
        assert_eq!(lookup(&shared, 17), None);
    }

    proptest! {
        #![proptest_config(cases(2000))]

        #[test]
        fn every_function_is_found(starts in prop::collection::btree_set(any::<u32>(), 1..40), within: u64) {
            let names: Vec<String> = starts.iter().map(|start| format!("at_{start:x}")).collect();
            let functions: Vec<_> = starts.iter().copied().zip(names.iter().map(String::as_str)).collect();
            let table = table(&functions);
            for (number, &(start, name)) in functions.iter().enumerate() {
                let end = functions.get(number + 1).map_or(1 << 32, |next| u64::from(next.0));
                let offset = within % (end - u64::from(start));
                prop_assert!(is_at(&table, u64::from(start) + offset, name, offset));
            }
        }

        #[test]
        fn no_table_can_harm(
            count in 0..6_u32,
            mut bytes in prop::collection::vec(any::<u8>(), 8..80),
            address in prop_oneof![any::<u64>(), 0..1_u64 << 33],
        ) {
            bytes[..4].copy_from_slice(&count.to_le_bytes());
            bytes[5..8].fill(0);
            if let Some(location) = lookup(&bytes, address) {
                prop_assert!(location.offset <= address);
            }
        }
    }
}
