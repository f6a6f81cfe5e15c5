//! What a service answers, until the stack has it.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use nom_port::buffer::{Buffer, Buffers, Sink, Slice};

/// Bytes of small answers that are gathered before they are put into memory of the device.
const STAGING: usize = 4096;

/// What a service answers.
#[derive(Debug)]
pub struct Reply<B> {
    copied: Vec<u8>,
    /// Slices to send, each after so many of the copied bytes.
    shared: Vec<(usize, Slice<B>)>,
    /// Datagrams: where the bytes of its head end in `heads`, and how many of the whole follow.
    datagrams: Vec<(usize, usize)>,
    heads: Vec<u8>,
    /// Requests that it answers, as far as the service has said.
    requests: u32,
}

impl<B> Default for Reply<B> {
    fn default() -> Reply<B> {
        Reply {
            copied: Vec::new(),
            shared: Vec::new(),
            datagrams: Vec::new(),
            heads: Vec::new(),
            requests: 0,
        }
    }
}

impl<B: Buffer> Reply<B> {
    /// Sends the next `len` bytes of what was written as a datagram of their own, behind `head`.
    pub fn datagram(&mut self, head: &[u8], len: usize) {
        self.heads.extend_from_slice(head);
        self.datagrams.push((self.heads.len(), len));
    }

    /// Says that so many requests were answered. Of a service that never says so, each piece that it answers
    /// counts as one.
    #[inline]
    pub fn count(&mut self, requests: u32) {
        self.requests = self.requests.saturating_add(requests);
    }

    /// Requests that were answered since the last call.
    #[inline]
    pub fn take_requests(&mut self) -> u32 {
        core::mem::take(&mut self.requests).max(1)
    }

    /// Bytes written.
    #[inline]
    pub fn len(&self) -> usize {
        self.copied.len() + self.shared.iter().map(|(_, slice)| slice.len()).sum::<usize>()
    }

    /// Whether nothing was written.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.copied.is_empty() && self.shared.is_empty()
    }

    /// The bytes that were copied: all, of an answer that shares none.
    pub fn copied(&self) -> &[u8] {
        &self.copied
    }

    /// Takes all bytes as slices in order; `None` if the memory for the copied ones is exhausted.
    #[inline]
    pub fn take(
        &mut self,
        memory: &mut impl Buffers<Buffer = B>,
        out: &mut VecDeque<Slice<B>>,
    ) -> Option<()> {
        let taken = self.put_all(memory, out);
        self.shared.clear();
        self.copied.clear();
        self.copied.shrink_to(STAGING);
        taken
    }

    /// Takes all bytes as one slice if all were copied; `None` if they were not, or there are none, or no
    /// memory for them: then nothing was taken.
    #[inline]
    pub fn take_whole(&mut self, memory: &mut impl Buffers<Buffer = B>) -> Option<Slice<B>> {
        if self.copied.is_empty() || !self.shared.is_empty() {
            return None;
        }
        let whole = memory.buffer(&self.copied)?;
        self.copied.clear();
        self.copied.shrink_to(STAGING);
        Some(whole)
    }

    fn put_all(&mut self, memory: &mut impl Buffers<Buffer = B>, out: &mut VecDeque<Slice<B>>) -> Option<()> {
        let mut at = 0;
        for (end, slice) in self.shared.drain(..) {
            put(memory, &self.copied[at..end], out)?;
            out.push_back(slice);
            at = end;
        }
        put(memory, &self.copied[at..], out)
    }

    /// The datagrams that the bytes are to be sent as: the head of each, and how many bytes follow it.
    pub fn datagrams(&self) -> impl Iterator<Item = (&[u8], usize)> {
        let mut start = 0;
        self.datagrams
            .iter()
            .map(move |&(end, len)| (&self.heads[core::mem::replace(&mut start, end)..end], len))
    }

    /// Forgets how the bytes were to be sent.
    pub fn clear_datagrams(&mut self) {
        self.datagrams.clear();
        self.heads.clear();
    }
}

#[inline]
fn put<B: Buffer>(
    memory: &mut impl Buffers<Buffer = B>,
    bytes: &[u8],
    out: &mut VecDeque<Slice<B>>,
) -> Option<()> {
    if !bytes.is_empty() {
        out.push_back(memory.buffer(bytes)?);
    }
    Some(())
}

impl<B: Buffer> Sink<B> for Reply<B> {
    #[inline]
    fn copy(&mut self, bytes: &[u8]) {
        self.copied.extend_from_slice(bytes);
    }

    #[inline]
    fn share(&mut self, slice: Slice<B>) {
        self.shared.push((self.copied.len(), slice));
    }
}
