//! What a server and a task have in common of a connection.

use crate::chunk::{Arrived, Awaited, Chunk, Unread};
use crate::error::StreamError;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::mem;
use core::net::SocketAddr;
use core::task::Waker;
use nom_port::buffer::{Buffer, Sink as _};
use nom_rt::task::TaskId;
use nom_rt::{Handle, Remote};
use nom_service::{ClientId, Course, Happening, Reaction, Reply, StreamEnd, Wanted};
use slotmap::SlotMap;

slotmap::new_key_type! {
    /// Names a connection of an [`AsyncService`](crate::AsyncService).
    pub struct ConnectionKey;
}

/// Bytes that a task may write before it waits for those to be sent.
const UNSENT_MAX: usize = 64 << 10;

/// The task that a connection is reset with; nobody, if it was asked for outside of any.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Owner(Option<TaskId>);

/// Who waits for something to come.
enum Reader {
    /// A task of the loop, by itself.
    Task(TaskId),
    /// Somebody within a task, or elsewhere.
    Other(Waker),
}

/// What a task has written and the server has not yet taken.
pub(crate) struct Unsent<B> {
    /// Bytes that were copied, and chunks, each after so many of those.
    copied: Vec<u8>,
    shared: Vec<(usize, Chunk<B>)>,
    len: usize,
}

impl<B: Buffer> Unsent<B> {
    fn nothing() -> Box<Unsent<B>> {
        Box::new(Unsent { copied: Vec::new(), shared: Vec::new(), len: 0 })
    }

    /// Moves all of it into `reply`, and keeps its memory.
    fn put(&mut self, reply: &mut Reply<B>) {
        let mut at = 0;
        for (end, chunk) in self.shared.drain(..) {
            reply.copy(&self.copied[at..end]);
            chunk.put(reply);
            at = end;
        }
        reply.copy(&self.copied[at..]);
        self.copied.clear();
        self.len = 0;
    }
}

/// A connection.
pub(crate) struct Channel<B> {
    key: ConnectionKey,
    pub peer: SocketAddr,
    /// Once it is open.
    id: Option<ClientId>,
    /// What nobody has taken yet, if there is anything.
    unread: Option<Box<Unread<B>>>,
    /// What the task has written, if it has written anything.
    unsent: Option<Box<Unsent<B>>>,
    reader: Option<Reader>,
    writer: Option<Waker>,
    /// When the oldest piece arrived that was taken since something was sent.
    pub asked_ns: Option<u64>,
    /// Requests that what is written answers, if the task has said so.
    requests: u32,
    pub end: Option<StreamEnd>,
    /// The peer will send no more.
    pub is_finished: bool,
    pub course: Course,
    /// The task that serves it, or asked for it; nothing as long as no task has it.
    owner: Option<Owner>,
    /// Whether it stands in the list of those that are due.
    is_due: bool,
}

impl<B: Buffer> Channel<B> {
    /// Whether it is open, or over: whoever waits for that goes on.
    pub fn is_settled(&self) -> bool {
        self.id.is_some() || self.end.is_some()
    }

    /// Whether something may be written now.
    ///
    /// # Errors
    /// Why nothing ever will be.
    pub fn has_room(&self) -> Result<bool, StreamError> {
        match self.end {
            Some(end) => Err(StreamError::Ended(end)),
            None if self.course != Course::Open => Err(StreamError::Finished),
            None => Ok(self.unsent_len() < UNSENT_MAX),
        }
    }

    fn unsent_len(&self) -> usize {
        self.unsent.as_ref().map_or(0, |unsent| unsent.len)
    }

    /// Bytes that nobody has taken yet.
    pub fn unread_len(&self) -> usize {
        self.unread.as_ref().map_or(0, |unread| unread.len())
    }

    /// Gives up what nobody has taken; says whether there was anything.
    pub fn forget_unread(&mut self) -> bool {
        self.unread.take().is_some()
    }

    /// Writes as many bytes as there is room for, and says how many.
    ///
    /// # Errors
    /// [`StreamError::NoMemory`]: nothing was written.
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, StreamError> {
        let bytes = &bytes[..bytes.len().min(UNSENT_MAX - self.unsent_len().min(UNSENT_MAX))];
        let unsent = self.unsent.get_or_insert_with(Unsent::nothing);
        unsent.copied.try_reserve(bytes.len()).map_err(|_| StreamError::NoMemory)?;
        unsent.copied.extend_from_slice(bytes);
        unsent.len += bytes.len();
        Ok(bytes.len())
    }

