//! Memory for packets: counted handles, and blocks by size that are used again when the last handle is gone.

use nom_port::buffer::Buffer;
use parking_lot::Mutex;
use std::array;
use std::cell::RefCell;
use std::fmt;
use std::mem::swap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};

/// The smallest block has 2 to this power bytes.
const SMALLEST: u32 = 7;
/// The largest has 2 to this power bytes.
const LARGEST: u32 = 24;
const CLASSES: usize = (LARGEST - SMALLEST + 1) as usize;

type Blocks = Vec<Arc<Block>>;

/// The blocks of one core: each size is twice the one before, from 128 bytes to 16 MiB.
pub struct Pool {
    free: [RefCell<Blocks>; CLASSES],
    shared: Arc<Shared>,
}

struct Shared {
    /// Blocks that came back, from any core.
    returned: [Mutex<Blocks>; CLASSES],
    /// Bytes that may still be allocated.
    allowance: AtomicUsize,
}

/// Memory that is free, or filled and then not changed as long as a handle lives.
struct Block {
    bytes: Box<[u8]>,
    filled: usize,
    pool: Weak<Shared>,
}

/// Two cores that drop the last two handles at the same time may both take the other's for the last: then
/// nobody gives the block back, and its bytes may be allocated again.
impl Drop for Block {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.upgrade() {
            pool.allowance.fetch_add(self.bytes.len(), Relaxed);
        }
    }
}

impl Pool {
    /// An empty pool that takes up to `limit` bytes of memory.
    pub fn new(limit: usize) -> Pool {
        let returned = array::from_fn(|_| Mutex::default());
        let shared = Shared { returned, allowance: AtomicUsize::new(limit) };
        Pool { free: array::from_fn(|_| RefCell::default()), shared: Arc::new(shared) }
    }

    /// A slot of at least `bytes`; `None` if memory is exhausted or nothing is that large.
    pub fn take(&self, bytes: usize) -> Option<PoolSlot> {
        let class = class(bytes)?;
        let mut free = self.free[class].borrow_mut();
        if free.is_empty() {
            swap(&mut *free, &mut *self.shared.returned[class].lock());
        }
        let kept = free.pop();
        kept.or_else(|| self.allocate(1 << (class as u32 + SMALLEST))).map(PoolSlot)
    }

    /// A handle on a copy of `bytes`; `None` as for [`Pool::take`].
    pub fn copy(&self, bytes: &[u8]) -> Option<PoolBuffer> {
        let mut slot = self.take(bytes.len())?;
        slot.bytes()[..bytes.len()].copy_from_slice(bytes);
        Some(slot.share(bytes.len()))
    }

    fn allocate(&self, bytes: usize) -> Option<Arc<Block>> {
        let take = |left: usize| left.checked_sub(bytes);
        self.shared.allowance.try_update(Relaxed, Relaxed, take).ok()?;
        let pool = Arc::downgrade(&self.shared);
        Some(Arc::new(Block { bytes: vec![0; bytes].into_boxed_slice(), filled: 0, pool }))
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Pool({} bytes left)", self.shared.allowance.load(Relaxed))
    }
}

/// The smallest class that has room for `bytes`.
fn class(bytes: usize) -> Option<usize> {
    let power = bytes.max(1 << SMALLEST).checked_next_power_of_two()?.trailing_zeros();
    (power <= LARGEST).then_some((power - SMALLEST) as usize)
}

/// A block that nobody else has a handle on. Whoever drops it unshared loses it to the pool: it is made to be
/// filled.
pub struct PoolSlot(Arc<Block>);

impl PoolSlot {
    /// Its memory.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.block().bytes
    }

    /// The first `filled` bytes of it, or all if there are fewer, as a handle that can be cloned and kept.
    pub fn share(mut self, filled: usize) -> PoolBuffer {
        let block = self.block();
        block.filled = filled.min(block.bytes.len());
        PoolBuffer(Some(self.0))
    }

    fn block(&mut self) -> &mut Block {
        Arc::get_mut(&mut self.0).expect("a slot is the only handle on its block")
    }
}

