//! Buffers that travel through the stack without being copied.
//!
//! The driver owns the memory and says by [`Buffer`] how a handle on it is shared. The stack, and the
//! application behind it, keep handles as long as they like; dropping the last one gives the memory back.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::{Deref, Range};
use smallvec::SmallVec;

/// A counted handle on memory that does not change while there are others. `clone` makes another handle,
/// never a copy.
pub trait Buffer: Clone + AsRef<[u8]> {
    /// Bytes of memory that stay in use as long as a handle lives: more than are seen if it is not full.
    fn pinned(&self) -> usize {
        self.as_ref().len()
    }

    /// Whether its owner has no more of the kind to receive into: who keeps a handle for long should copy
    /// instead.
    fn is_scarce(&self) -> bool {
        false
    }

    /// Whether it lies where little else is in use: who keeps a handle for long may copy it elsewhere, so
    /// that its owner can give that memory back.
    fn is_sparse(&self) -> bool {
        false
    }

    /// All of its memory, to be written, if this is the only handle; from then on the handle shows all of it.
    /// `None` if there are others, or if it cannot be written.
    #[inline]
    fn memory(&mut self) -> Option<&mut [u8]> {
        None
    }
}

impl Buffer for Rc<[u8]> {
    #[inline]
    fn memory(&mut self) -> Option<&mut [u8]> {
        Rc::get_mut(self)
    }
}

impl Buffer for Arc<[u8]> {
    #[inline]
    fn memory(&mut self) -> Option<&mut [u8]> {
        Arc::get_mut(self)
    }
}

/// A part of a buffer, as the bytes that it is.
#[derive(Clone, Debug)]
pub struct Slice<B> {
    buffer: B,
    range: Range<usize>,
}

impl<B: Buffer> Slice<B> {
    /// The whole buffer.
    #[inline]
    pub fn new(buffer: B) -> Slice<B> {
        let range = 0..buffer.as_ref().len();
        Slice { buffer, range }
    }

    /// Its bytes, counted without a look at the memory.
    #[inline]
    pub fn len(&self) -> usize {
        self.range.end - self.range.start
    }

    /// Whether it has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.range.start == self.range.end
    }

    /// The part `range` of this slice, cut to what there is.
    #[inline]
    pub fn part(&self, range: Range<usize>) -> Slice<B> {
        let end = self.range.start.saturating_add(range.end).min(self.range.end);
        let start = self.range.start.saturating_add(range.start).min(end);
        Slice { buffer: self.buffer.clone(), range: start..end }
    }

    /// The buffer that it is a part of.
    #[inline]
    pub fn buffer(&self) -> &B {
        &self.buffer
    }

    /// The buffer that it is a part of, whatever part that is.
    #[inline]
    pub fn into_buffer(self) -> B {
        self.buffer
    }

    /// Where in that buffer it lies.
    #[inline]
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// All of the buffer's memory, as [`Buffer::memory`] lends it; what the slice shows stays where it is.
    #[inline]
    pub fn memory(&mut self) -> Option<&mut [u8]> {
        self.buffer.memory()
    }

    /// Shows another part of the buffer, cut to what there is.
    #[inline]
    pub fn show(&mut self, range: Range<usize>) {
        let end = range.end.min(self.buffer.as_ref().len());
        self.range = range.start.min(end)..end;
    }

    /// Forgets the first `count` bytes, or all if there are fewer.
    #[inline]
    pub fn advance(&mut self, count: usize) {
        self.range.start = self.range.start.saturating_add(count).min(self.range.end);
    }

    /// Bytes of memory that stay in use as long as this handle lives: those of the whole buffer.
    pub fn pinned(&self) -> usize {
        self.buffer.pinned()
    }

    /// Whether it should be copied rather than kept, as [`Buffer::is_scarce`] says.
    pub fn is_scarce(&self) -> bool {
        self.buffer.is_scarce()
    }

    /// Whether it stands in the way of memory being given back, as [`Buffer::is_sparse`] says.
    pub fn is_sparse(&self) -> bool {
        self.buffer.is_sparse()
    }

    /// Forgets what stands after the first `len` bytes.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.range.end = self.range.start.saturating_add(len).min(self.range.end);
    }
}

