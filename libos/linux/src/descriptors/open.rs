//! Open file descriptions (open(2)): what descriptors lead to, with flags and a position that they share.

use super::buffer::Buffer;
use super::destination::Destination;
use super::epoll::Epoll;
use super::node::OpenNode;
use super::ready::Events;
use super::signal_driven::SignalDriven;
use super::socket::Socket;
use super::source::Source;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, OnceCell};
use core::fmt;
use core::task::Waker;
use linux_raw_sys::general::{
    IN_CLOSE_NOWRITE, IN_CLOSE_WRITE, O_ACCMODE, O_NONBLOCK, O_PATH, O_RDONLY, O_RDWR, O_WRONLY,
};
use nom_fs::{Errno, LockOwner, NodeId, NodeType};

/// What has happened to a stream so far, where that is counted: whoever hears of a change learns by it what
/// is new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Happened {
    /// Bytes that came to be read.
    pub arrived: u64,
    /// How often it had no room for what was to be written, or none was left.
    pub fills: u64,
}

/// Something that is read and written in order, and may have to be waited for. No call blocks: it says
/// `EAGAIN`.
pub(crate) trait Stream {
    /// Reads; 0 at the end.
    ///
    /// # Errors
    /// `EINVAL` for what is not read; `EAGAIN`.
    fn read(&self, _target: &mut [u8]) -> Result<usize, Errno> {
        Err(Errno::EINVAL)
    }

    /// The same, to where a program wants it.
    ///
    /// # Errors
    /// As [`Stream::read`]; `EFAULT`.
    fn read_to(&self, to: &Destination<'_>) -> Result<usize, Errno> {
        to.by_buffer(|bytes| self.read(bytes), |count| *count)
    }

    /// Writes, as many bytes as there is room for.
    ///
    /// # Errors
    /// `EINVAL` for what is not written; `EAGAIN`.
    fn write(&self, _bytes: &[u8]) -> Result<usize, Errno> {
        Err(Errno::EINVAL)
    }

    /// The same, what a program gives.
    ///
    /// # Errors
    /// As [`Stream::write`]; `EFAULT`.
    fn write_from(&self, from: &Source<'_>) -> Result<usize, Errno> {
        from.by_buffer(|bytes| self.write(bytes))
    }

    /// What it is ready for.
    fn ready(&self) -> Events {
        Events::ALWAYS
    }

    /// Wakes `waker`, once, when that may have changed.
    fn wake(&self, _waker: &Waker) {}

    /// What has happened to it so far.
    fn happened(&self) -> Happened {
        Happened::default()
    }

    /// What `stat` calls it.
    fn kind(&self) -> NodeType;

    /// The node that it was opened as.
    fn node(&self) -> Option<NodeId> {
        None
    }

    /// Bytes that can be read at once, if that is known (FIONREAD).
    fn unread(&self) -> Option<usize> {
        None
    }

    /// Shows descriptors that wait in it to be received.
    fn each_attached(&self, _see: &mut dyn FnMut(&Description)) {}

    /// It as a socket.
    fn socket(&self) -> Option<&dyn Socket> {
        None
    }

    /// The bytes of a pipe, if it is an end of one.
    fn pipe(&self) -> Option<&Rc<Buffer>> {
        None
    }

    /// It as an interest set.
    fn epoll(&self) -> Option<&Epoll> {
        None
    }

    /// Whether it is nothing but zeros, which can be mapped.
    fn is_zeros(&self) -> bool {
        false
    }

    /// Whether it is read and written anywhere alike, so that calls may name a place.
    fn takes_offsets(&self) -> bool {
        false
    }

    /// It as signals that are read.
    fn signals(&self) -> Option<&super::signals::SignalReader> {
        None
    }

    /// It as what tells of changed files.
    fn notices(&self) -> Option<&super::notice::Notices> {
        None
    }

    /// It as a process.
    fn process(&self) -> Option<&super::process::ProcessDescriptor> {
        None
    }

    /// It as an end of a terminal.
    fn terminal(&self) -> Option<&crate::terminal::TerminalEnd> {
        None
    }

    /// It as a queue of messages.
    fn queue(&self) -> Option<&Rc<super::queue::MessageQueue>> {
        None
    }

    /// It as a timer.
    fn timer(&self) -> Option<&super::timer::Timer> {
        None
    }
}

/// What is open.
#[derive(Clone)]
pub(crate) enum Object {
    /// A file, a directory, or a text of `/proc`.
    Node(Rc<OpenNode>),
    /// Something else.
    Stream(Rc<dyn Stream>),
}

/// An open file description.
pub(crate) struct Description {
    /// What is open.
    pub object: Object,
    /// Its flags, as `F_GETFL` tells them.
    pub flags: Cell<u32>,
    /// Where it is read and written next.
    pub position: Cell<u64>,
    /// Whether it is an end of a terminal, so that nobody else asks for that.
    pub is_terminal: bool,
    /// Who is told by signals that it is ready, if anybody ever asked.
    signal_driven: OnceCell<Rc<SignalDriven>>,
}

