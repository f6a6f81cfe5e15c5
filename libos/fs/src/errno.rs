//! What can go wrong, by Linux's names.

use core::fmt;
use linux_raw_sys::errno;

/// Why a call did nothing: one of Linux's error numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(u16);

macro_rules! errors {
    ($($name:ident)*) => {
        impl Errno {
            $(
                #[doc = concat!("Linux's `", stringify!($name), "`.")]
                pub const $name: Errno = Errno(errno::$name as u16);
            )*

            /// Its name, if it is one that nom says.
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $(Errno::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

errors! {
    EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT ENOTBLK EBUSY
    EEXIST
    EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG ENOSPC ESPIPE EROFS EMLINK EPIPE
    EDOM
    ENOMSG EIDRM
    ERANGE EDEADLK ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY ELOOP ENODATA EPROTO EOVERFLOW EBADFD ENOTSOCK
    EDESTADDRREQ EMSGSIZE EPROTOTYPE ENOPROTOOPT EPROTONOSUPPORT ESOCKTNOSUPPORT EOPNOTSUPP EAFNOSUPPORT
    EADDRINUSE EADDRNOTAVAIL ENETUNREACH ECONNABORTED ECONNRESET ENOBUFS EISCONN ENOTCONN ETIMEDOUT
    ECONNREFUSED ETOOMANYREFS
    EHOSTUNREACH EALREADY EINPROGRESS ESTALE ECANCELED EOWNERDEAD ENOTRECOVERABLE
}

impl Errno {
    /// The one of a number that somebody else says, if it can be one.
    pub fn from_code(number: u32) -> Option<Errno> {
        const MAX: u32 = 4095;
        (1..=MAX).contains(&number).then_some(Errno(number as u16))
    }

    /// The number, as `errno` has it.
    pub fn code(self) -> i32 {
        i32::from(self.0)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => out.write_str(name),
            None => write!(out, "errno {}", self.0),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, out)
    }
}

impl core::error::Error for Errno {}
