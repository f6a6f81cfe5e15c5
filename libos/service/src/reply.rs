//! What a service answers, until the stack has it.

use crate::activity::Activity;
use crate::rules::{Class, Rules};
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Debug;
use core::ops::Range;
use nom_port::buffer::{Asked, Buffer, Buffers, Sink, Slice};

/// Bytes of small answers that are gathered before they are put into memory of the device.
const STAGING: usize = 4096;

/// Who is told who pays for what is done.
pub trait Payer: Debug {
    /// What was done since the request at hand came, and what is done from here on, is paid for by
    /// `activity`.
    fn charge(&self, activity: Activity);

    /// So many requests of an activity are answered, by so many bytes.
    fn count(&self, activity: Activity, requests: u32, bytes: usize);
}

/// Whose the requests are that are being answered.
#[derive(Debug)]
struct Attribution {
    rules: Arc<Rules>,
    payer: Rc<dyn Payer>,
    /// What the client is, and who pays at present.
    class: Class,
    present: Option<Activity>,
    /// What was asked first of the piece at hand, which nearly always is all, and the rest in its order. No
    /// request is there yet of who only has a connection.
    first: Share,
    others: Vec<Share>,
}

/// Requests for one activity that follow each other.
#[derive(Clone, Copy, Debug)]
struct Share {
    activity: Activity,
    requests: u32,
    /// How much was written when the first of them was asked.
    from: usize,
}

impl Share {
    /// No request, of a client of this class.
    #[inline]
    fn none_of(class: Class) -> Share {
        Share { activity: class.base(), requests: 0, from: 0 }
    }
}

/// Bytes one behind the other: a vector, but that nothing is asked of it for bytes that have room.
#[derive(Debug, Default)]
struct Staging {
    room: Vec<u8>,
    len: usize,
}

impl Staging {
    #[inline]
    fn push(&mut self, bytes: &[u8]) {
        self.add(bytes.len()).copy_from_slice(bytes);
    }

    /// The next `len` bytes, to be written.
    #[inline]
    fn add(&mut self, len: usize) -> &mut [u8] {
        let end = self.len + len;
        if end > self.room.len() {
            self.grow(end);
        }
        let place = &mut self.room[self.len..end];
        self.len = end;
        place
    }

    #[cold]
    fn grow(&mut self, end: usize) {
        self.room.resize(end.next_power_of_two().max(STAGING), 0);
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.room[..self.len]
    }

    /// Forgets all, and gives the memory of an uncommonly long answer back.
    #[inline]
    fn clear(&mut self) {
        self.len = 0;
        if self.room.len() > STAGING {
            self.room = Vec::new();
        }
    }
}

/// What a service answers.
#[derive(Debug)]
pub struct Reply<B> {
    copied: Staging,
    /// Slices to send, each after so many of the copied bytes.
    shared: Vec<(usize, Slice<B>)>,
    /// If activities are told apart: where what is lent lies among all bytes, until more is written behind
    /// what was taken.
    lent: Vec<Range<usize>>,
    /// Datagrams: where the bytes of its head end in `heads`, and how many of the whole follow.
    datagrams: Vec<(usize, usize)>,
    heads: Vec<u8>,
    /// Requests that it answers, as far as the service has said.
    requests: u32,
    /// If activities are told apart.
    attribution: Option<Attribution>,
}

