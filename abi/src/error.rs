//! The one error vocabulary of the border.
//!
//! A system call returns two registers: `rax` holds zero or an [`Error`], `rdx` the value. A call that
//! returns an error has changed nothing.

macro_rules! errors {
    ($($(#[doc = $doc:literal])+ $code:literal $name:ident,)+) => {
        /// Why a system call did nothing.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u64)]
        pub enum Error { $($(#[doc = $doc])+ $name = $code,)+ }

        impl Error {
            /// Every error with its documentation, in order of its code.
            pub const ALL: &'static [(Error, &'static str)] =
                &[$((Error::$name, concat!($($doc),+)),)+];

            /// The error with this code, if there is one.
            pub const fn from_code(code: u64) -> Option<Error> {
                match code { $($code => Some(Error::$name),)+ _ => None }
            }

            /// The error's name as it is written here.
            pub const fn name(self) -> &'static str {
                match self { $(Error::$name => stringify!($name),)+ }
            }
        }
    };
}

impl core::fmt::Display for Error {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str(self.name())
    }
}

impl core::error::Error for Error {}

errors! {
    /// No system call has this number.
    1 UnknownSyscall,
    /// An argument is outside the values that the call documents.
    2 InvalidArgument,
    /// An address, length or frame number is not a multiple of the page size in question.
    3 Misaligned,
    /// Address plus length, or frame plus count, leaves the range of addresses.
    4 Overflow,
    /// The range is not in the part of the address space that applications manage.
    5 OutsideUserSpace,
    /// A pointer argument names memory that the application cannot read, or cannot write, itself.
    6 BadPointer,
    /// The application does not hold this grant.
    7 NotGranted,
    /// The grant is still mapped, so it cannot be released.
    8 StillMapped,
    /// Something is mapped there already.
    9 AlreadyMapped,
    /// Nothing is mapped there, or a larger page would have to be split.
    10 NotMapped,
    /// Memory can be writable or executable, never both.
    11 WriteExecute,
    /// The machine has no free frames of that size, colour or contiguity.
    12 OutOfMemory,
    /// The application's own memory cap would be exceeded.
    13 OverMemoryCap,
    /// The application holds as many cores as its cap allows, or one on every core there is.
    14 NoCore,
    /// The application's last core cannot be released; it can exit.
    15 LastCore,
    /// There is no device with that index on the board, or it has left.
    16 NoDevice,
    /// Another application owns the device, or the manifest does not give this one the device or the right.
    17 NotPermitted,
    /// The device has no such base address register, or the range is outside it or holds the MSI-X table.
    18 NoSuchRegion,
    /// The device has no such MSI-X vector, or no free interrupt vector is left on this core.
    19 NoSuchInterrupt,
    /// The application has no channel with that number.
    20 NoChannel,
    /// There is no application with that index.
    21 NoApplication,
    /// The application named is already running, or is not running; or the device does not stop.
    22 WrongState,
    /// This kind of call is legal only while handling an upcall, or only outside of one.
    23 WrongContext,
    /// The kernel's own tables are full.
    24 TableFull,
}

/// The two registers that a system call returns, as one value.
pub type Result<T> = core::result::Result<T, Error>;

/// Register encoding of a result: `(rax, rdx)`.
pub const fn encode(result: Result<u64>) -> (u64, u64) {
    match result {
        Ok(value) => (0, value),
        Err(error) => (error as u64, 0),
    }
}

/// Inverse of [`encode`]; an error code that this build does not know reads as [`Error::InvalidArgument`].
pub const fn decode(rax: u64, rdx: u64) -> Result<u64> {
    match Error::from_code(rax) {
        None if rax == 0 => Ok(rdx),
        None => Err(Error::InvalidArgument),
        Some(error) => Err(error),
    }
}
