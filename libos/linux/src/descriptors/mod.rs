//! Descriptors: what a process has open.
//!
//! A [`Descriptors`] table leads to open file descriptions, and these to a file of the tree or to a stream: a
//! pipe, a counter, a timer, a device, a socket. Streams never block. Whoever waits asks again when it is
//! woken, be it one call of one stream, `poll`, or an interest set, which looks at nobody who was not woken.

mod bound;
pub(crate) mod buffer;
pub(crate) mod calls;
mod cork;
mod counter;
mod datagrams;
mod destination;
mod device;
mod epoll;
mod errors;
pub(crate) mod fifo;
pub(crate) mod flight;
mod inet;
mod interfaces;
mod local;
pub(crate) mod locks;
pub(crate) mod mapped;
mod message;
mod netlink;
pub(crate) mod node;
mod notice;
mod open;
mod options;
mod pipe;
pub(crate) mod places;
pub(crate) mod process;
pub(crate) mod queue;
pub(crate) mod ready;
pub(crate) mod signal_driven;
pub(crate) mod signals;
mod socket;
mod source;
mod table;
pub(crate) mod tcp_info;
mod timer;
mod udp;

use crate::call::Call;
use crate::process::Process;
use alloc::rc::Rc;
use device::{Device, DeviceKind};
use linux_raw_sys::general::{O_ACCMODE, O_NONBLOCK, O_RDONLY, O_WRONLY};
pub(crate) use local::Local;
pub(crate) use message::Sender;
use node::OpenNode;
use nom_fs::{Errno, NodeType};
use open::Object;
pub(crate) use open::{Description, Stream};
pub(crate) use table::Descriptors;

/// A descriptor of an end of a terminal that was opened with these flags.
///
/// # Errors
/// `EMFILE`.
pub(crate) fn add_terminal_end(call: &Call<'_>, end: Rc<dyn Stream>, flags: u32) -> Result<u64, Errno> {
    let kept = flags & (O_ACCMODE | O_NONBLOCK);
    let description = Description::new(Object::Stream(end), kept);
    calls::make::add(call, description, flags).map(|descriptor| descriptor as u64)
}

/// What can be mapped of a descriptor.
pub(crate) enum Mappable {
    /// Zeros, as of `/dev/zero`.
    Zeros,
    /// A file.
    File(Rc<OpenNode>),
}

impl core::fmt::Debug for Mappable {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str(match self {
            Mappable::Zeros => "Zeros",
            Mappable::File(_) => "File",
        })
    }
}

impl Descriptors {
    /// Those of the first process: nothing to read, and the console to write to.
    pub(crate) fn first(process: u32) -> Descriptors {
        let console = |flags| {
            let device = Device::new(DeviceKind::Console, None);
            Description::new(Object::Stream(Rc::new(device)), flags)
        };
        let output = console(O_WRONLY);
        Descriptors::new(process, [console(O_RDONLY), output.clone(), output])
    }
}

impl Process {
    /// What a descriptor shows when it is mapped.
    ///
    /// # Errors
    /// `EBADF`, `EACCES`, `ENODEV`.
    pub(crate) fn mappable(&self, call: &Call<'_>, descriptor: i32) -> Result<Mappable, Errno> {
        let description = calls::get(call, descriptor)?;
        description.check_read().map_err(|_| Errno::EACCES)?;
        match &description.object {
            Object::Node(node) => {
                let kind = calls::with_vfs(call, |vfs, _| vfs.kind(node.node));
                if kind == NodeType::File { Ok(Mappable::File(node.clone())) } else { Err(Errno::ENODEV) }
            }
            Object::Stream(stream) if stream.is_zeros() => Ok(Mappable::Zeros),
            Object::Stream(_) => Err(Errno::ENODEV),
        }
    }
}