impl fmt::Debug for PoolSlot {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "PoolSlot({} bytes)", self.0.bytes.len())
    }
}

/// A counted handle on memory that does not change while there are others. It may go to any core; when the
/// last one is dropped, wherever that is, the memory goes back to its pool.
#[derive(Clone)]
pub struct PoolBuffer(Option<Arc<Block>>);

impl PoolBuffer {
    #[inline]
    fn block(&self) -> &Arc<Block> {
        self.0.as_ref().expect("only `drop` takes it")
    }
}

impl Drop for PoolBuffer {
    fn drop(&mut self) {
        if let Some(mut block) = self.0.take()
            && Arc::get_mut(&mut block).is_some()
            && let Some(pool) = block.pool.upgrade()
            && let Some(class) = class(block.bytes.len())
        {
            pool.returned[class].lock().push(block);
        }
    }
}

impl AsRef<[u8]> for PoolBuffer {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        let block = self.block();
        &block.bytes[..block.filled]
    }
}

impl Buffer for PoolBuffer {
    fn pinned(&self) -> usize {
        self.block().bytes.len()
    }

    fn memory(&mut self) -> Option<&mut [u8]> {
        let block = Arc::get_mut(self.0.as_mut()?)?;
        block.filled = block.bytes.len();
        Some(&mut block.bytes)
    }
}

impl fmt::Debug for PoolBuffer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "PoolBuffer({} of {} bytes)", self.as_ref().len(), self.pinned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_when_its_last_handle_is_gone() {
        let pool = Pool::new(256);
        let first = pool.copy(b"first").expect("memory");
        let address = first.as_ref().as_ptr();
        let kept = first.clone();
        drop(first);
        let second = pool.copy(b"second").expect("memory for one more");
        assert!(pool.copy(b"third").is_none(), "256 bytes are two blocks");
        assert_eq!((kept.as_ref(), second.as_ref()), (&b"first"[..], &b"second"[..]));
        drop(kept);
        let third = pool.copy(b"3").expect("the first one's memory");
        assert_eq!((third.as_ref(), third.as_ref().as_ptr()), (&b"3"[..], address));
    }

    #[test]
    fn a_block_has_room_and_says_what_it_pins() {
        let pool = Pool::new(64 << 20);
        for (bytes, pinned) in [(0, 128), (128, 128), (129, 256), (1500, 2048), (1 << 24, 1 << 24)] {
            let buffer = pool.take(bytes).expect("memory").share(bytes);
            assert_eq!((buffer.as_ref().len(), buffer.pinned()), (bytes, pinned));
        }
        assert!(pool.take((1 << 24) + 1).is_none());
        assert!(pool.take(usize::MAX).is_none());
    }

    #[test]
    fn only_a_single_handle_writes_and_then_shows_all() {
        let mut only = Pool::new(1024).copy(b"value").expect("memory");
        let other = only.clone();
        assert!(only.memory().is_none());
        drop(other);
        only.memory().expect("the only handle")[5] = b's';
        assert_eq!((&only.as_ref()[..6], only.as_ref().len()), (&b"values"[..], 128));
    }

    #[test]
    fn a_handle_outlives_its_pool() {
        let kept = Pool::new(1024).copy(b"value").expect("memory");
        assert_eq!(kept.as_ref(), b"value");
    }

    #[test]
    fn memory_comes_back_from_other_threads() {
        let pool = Pool::new(64 * 128);
        let (sender, receiver) = std::sync::mpsc::channel::<(PoolBuffer, u32)>();
        let reader = std::thread::spawn(move || {
            receiver.iter().for_each(|(buffer, number)| assert_eq!(buffer.as_ref(), number.to_le_bytes()));
        });
        let mut number = 0u32;
        while number < 20_000 {
            // There are 64 blocks for all of these.
            let Some(buffer) = pool.copy(&number.to_le_bytes()) else {
                std::thread::yield_now();
                continue;
            };
            sender.send((buffer.clone(), number)).expect("it reads");
            number += 1;
        }
        drop(sender);
        reader.join().expect("it read what was written");
    }
}