impl<B> Default for Reply<B> {
    fn default() -> Reply<B> {
        Reply {
            copied: Staging::default(),
            shared: Vec::new(),
            lent: Vec::new(),
            datagrams: Vec::new(),
            heads: Vec::new(),
            requests: 0,
            attribution: None,
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

    /// Tells activities apart from now on, by `rules`.
    pub fn attribute(&mut self, rules: Arc<Rules>, payer: Rc<dyn Payer>) {
        let (class, others) = (Class::OTHERS, Vec::new());
        let first = Share::none_of(class);
        self.attribution = Some(Attribution { rules, payer, class, present: None, first, others });
    }

    /// A piece of a client of this class is at hand.
    #[inline]
    pub fn begin(&mut self, class: Class) {
        if let Some(attribution) = &mut self.attribution {
            (attribution.class, attribution.present) = (class, None);
            attribution.first = Share::none_of(class);
            self.lent.clear();
        }
    }

    /// Where those bytes lie that were [lent](Sink::lend), among all that were written for the piece at hand,
    /// in order. Not known where activities are not told apart.
    pub fn lent(&self) -> &[Range<usize>] {
        &self.lent
    }

    /// The piece is answered: so many requests, by `len` bytes. Returns who pays for what is sent of it, if
    /// that is not who pays for the connection as such.
    #[inline]
    pub fn end(&mut self, requests: u32, len: usize) -> Option<Activity> {
        self.attribution.as_mut()?.end(requests, len)
    }

    /// Bytes written.
    #[inline]
    pub fn len(&self) -> usize {
        self.copied.len + self.shared.iter().map(|(_, slice)| slice.len()).sum::<usize>()
    }

    /// Whether nothing was written.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.copied.len == 0 && self.shared.is_empty()
    }

    /// The bytes that were copied: all, of an answer that shares none.
    pub fn copied(&self) -> &[u8] {
        self.copied.bytes()
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
        taken
    }

    /// Takes all bytes as one slice if all were copied; `None` if they were not, or there are none, or no
    /// memory for them: then nothing was taken.
    #[inline]
    pub fn take_whole(&mut self, memory: &mut impl Buffers<Buffer = B>) -> Option<Slice<B>> {
        if self.copied.len == 0 || !self.shared.is_empty() {
            return None;
        }
        let whole = memory.buffer(self.copied.bytes())?;
        self.copied.clear();
        Some(whole)
    }

    fn put_all(&mut self, memory: &mut impl Buffers<Buffer = B>, out: &mut VecDeque<Slice<B>>) -> Option<()> {
        let mut at = 0;
        for (end, slice) in self.shared.drain(..) {
            put(memory, &self.copied.bytes()[at..end], out)?;
            out.push_back(slice);
            at = end;
        }
        put(memory, &self.copied.bytes()[at..], out)
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

impl Attribution {
    /// A request came when so much was written.
    fn asked(&mut self, about: Asked<'_>, written: usize) {
        let activity = self.rules.of_request(self.class, about);
        if self.present != Some(activity) {
            self.present = Some(activity);
            self.payer.charge(activity);
        }
        let last = self.others.last_mut().unwrap_or(&mut self.first);
        if last.activity == activity {
            last.requests += 1;
        } else if last.requests == 0 {
            *last = Share { activity, requests: 1, from: written };
        } else {
            self.others.push(Share { activity, requests: 1, from: written });
        }
    }

    #[inline]
    fn end(&mut self, requests: u32, len: usize) -> Option<Activity> {
        if !self.others.is_empty() {
            self.end_several(requests, len);
        } else if len > 0 || self.first.requests > 0 {
            self.payer.count(self.first.activity, requests, len);
        }
        self.present
    }

    /// What was written before the first of them was asked is his, too.
    #[cold]
    fn end_several(&mut self, requests: u32, len: usize) {
        let ends = self.others.iter().map(|share| share.from).chain([len]);
        let shares = core::iter::once(&self.first).chain(&self.others);
        let (mut left, mut from) = (requests, 0);
        for (index, (share, end)) in shares.zip(ends).enumerate() {
            let is_last = index == self.others.len();
            let count = if is_last { left } else { share.requests.min(left) };
            self.payer.count(share.activity, count, end - from);
            (left, from) = (left - count, end);
        }
        self.others.clear();
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
        self.copied.push(bytes);
    }

    #[inline]
    fn share(&mut self, slice: Slice<B>) {
        self.shared.push((self.copied.len, slice));
    }

    #[inline]
    fn lend(&mut self, slice: Slice<B>) {
        if self.attribution.is_some() {
            let at = self.len();
            self.lent.push(at..at + slice.len());
        }
        self.share(slice);
    }

    #[inline]
    fn room(&mut self, len: usize) -> Option<&mut [u8]> {
        Some(self.copied.add(len))
    }

    #[inline]
    fn tells_apart(&self) -> bool {
        self.attribution.as_ref().is_some_and(|attribution| attribution.class.is_by_request())
    }

    #[inline]
    fn asked(&mut self, about: Asked<'_>) {
        let written = self.len();
        if let Some(attribution) = self.attribution.as_mut().filter(|it| it.class.is_by_request()) {
            attribution.asked(about, written);
        }
    }
}
