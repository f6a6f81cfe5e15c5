//! Memory of a simulated device, of which every piece is counted as long as somebody holds it.

use nom_port::buffer::{Buffer, Slice};
use std::cell::Cell;
use std::rc::Rc;

/// The memory of one host's device.
#[derive(Debug, Default)]
pub struct Pool {
    /// Pieces in use.
    live: Cell<usize>,
    /// Bytes of them.
    bytes: Cell<usize>,
    /// Bytes that there are.
    limit: Cell<usize>,
    /// Requests that could not be met.
    refusals: Cell<u64>,
}

impl Pool {
    /// A pool of `limit` bytes.
    pub fn new(limit: usize) -> Rc<Pool> {
        Rc::new(Pool { limit: Cell::new(limit), ..Pool::default() })
    }

    /// Pieces that somebody still holds.
    pub fn live(&self) -> usize {
        self.live.get()
    }

    /// Requests that could not be met so far.
    pub fn refusals(&self) -> u64 {
        self.refusals.get()
    }

    /// A piece with these bytes; `None` if the pool is exhausted.
    pub fn take(self: &Rc<Pool>, bytes: Vec<u8>) -> Option<Memory> {
        let used = self.bytes.get() + bytes.len();
        if used > self.limit.get() {
            self.refusals.set(self.refusals.get() + 1);
            return None;
        }
        self.bytes.set(used);
        self.live.set(self.live.get() + 1);
        Some(Memory(Rc::new(Piece { bytes, pool: self.clone() })))
    }
}

#[derive(Debug)]
struct Piece {
    bytes: Vec<u8>,
    pool: Rc<Pool>,
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.pool.bytes.set(self.pool.bytes.get() - self.bytes.len());
        self.pool.live.set(self.pool.live.get() - 1);
    }
}

/// A handle on a piece of memory.
#[derive(Clone, Debug)]
pub struct Memory(Rc<Piece>);

impl AsRef<[u8]> for Memory {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl Buffer for Memory {
    fn memory(&mut self) -> Option<&mut [u8]> {
        Some(&mut Rc::get_mut(&mut self.0)?.bytes)
    }
}

/// A piece of a stream or of a frame.
pub type Bytes = Slice<Memory>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_counts_what_is_held_and_refuses_what_it_has_not() {
        let pool = Pool::new(10);
        let first = pool.take(vec![1; 6]).unwrap();
        assert!(pool.take(vec![2; 5]).is_none());
        let second = first.clone();
        drop(first);
        assert_eq!((pool.live(), pool.refusals()), (1, 1));
        drop(second);
        assert_eq!(pool.live(), 0);
        assert!(pool.take(vec![3; 10]).is_some());
    }
}