    /// Writes a chunk as it lies.
    ///
    /// # Errors
    /// [`StreamError::NoMemory`]: nothing was written.
    pub fn share(&mut self, chunk: Chunk<B>) -> Result<(), StreamError> {
        let unsent = self.unsent.get_or_insert_with(Unsent::nothing);
        unsent.shared.try_reserve(1).map_err(|_| StreamError::NoMemory)?;
        unsent.len += chunk.len();
        unsent.shared.push((unsent.copied.len(), chunk));
        Ok(())
    }

    /// What is written next answers so many requests more.
    pub fn count(&mut self, requests: u32) {
        self.requests = self.requests.saturating_add(requests);
    }

    /// Remembers who waits for something to come.
    pub fn await_input(&mut self, handle: &Handle, waker: &Waker) {
        self.reader = Some(match handle.task_of(waker) {
            Some(task) => Reader::Task(task),
            None => Reader::Other(waker.clone()),
        });
    }

    /// Remembers who waits for room, or for the connection to be open.
    pub fn await_room(&mut self, waker: &Waker) {
        self.writer = Some(waker.clone());
    }
}

/// A connection, as both its sides have it.
pub(crate) type SharedChannel<B> = Rc<RefCell<Channel<B>>>;

/// The connections of a core.
pub(crate) struct Hub<B> {
    pub handle: Handle,
    channels: RefCell<SlotMap<ConnectionKey, SharedChannel<B>>>,
    due: RefCell<VecDeque<ClientId>>,
    wanted: RefCell<VecDeque<Wanted<ConnectionKey>>>,
    /// To which something happens at present: what is written to it is taken when that is over.
    at_hand: Cell<Option<ConnectionKey>>,
    /// Memory for what is written, of the connection that was served last.
    spare: Cell<Option<Box<Unsent<B>>>>,
    /// The same for what came: of the connection that has taken all, last.
    spare_unread: Cell<Option<Box<Unread<B>>>>,
    /// The ways to the cores of its server, by their numbers.
    pub cores: RefCell<Rc<[Remote]>>,
}

impl<B: Buffer> Hub<B> {
    pub fn new(handle: &Handle) -> Hub<B> {
        Hub {
            handle: handle.clone(),
            channels: RefCell::default(),
            due: RefCell::default(),
            wanted: RefCell::default(),
            at_hand: Cell::new(None),
            spare: Cell::default(),
            spare_unread: Cell::default(),
            cores: RefCell::new([handle.remote()].into()),
        }
    }

    /// A connection with `peer` that is not open yet.
    pub fn add(&self, peer: SocketAddr) -> ConnectionKey {
        self.channels.borrow_mut().insert_with_key(|key| {
            Rc::new(RefCell::new(Channel {
                key,
                peer,
                id: None,
                unread: None,
                unsent: None,
                reader: None,
                writer: None,
                asked_ns: None,
                requests: 0,
                end: None,
                is_finished: false,
                course: Course::Open,
                owner: None,
                is_due: false,
            }))
        })
    }

    /// A connection that is to be asked for.
    pub fn ask_for(&self, remote: SocketAddr) -> SharedChannel<B> {
        let connection = self.add(remote);
        self.wanted.borrow_mut().push_back(Wanted { remote, connection });
        let channel = self.channel(connection).expect("it was just added");
        channel.borrow_mut().owner = Some(Owner(self.handle.task()));
        channel
    }

    /// A connection that no task has yet.
    pub fn unserved(&self, key: ConnectionKey) -> Option<SharedChannel<B>> {
        self.channel(key).filter(|channel| channel.borrow().owner.is_none())
    }

    /// A task serves a connection from now on.
    pub fn serve_by(&self, key: ConnectionKey, task: TaskId) {
        if let Some(channel) = self.channel(key) {
            channel.borrow_mut().owner = Some(Owner(Some(task)));
        }
    }

    /// A task has panicked: what it had is reset, so that nobody takes what was sent for the whole.
    pub fn lose(&self, task: TaskId) {
        for channel in self.channels.borrow().values() {
            // It may have panicked while it had that borrowed, which then it has for good.
            let Ok(mut channel) = channel.try_borrow_mut() else { continue };
            if channel.owner == Some(Owner(Some(task))) {
                log::error!("the connection with {} is reset: its task panicked", channel.peer);
                channel.course = Course::Reset;
                channel.reader = None;
                self.is_due(&mut channel);
            }
        }
    }

    pub fn channel(&self, key: ConnectionKey) -> Option<SharedChannel<B>> {
        self.channels.borrow().get(key).cloned()
    }

