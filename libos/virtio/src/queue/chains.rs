//! What the driver remembers of the chains it has lent, so that it never has to believe the device.

use alloc::boxed::Box;

use super::Errors;

/// By identifier: the token of a chain, and how many descriptors it takes.
#[derive(Debug)]
pub(super) struct Chains<T> {
    lent: Box<[Option<Chain<T>>]>,
    pub(super) errors: Errors,
}

#[derive(Debug)]
struct Chain<T> {
    token: T,
    descriptors: u16,
}

impl<T> Chains<T> {
    pub(super) fn new(size: u16) -> Chains<T> {
        Chains { lent: (0..size).map(|_| None).collect(), errors: Errors::default() }
    }

    /// Notes that chain `id` was lent. It must not be already.
    #[inline]
    pub(super) fn lend(&mut self, id: u16, token: T, descriptors: u16) {
        // None is there, so none need be dropped.
        core::mem::forget(self.lent[usize::from(id)].replace(Chain { token, descriptors }));
    }

    /// Takes back the chain that the device calls `id`, with its number of descriptors; `None` if that is
    /// nonsense, which is counted.
    #[inline]
    pub(super) fn take_back(&mut self, id: u32) -> Option<(T, u16)> {
        let Some(entry) = self.lent.get_mut(id as usize) else {
            self.errors.identifier_out_of_range += 1;
            return None;
        };
        let Some(chain) = entry.take() else {
            self.errors.identifier_not_lent += 1;
            return None;
        };
        Some((chain.token, chain.descriptors))
    }

    /// Chains that are lent.
    pub(super) fn count(&self) -> usize {
        self.lent.iter().flatten().count()
    }
}