impl fmt::Debug for Description {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.object {
            Object::Node(_) => "node",
            Object::Stream(_) => "stream",
        };
        write!(out, "Description({kind}, {:#o})", self.flags.get())
    }
}

impl Drop for Description {
    fn drop(&mut self) {
        let number = self.number();
        if let Some(driven) = self.signal_driven.get() {
            driven.stop();
        }
        if let Some(node) = self.node() {
            node.locks.release_all(node.node, LockOwner::Description(number));
            let access = self.flags.get() & (O_ACCMODE | O_PATH);
            if access & O_PATH == 0 {
                node.tell_of(if access == O_RDONLY { IN_CLOSE_NOWRITE } else { IN_CLOSE_WRITE });
            }
        }
    }
}

impl Description {
    /// What is opened now.
    pub fn new(object: Object, flags: u32) -> Rc<Description> {
        let is_terminal = matches!(&object, Object::Stream(stream) if stream.terminal().is_some());
        let (flags, position, signal_driven) = (Cell::new(flags), Cell::new(0), OnceCell::new());
        Rc::new(Description { object, flags, position, is_terminal, signal_driven })
    }

    /// A stream that is read and written.
    pub fn of(stream: impl Stream + 'static, flags: u32) -> Rc<Description> {
        Description::new(Object::Stream(Rc::new(stream)), O_RDWR | flags)
    }

    /// Whether its calls say `EAGAIN` rather than wait.
    pub fn is_nonblocking(&self) -> bool {
        self.flags.get() & O_NONBLOCK != 0
    }

    /// Whether it may be read.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn check_read(&self) -> Result<(), Errno> {
        let access = self.flags.get() & (O_ACCMODE | O_PATH);
        if access == O_RDONLY || access == O_RDWR { Ok(()) } else { Err(Errno::EBADF) }
    }

    /// Whether it may be written.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn check_write(&self) -> Result<(), Errno> {
        let access = self.flags.get() & (O_ACCMODE | O_PATH);
        if access == O_WRONLY || access == O_RDWR { Ok(()) } else { Err(Errno::EBADF) }
    }

    /// It as a stream.
    pub fn stream(&self) -> Option<&Rc<dyn Stream>> {
        match &self.object {
            Object::Stream(stream) => Some(stream),
            Object::Node(_) => None,
        }
    }

    /// It as a node.
    pub fn node(&self) -> Option<&Rc<OpenNode>> {
        match &self.object {
            Object::Node(node) => Some(node),
            Object::Stream(_) => None,
        }
    }

    /// The node that it was opened as, if that has one.
    pub fn opened_as(&self) -> Option<NodeId> {
        match &self.object {
            Object::Node(node) => Some(node.node),
            Object::Stream(stream) => stream.node(),
        }
    }

    /// A number that tells it from all others that are open.
    pub fn number(&self) -> u64 {
        core::ptr::from_ref(self).addr() as u64
    }

    /// What is shown of it in `/proc/self/fd` if it has no name.
    pub fn label(&self) -> Vec<u8> {
        let Some(stream) = self.stream() else { return Vec::new() };
        let number = self.number();
        let text = match stream.kind() {
            NodeType::Fifo => alloc::format!("pipe:[{number}]"),
            NodeType::Socket => alloc::format!("socket:[{number}]"),
            NodeType::Character => "/dev/console".into(),
            _ if stream.epoll().is_some() => "anon_inode:[eventpoll]".into(),
            _ if stream.signals().is_some() => "anon_inode:[signalfd]".into(),
            _ if stream.notices().is_some() => "anon_inode:inotify".into(),
            _ if stream.process().is_some() => "anon_inode:[pidfd]".into(),
            _ if stream.queue().is_some() => "anon_inode:[mqueue]".into(),
            _ if stream.timer().is_some() => "anon_inode:[timerfd]".into(),
            _ => "anon_inode:[eventfd]".into(),
        };
        text.into_bytes()
    }

    /// It as a socket.
    ///
    /// # Errors
    /// `ENOTSOCK`.
    pub fn socket(&self) -> Result<&dyn Socket, Errno> {
        self.stream().and_then(|stream| stream.socket()).ok_or(Errno::ENOTSOCK)
    }

    /// Who is told by signals that it is ready.
    pub fn signal_driven(&self) -> &Rc<SignalDriven> {
        self.signal_driven.get_or_init(Rc::default)
    }

    /// Bytes that wait in it to be read.
    pub fn waiting_bytes(&self) -> u64 {
        let stream = self.stream();
        let bytes = stream.and_then(|stream| match stream.pipe() {
            Some(buffer) => Some(buffer.unread()),
            None => stream.unread(),
        });
        bytes.unwrap_or(0) as u64
    }

    /// What it is ready for.
    pub fn ready(&self) -> Events {
        self.stream().map_or(Events::ALWAYS, |stream| stream.ready())
    }

    /// Wakes `waker`, once, when that may have changed.
    pub fn wake(&self, waker: &Waker) {
        if let Some(stream) = self.stream() {
            stream.wake(waker);
        }
    }
}
