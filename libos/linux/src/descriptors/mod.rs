//! Descriptors: what a process has open.

use crate::call::Call;
use crate::family::ProcessFamily;
use crate::memory::Contents;
use crate::process::Process;
use crate::table::SystemCall;
use alloc::rc::Rc;
use linux_raw_sys::general as abi;
use nom_fs::Errno;

/// These calls.
pub const ROWS: &[SystemCall] = &[
    SystemCall::partial(
        abi::__NR_write,
        "write",
        &["descriptor", "buffer", "length"],
        write,
        "to the console",
    ),
    SystemCall::partial(
        abi::__NR_writev,
        "writev",
        &["descriptor", "pieces", "count"],
        write_pieces,
        "to the console",
    ),
];

/// What can be mapped of a descriptor.
pub enum Mappable {
    /// Zeros, as of `/dev/zero`.
    Zeros,
    /// A file.
    File(Rc<dyn Contents>),
}

impl core::fmt::Debug for Mappable {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str(match self {
            Mappable::Zeros => "Zeros",
            Mappable::File(_) => "File",
        })
    }
}

/// The descriptors of a process.
#[derive(Debug)]
pub struct Descriptors;

impl Descriptors {
    /// Those of the first process.
    pub fn first(_: &ProcessFamily) -> Descriptors {
        Descriptors
    }

    /// Those of a child.
    #[must_use]
    pub fn duplicate(&self) -> Descriptors {
        Descriptors
    }

    /// Closes what a new program does not get.
    pub fn close_on_exec(&self) {}

    /// Closes everything.
    pub fn close_all(&self) {}
}

impl Process {
    /// What a descriptor shows when it is mapped.
    ///
    /// # Errors
    /// `EBADF`, `EACCES`, `ENODEV`.
    pub fn mappable(&self, _: &Call<'_>, _: i32) -> Result<Mappable, Errno> {
        Err(Errno::EBADF)
    }
}

fn write(call: &Call<'_>) -> Result<u64, Errno> {
    let [descriptor, buffer, length, ..] = call.arguments;
    if ![1, 2].contains(&descriptor) {
        return Err(Errno::EBADF);
    }
    put(call, buffer, length)
}

fn put(call: &Call<'_>, buffer: u64, length: u64) -> Result<u64, Errno> {
    let mut piece = [0; 256];
    let mut done = 0;
    while done < length {
        let count = (length - done).min(256) as usize;
        call.memory().read(buffer + done, &mut piece[..count])?;
        nom_app::print!("{}", alloc::string::String::from_utf8_lossy(&piece[..count]));
        done += count as u64;
    }
    Ok(length)
}

fn write_pieces(call: &Call<'_>) -> Result<u64, Errno> {
    let [descriptor, pieces, count, ..] = call.arguments;
    if ![1, 2].contains(&descriptor) {
        return Err(Errno::EBADF);
    }
    let mut total = 0;
    for index in 0..count.min(1024) {
        let [buffer, length]: [u64; 2] = call.memory().read_value(pieces + 16 * index)?;
        total += put(call, buffer, length)?;
    }
    Ok(total)
}
