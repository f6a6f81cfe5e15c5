//! Prices on the bulletin board: read by everybody, published by one application.

use crate::start;
use core::sync::atomic::Ordering::Relaxed;
use nom_abi::error::{Error, Result};
use nom_abi::image::flag;

pub use nom_abi::prices::{PriceEntry, PriceList, PriceSource, PricedResource};

/// Present prices; an empty list before any were published. `None` while they are being written: whoever had
/// prices keeps them and looks again later.
pub fn read() -> Option<PriceList> {
    start::board().prices.read()
}

/// How often prices have been published. Costs one read of memory: a program that has seen this number has
/// seen the prices.
#[inline]
pub fn sequence() -> u32 {
    start::board().prices.sequence.generation()
}

/// The provider's revision of the present prices. Costs one read of memory, like [`sequence`], but stays the
/// same when prices are only confirmed.
#[inline]
pub fn revision() -> u64 {
    start::board().prices.revision.load(Relaxed)
}

/// Puts `list` on the board in place of the present prices. One core of the program does so at a time.
///
/// # Errors
/// NotPermitted, unless the manifest says `publishes_prices = true`.
pub fn publish(list: &PriceList) -> Result<()> {
    // For whom the kernel maps the prices read-only the write would be a fault.
    if start::info().flags & flag::PUBLISHES_PRICES == 0 {
        return Err(Error::NotPermitted);
    }
    start::board().prices.publish(list);
    Ok(())
}