impl<B: Buffer> Deref for Slice<B> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.buffer.as_ref()[self.range.clone()]
    }
}

/// What became of memory that nobody uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trimmed {
    /// Bytes given back.
    pub released_bytes: usize,
    /// Bytes that could have been given back, too, and will be next time.
    pub left_bytes: usize,
    /// Bytes of memory that could be given back if the little in use there lay elsewhere:
    /// [`Buffer::is_sparse`] says of which buffers that is so.
    pub sparse_bytes: usize,
}

/// Memory of received frames and of payloads to send.
pub trait Buffers {
    /// A handle on a piece of it.
    type Buffer: Buffer;

    /// Puts bytes into memory that the device reaches; `None` if that is exhausted.
    fn buffer(&mut self, bytes: &[u8]) -> Option<Slice<Self::Buffer>>;

    /// Such memory with `len` bytes of any value, for who then writes all of them ([`Slice::memory`]).
    fn blank(&mut self, len: usize) -> Option<Slice<Self::Buffer>> {
        self.buffer(&vec![0; len])
    }

    /// The same as [`Buffers::buffer`] for bytes that are kept for long: leaves enough to send from.
    fn keep(&mut self, bytes: &[u8]) -> Option<Slice<Self::Buffer>> {
        self.buffer(bytes)
    }

    /// Gives memory for buffers that nobody uses back to the world, all but `keep_bytes`: a bounded part at a
    /// time. Who cannot gives nothing.
    fn trim(&mut self, keep_bytes: usize) -> Trimmed {
        let _ = keep_bytes;
        Trimmed::default()
    }
}

/// Where an application writes what it sends, in order.
pub trait Sink<B: Buffer> {
    /// Sends bytes that are copied: they may change as soon as this returns.
    fn copy(&mut self, bytes: &[u8]);

    /// Sends bytes as they lie, by a handle of their own.
    fn share(&mut self, slice: Slice<B>);

    /// The same for bytes that are there in any case for as long as the application is, such as a file that
    /// it serves: whoever is slow to read them holds no memory by them but what is on its way to him.
    #[inline]
    fn lend(&mut self, slice: Slice<B>) {
        self.share(slice);
    }

    /// Room for the next `len` bytes that are sent, each of which is to be written: less work than to copy
    /// them piece by piece. Nothing where there is none: then nothing is sent, and they have to be copied.
    #[inline]
    fn room(&mut self, len: usize) -> Option<&mut [u8]> {
        let _ = len;
        None
    }

    /// Whether it matters what the next request is about ([`Sink::asked`]).
    #[inline]
    fn tells_apart(&self) -> bool {
        false
    }

    /// Says what the request is about whose answer comes next, for who tells apart whom it is for.
    #[inline]
    fn asked(&mut self, about: Asked<'_>) {
        let _ = about;
    }
}

/// Whoever has one by reference has one.
impl<B: Buffer, S: Sink<B> + ?Sized> Sink<B> for &mut S {
    #[inline]
    fn copy(&mut self, bytes: &[u8]) {
        (**self).copy(bytes);
    }

    #[inline]
    fn share(&mut self, slice: Slice<B>) {
        (**self).share(slice);
    }

    #[inline]
    fn lend(&mut self, slice: Slice<B>) {
        (**self).lend(slice);
    }

    #[inline]
    fn room(&mut self, len: usize) -> Option<&mut [u8]> {
        (**self).room(len)
    }

    #[inline]
    fn tells_apart(&self) -> bool {
        (**self).tells_apart()
    }

    #[inline]
    fn asked(&mut self, about: Asked<'_>) {
        (**self).asked(about);
    }
}