    pub fn has_due(&self) -> bool {
        !self.due.borrow().is_empty() || !self.wanted.borrow().is_empty()
    }

    pub fn next_due(&self) -> Option<ClientId> {
        self.due.borrow_mut().pop_front()
    }

    pub fn next_wanted(&self) -> Option<Wanted<ConnectionKey>> {
        self.wanted.borrow_mut().pop_front()
    }

    /// The server is to look at a connection: something was written, taken or decided.
    pub fn is_due(&self, channel: &mut Channel<B>) {
        if self.at_hand.get() == Some(channel.key) || channel.is_due {
            return;
        }
        if let Some(id) = channel.id {
            channel.is_due = true;
            self.due.borrow_mut().push_back(id);
        }
    }

    /// Something is about to be written: lends it memory.
    pub fn lend(&self, channel: &mut Channel<B>) {
        if channel.unsent.is_none() {
            channel.unsent = self.spare.take();
        }
    }

    /// Where what comes is put: an idle connection has no such place.
    fn unread_of<'c>(&self, channel: &'c mut Channel<B>) -> &'c mut Unread<B> {
        channel.unread.get_or_insert_with(|| self.spare_unread.take().unwrap_or_else(Unread::nothing))
    }

    /// Takes the first piece that came, with when that was.
    pub fn take_unread(&self, channel: &mut Channel<B>) -> Option<Arrived<B>> {
        let unread = channel.unread.as_mut()?;
        let arrived = unread.take();
        if unread.is_empty() {
            self.spare_unread.set(channel.unread.take());
        }
        arrived
    }

    /// Puts the rest of a piece back that was just taken.
    pub fn put_back(&self, channel: &mut Channel<B>, at_ns: u64, chunk: Chunk<B>) {
        self.unread_of(channel).put_back(at_ns, chunk);
    }

    /// Something happened to a connection, and who waits for it goes on.
    pub fn happened(&self, key: ConnectionKey, what: Happening<B>, reply: &mut Reply<B>) -> Reaction {
        let Some(shared) = self.channel(key) else {
            return Reaction { course: Course::Reset, unread: 0, asked_ns: None };
        };
        let mut channel = shared.borrow_mut();
        let is_input = match what {
            Happening::Opened(id) => {
                channel.id = Some(id);
                channel.writer.take().into_iter().for_each(Waker::wake);
                false
            }
            Happening::Came(at_ns, bytes) => {
                let is_awaited = if channel.reader.is_some() { Awaited::Yes } else { Awaited::No };
                self.unread_of(&mut channel).push(at_ns, bytes, is_awaited);
                true
            }
            Happening::Finished => !mem::replace(&mut channel.is_finished, true),
            Happening::Due => false,
        };
        if is_input && let Some(reader) = channel.reader.take() {
            drop(channel);
            self.at_hand.set(Some(key));
            self.go_on(reader);
            self.at_hand.set(None);
            channel = shared.borrow_mut();
        }
        self.take(&mut channel, reply)
    }

    fn go_on(&self, reader: Reader) {
        match reader {
            Reader::Task(task) => self.handle.go_on(task),
            Reader::Other(waker) => waker.wake(),
        }
    }

    /// Takes what a connection has to say.
    fn take(&self, channel: &mut Channel<B>, reply: &mut Reply<B>) -> Reaction {
        channel.is_due = false;
        let is_answer = channel.unsent_len() > 0;
        if let Some(mut unsent) = channel.unsent.take() {
            unsent.put(reply);
            // The next one who writes has it: who says nothing for long has none.
            self.spare.set(Some(unsent));
        }
        if is_answer && channel.requests > 0 {
            reply.count(mem::take(&mut channel.requests));
        }
        channel.writer.take().into_iter().for_each(Waker::wake);
        let asked_ns = if is_answer { channel.asked_ns.take() } else { None };
        Reaction { course: channel.course, unread: channel.unread_len() as u32, asked_ns }
    }

    /// A connection is over: whoever waits for it is told.
    pub fn ended(&self, key: ConnectionKey, end: StreamEnd) {
        let Some(shared) = self.channels.borrow_mut().remove(key) else { return };
        let mut channel = shared.borrow_mut();
        channel.end = Some(end);
        channel.unsent = None;
        let (reader, writer) = (channel.reader.take(), channel.writer.take());
        drop(channel);
        writer.into_iter().for_each(Waker::wake);
        reader.into_iter().for_each(|reader| self.go_on(reader));
    }
}
