//! memcached's size classes, by which `stats items` and `stats slabs` show the items. Memory is not divided
//! by them: it is bounded by size, and there is one list of what was used when.

/// How many classes there are, as long as memcached is not told otherwise (`-f 1.25`, `-n 48`, `-I 1m`).
pub(crate) const COUNT: usize = 39;

/// Bytes of the largest item of each class.
const CHUNKS: [u32; COUNT] = chunks();

/// As `slabs_init` of memcached's slabs.c does.
const fn chunks() -> [u32; COUNT] {
    // The last class is for all that is larger, in pieces of half a page.
    let mut chunks = [512 << 10; COUNT];
    let (mut size, mut at) = (96u32, 0);
    while at < COUNT - 1 {
        chunks[at] = size;
        size = (size * 5 / 4).next_multiple_of(8);
        at += 1;
    }
    chunks
}

/// Bytes that memcached's item of a key and a value of so many bytes has: its header, the id, the ends of key
/// and value, and flags that are not 0.
pub(crate) fn item_len(key_len: usize, value_len: usize, flags: u32) -> usize {
    let flags = if flags == 0 { 0 } else { 4 };
    value_len.saturating_add(48 + 8 + key_len + 1 + flags + 2)
}

/// The class of items of so many bytes; the first is 1.
pub(crate) fn number(item_len: usize) -> usize {
    1 + place(item_len)
}

fn place(item_len: usize) -> usize {
    CHUNKS.partition_point(|chunk| (*chunk as usize) < item_len).min(COUNT - 1)
}

/// What is told of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Class {
    /// Items that are there.
    pub number: u64,
    /// Bytes that memcached would take for them.
    pub bytes: u64,
    /// Removed, though alive, to make room.
    pub evicted: u64,
    /// Removed for another when they had expired or been flushed.
    pub reclaimed: u64,
    /// Could not be stored for want of memory.
    pub outofmemory: u64,
}

/// The classes of a shard's items.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Classes([Class; COUNT]);

impl Default for Classes {
    fn default() -> Classes {
        Classes([Class::default(); COUNT])
    }
}

impl Classes {
    /// The class of items of so many bytes.
    pub fn of(&mut self, item_len: usize) -> &mut Class {
        &mut self.0[place(item_len)]
    }

    /// An item of so many bytes is there.
    pub fn enter(&mut self, item_len: usize) {
        let class = self.of(item_len);
        class.number += 1;
        class.bytes += item_len as u64;
    }

    /// An item of so many bytes is gone, or becomes another.
    pub fn leave(&mut self, item_len: usize) {
        let class = self.of(item_len);
        class.number -= 1;
        class.bytes -= item_len as u64;
    }

    /// Forgets what was counted of items that are gone.
    pub fn forget(&mut self) {
        for class in &mut self.0 {
            *class = Class { number: class.number, bytes: class.bytes, ..Class::default() };
        }
    }

    /// Adds those of another shard.
    pub fn add(&mut self, other: &Classes) {
        for (sum, class) in self.0.iter_mut().zip(&other.0) {
            sum.number += class.number;
            sum.bytes += class.bytes;
            sum.evicted += class.evicted;
            sum.reclaimed += class.reclaimed;
            sum.outofmemory += class.outofmemory;
        }
    }

    /// Every class that has something to tell, with its number and the bytes of its largest item.
    pub fn iter(&self) -> impl Iterator<Item = (usize, u32, &Class)> {
        let numbered = (1..).zip(CHUNKS).zip(&self.0);
        numbered
            .filter(|(_, class)| **class != Class::default())
            .map(|((number, chunk), class)| (number, chunk, class))
    }
}