/// What a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked<'a> {
    /// What is kept under a key; the first, if it names several. Behind a blank more of the request may
    /// follow, for whom it is enough to look at what a key begins with.
    Key(&'a [u8]),
    /// A page, by its path, and the name of the site, if it says one.
    Page {
        /// The name of the site, without a port.
        host: &'a [u8],
        /// The path, as the client wrote it.
        path: &'a [u8],
    },
}

/// Copies everything.
impl<B: Buffer> Sink<B> for Vec<u8> {
    fn copy(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn share(&mut self, slice: Slice<B>) {
        self.extend_from_slice(&slice);
    }
}

/// Slices one after another: the payload of one packet, gathered by the device. One or two need no memory of
/// their own.
pub type Chain<B> = SmallVec<[Slice<B>; 2]>;

/// A chain of one slice.
#[inline]
pub fn single<B>(slice: Slice<B>) -> Chain<B> {
    let mut chain = Chain::new();
    chain.push(slice);
    chain
}

/// Bytes in a chain.
#[inline]
pub fn chain_len<B: Buffer>(chain: &[Slice<B>]) -> usize {
    match chain {
        // Nearly all are in one piece.
        [slice] => slice.len(),
        _ => chain.iter().map(|slice| slice.len()).sum(),
    }
}

/// A slice, and how far behind the first but one of its queue it begins.
type Behind<B> = (u64, Slice<B>);

/// Bytes in order, put in at the end and forgotten from the front, cut anywhere at the cost of a binary
/// search however many slices there are.
#[derive(Debug)]
pub struct Queue<B> {
    /// The first slice, which is nearly always the only one: then nothing is allocated.
    first: Option<Slice<B>>,
    /// Those behind it, each with how far behind the first of these it begins; none without the first slice.
    #[expect(clippy::box_collection, reason = "most queues have none, and there is one in every connection")]
    rest: Option<Box<VecDeque<Behind<B>>>>,
    /// Bytes held.
    len: usize,
}

impl<B: Buffer> Queue<B> {
    /// A queue of nothing.
    #[inline]
    pub fn new() -> Queue<B> {
        Queue { first: None, rest: None, len: 0 }
    }

    /// Bytes held.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no byte is held.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a slice.
    #[inline]
    pub fn push(&mut self, slice: Slice<B>) {
        if slice.is_empty() {
            return;
        }
        self.len += slice.len();
        match &self.first {
            None => self.first = Some(slice),
            Some(_) => self.push_behind(slice),
        }
    }

    fn push_behind(&mut self, slice: Slice<B>) {
        let rest = self.rest.get_or_insert_default();
        // Counted on while some leave at the front: the first of them need not be at 0.
        let at = rest.back().map_or(0, |(at, last)| at + last.len() as u64);
        rest.push_back((at, slice));
    }

    /// Takes the first slice whole.
    #[inline]
    pub fn pop(&mut self) -> Option<Slice<B>> {
        let slice = self.first.take()?;
        self.len -= slice.len();
        self.close_ranks();
        Some(slice)
    }

    /// The first slice has gone: the next one is the first. What is empty has no memory.
    #[inline]
    fn close_ranks(&mut self) {
        if let Some(rest) = &mut self.rest {
            self.first = rest.pop_front().map(|(_, slice)| slice);
            if rest.is_empty() {
                self.rest = None;
            }
        }
    }

    /// Forgets the first `count` bytes, or all if there are fewer.
    #[inline]
    pub fn advance(&mut self, count: usize) {
        let mut left = count.min(self.len);
        self.len -= left;
        while let Some(slice) = self.first.as_mut().filter(|_| left > 0) {
            if left < slice.len() {
                slice.advance(left);
                break;
            }
            left -= slice.len();
            self.first = None;
            self.close_ranks();
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.advance(self.len());
    }

    /// The first `len` bytes as they lie, if they are in one slice.
    #[inline]
    pub fn peek(&self, len: usize) -> Option<&[u8]> {
        self.first.as_ref()?.get(..len)
    }

    /// Handles on the `len` bytes from `offset`, or on as many as there are.
    #[inline]
    pub fn cut(&self, offset: usize, len: usize) -> Chain<B> {
        let to = offset.saturating_add(len).min(self.len);
        let Some(first) = &self.first else { return Chain::new() };
        // Nearly always all of it is in the first slice.
        if to <= first.len() {
            let part = first.part(offset..to);
            return if part.is_empty() { Chain::new() } else { single(part) };
        }
        Self::cut_across(first, self.rest.as_deref(), offset..to)
    }

    /// The same, of bytes that do not end in the first slice.
    fn cut_across(first: &Slice<B>, rest: Option<&VecDeque<Behind<B>>>, bytes: Range<usize>) -> Chain<B> {
        let start = rest.and_then(|rest| rest.front()).map_or(0, |(at, _)| *at);
        let behind = |offset: usize| start + offset.saturating_sub(first.len()) as u64;
        let (from, to) = (behind(bytes.start), behind(bytes.end));
        let touched = rest.into_iter().flat_map(|rest| {
            let after = rest.partition_point(|(at, slice)| at + slice.len() as u64 <= from);
            rest.range(after..).take_while(|(at, _)| *at < to)
        });
        let part =
            |(at, slice): &(u64, Slice<B>)| slice.part(from.saturating_sub(*at) as usize..(to - at) as usize);
        let begin = first.part(bytes.start..bytes.end);
        Some(begin).filter(|begin| !begin.is_empty()).into_iter().chain(touched.map(part)).collect()
    }
}

impl<B: Buffer> Default for Queue<B> {
    fn default() -> Queue<B> {
        Queue::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(text: &str) -> Slice<Rc<[u8]>> {
        Slice::new(Rc::from(text.as_bytes()))
    }

    fn text(chain: &[Slice<Rc<[u8]>>]) -> String {
        chain.iter().map(|slice| String::from_utf8(slice.to_vec()).unwrap()).collect()
    }

    #[test]
    fn a_queue_is_cut_across_its_slices() {
        let mut queue = Queue::new();
        for piece in ["abc", "", "defg", "h"] {
            queue.push(slice(piece));
        }
        assert_eq!(text(&queue.cut(0, 8)), "abcdefgh");
        assert_eq!(text(&queue.cut(2, 3)), "cde");
        assert_eq!(text(&queue.cut(7, 100)), "h");
        assert!(queue.cut(8, 1).is_empty());
        assert_eq!((queue.peek(3), queue.peek(4)), (Some(&b"abc"[..]), None));
        queue.advance(4);
        assert_eq!((queue.len(), text(&queue.cut(1, 2))), (4, "fg".to_owned()));
        assert_eq!(queue.pop().unwrap().to_vec(), b"efg");
        queue.clear();
        assert!(queue.is_empty() && queue.cut(0, 1).is_empty());
    }

    #[test]
    fn a_kept_slice_outlives_its_queue_and_is_not_copied() {
        let memory: Rc<[u8]> = Rc::from(&b"value"[..]);
        let mut queue = Queue::new();
        queue.push(Slice::new(memory.clone()));
        let kept = queue.cut(1, 3).remove(0);
        drop(queue);
        assert_eq!(&*kept, b"alu");
        assert_eq!(kept.as_ptr(), memory[1..].as_ptr());
        assert_eq!(Rc::strong_count(&memory), 2);
    }

    #[test]
    fn memory_is_written_by_its_only_handle() {
        let mut only = slice("abcdef").part(1..3);
        only.memory().expect("the only handle")[4] = b'!';
        assert_eq!(&*only, b"bc");
        only.show(3..usize::MAX);
        assert_eq!(&*only, b"d!f");
        let other = only.clone();
        assert!(only.memory().is_none());
        drop(other);
        assert!(only.memory().is_some());
    }

    #[test]
    fn a_part_never_leaves_its_slice() {
        let part = slice("abcdef").part(2..4);
        assert_eq!(&*part.part(1..usize::MAX), b"d");
        assert!(part.part(7..9).is_empty());
    }
}
