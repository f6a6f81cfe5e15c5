//! What the arguments of calls are, so that they can be shown: of the usual calls one by one, of others by
//! the names that the table of calls has for them.

use super::names::{self, Names};
use linux_raw_sys::general as abi;

/// What an argument is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    /// A number of 64 bits with a sign.
    Int,
    /// An `int`.
    Int32,
    /// An address, or bits.
    Hex,
    /// A file's mode.
    Mode,
    /// A mode that counts only if the flags before it make a file.
    ModeIfMade,
    /// A descriptor, or AT_FDCWD.
    Descriptor,
    /// A string that ends with a zero.
    Path,
    /// So many bytes as this argument says.
    Bytes(usize),
    /// Bytes that the call leaves there: as many as its result.
    BytesOut,
    /// Pieces that are written: as many as the next argument.
    Pieces,
    /// How a file is opened.
    Open,
    /// One of several.
    One(Names),
    /// Several of several.
    Flags(Names),
    /// A futex's operation, with its flags.
    Futex,
    /// A socket's kind, with its flags.
    Socket,
    /// A socket's option, of the level in the argument before.
    SocketOption,
    /// A signal.
    Signal,
    /// A set of signals.
    Signals,
    /// What is done about a signal.
    Action,
    /// Flags of clone and the signal at the end.
    Clone,
    /// Strings: arguments of a program.
    Strings,
    /// Variables of a program, which are counted.
    Variables,
    /// A socket's address; its bytes are the next argument.
    Address,
    /// An address that the call leaves there, with its bytes at the next argument.
    AddressOut,
    /// A file's status that the call leaves there.
    StatusOut,
    /// Two descriptors that the call leaves there.
    PairOut,
    /// How a child ended, which the call leaves there.
    EndOut,
    /// Events that the call leaves there: as many as its result.
    EventsOut,
    /// What is waited for of a descriptor.
    Event,
    /// Descriptors that are waited for; so many as the next argument says.
    Polled,
    /// Seconds and nanoseconds.
    Time,
    /// Seconds and nanoseconds that the call leaves there.
    TimeOut,
    /// An `int` that the call leaves there.
    Int32Out,
    /// An `int` that is there.
    Int32In,
}

use Shape::{
    Action, Address, AddressOut, Bytes, BytesOut, Clone as CloneFlags, Descriptor, EndOut, Event, EventsOut,
    Flags, Futex, Hex, Int, Int32, Int32In, Int32Out, Mode, ModeIfMade, One, Open, PairOut, Path, Pieces,
    Polled, Signal, Signals, Socket, SocketOption, StatusOut, Strings, Time, TimeOut, Variables,
};

impl Shape {
    /// Whether it is known only when the call has returned.
    pub fn is_left_there(self) -> bool {
        matches!(self, BytesOut | AddressOut | StatusOut | PairOut | EndOut | EventsOut | TimeOut | Int32Out)
            || matches!(self, Polled)
    }
}

/// Of calls by their numbers.
const USUAL: &[(u32, &[Shape])] = &[
    (abi::__NR_read, &[Descriptor, BytesOut, Int]),
    (abi::__NR_pread64, &[Descriptor, BytesOut, Int, Int]),
    (abi::__NR_write, &[Descriptor, Bytes(2), Int]),
    (abi::__NR_pwrite64, &[Descriptor, Bytes(2), Int, Int]),
    (abi::__NR_writev, &[Descriptor, Pieces, Int]),
    (abi::__NR_open, &[Path, Open, ModeIfMade]),
    (abi::__NR_openat, &[Descriptor, Path, Open, ModeIfMade]),
    (abi::__NR_access, &[Path, Flags(names::ACCESSIBLE)]),
    (abi::__NR_faccessat, &[Descriptor, Path, Flags(names::ACCESSIBLE)]),
    (abi::__NR_faccessat2, &[Descriptor, Path, Flags(names::ACCESSIBLE), Flags(names::AT)]),
    (abi::__NR_stat, &[Path, StatusOut]),
    (abi::__NR_lstat, &[Path, StatusOut]),
    (abi::__NR_fstat, &[Descriptor, StatusOut]),
    (abi::__NR_newfstatat, &[Descriptor, Path, StatusOut, Flags(names::AT)]),
    (abi::__NR_readlink, &[Path, BytesOut, Int]),
    (abi::__NR_readlinkat, &[Descriptor, Path, BytesOut, Int]),
    (abi::__NR_getcwd, &[BytesOut, Int]),
    (abi::__NR_unlinkat, &[Descriptor, Path, Flags(names::AT)]),
    (abi::__NR_lseek, &[Descriptor, Int, One(names::WHENCE)]),
    (abi::__NR_mmap, &[Hex, Int, Flags(names::PROTECTION), Flags(names::MAP), Descriptor, Hex]),
    (abi::__NR_mprotect, &[Hex, Int, Flags(names::PROTECTION)]),
    (abi::__NR_munmap, &[Hex, Int]),
    (abi::__NR_mremap, &[Hex, Int, Int, Flags(names::REMAP), Hex]),
    (abi::__NR_madvise, &[Hex, Int, One(names::ADVICE)]),
    (abi::__NR_brk, &[Hex]),
    (abi::__NR_clone, &[CloneFlags, Hex, Hex, Hex, Hex]),
    (abi::__NR_execve, &[Path, Strings, Variables]),
    (abi::__NR_execveat, &[Descriptor, Path, Strings, Variables, Hex]),
    (abi::__NR_exit, &[Int32]),
    (abi::__NR_exit_group, &[Int32]),
    (abi::__NR_wait4, &[Int32, EndOut, Flags(names::WAIT), Hex]),
    (abi::__NR_kill, &[Int32, Signal]),
    (abi::__NR_tkill, &[Int32, Signal]),
    (abi::__NR_tgkill, &[Int32, Int32, Signal]),
    (abi::__NR_rt_sigaction, &[Signal, Action, Hex, Int]),
    (abi::__NR_rt_sigprocmask, &[One(names::HOW), Signals, Hex, Int]),
    (abi::__NR_rt_sigsuspend, &[Signals, Int]),
    (abi::__NR_futex, &[Hex, Futex, Int32, Hex, Hex, Hex]),
    (abi::__NR_clock_gettime, &[One(names::CLOCKS), TimeOut]),
    (abi::__NR_clock_nanosleep, &[One(names::CLOCKS), Int32, Time, Hex]),
    (abi::__NR_nanosleep, &[Time, Hex]),
    (abi::__NR_epoll_create1, &[Flags(names::EPOLL_FLAGS)]),
    (abi::__NR_epoll_ctl, &[Descriptor, One(names::EPOLL), Descriptor, Event]),
    (abi::__NR_epoll_wait, &[Descriptor, EventsOut, Int32, Int32]),
    (abi::__NR_epoll_pwait, &[Descriptor, EventsOut, Int32, Int32, Signals, Int]),
    (abi::__NR_poll, &[Polled, Int32, Int32]),
    (abi::__NR_ppoll, &[Polled, Int32, Hex, Signals, Int]),
    (abi::__NR_eventfd2, &[Int32, Flags(names::EVENT_FLAGS)]),
    (abi::__NR_pipe, &[PairOut]),
    (abi::__NR_pipe2, &[PairOut, Flags(names::CLOEXEC)]),
    (abi::__NR_dup3, &[Descriptor, Descriptor, Flags(names::CLOEXEC)]),
    (abi::__NR_socket, &[One(names::FAMILIES), Socket, Int32]),
    (abi::__NR_socketpair, &[One(names::FAMILIES), Socket, Int32, PairOut]),
    (abi::__NR_bind, &[Descriptor, Address, Int32]),
    (abi::__NR_connect, &[Descriptor, Address, Int32]),
    (abi::__NR_listen, &[Descriptor, Int32]),
    (abi::__NR_accept, &[Descriptor, AddressOut, Int32Out]),
    (abi::__NR_accept4, &[Descriptor, AddressOut, Int32Out, Flags(names::KIND_FLAGS)]),
    (abi::__NR_getsockname, &[Descriptor, AddressOut, Int32Out]),
    (abi::__NR_getpeername, &[Descriptor, AddressOut, Int32Out]),
    (abi::__NR_sendto, &[Descriptor, Bytes(2), Int, Flags(names::MESSAGE), Address, Int32]),
    (abi::__NR_recvfrom, &[Descriptor, BytesOut, Int, Flags(names::MESSAGE), AddressOut, Int32Out]),
    (abi::__NR_sendmsg, &[Descriptor, Hex, Flags(names::MESSAGE)]),
    (abi::__NR_recvmsg, &[Descriptor, Hex, Flags(names::MESSAGE)]),
    (abi::__NR_shutdown, &[Descriptor, One(names::SHUTDOWN)]),
    (abi::__NR_setsockopt, &[Descriptor, One(names::LEVELS), SocketOption, Int32In, Int32]),
    (abi::__NR_getsockopt, &[Descriptor, One(names::LEVELS), SocketOption, Int32Out, Int32Out]),
    (abi::__NR_fcntl, &[Descriptor, One(names::FCNTL), Hex]),
    (abi::__NR_ioctl, &[Descriptor, One(names::IOCTL), Hex]),
    (abi::__NR_flock, &[Descriptor, Flags(names::LOCK)]),
    (abi::__NR_prlimit64, &[Int32, One(names::RESOURCES), Hex, Hex]),
    (abi::__NR_getrlimit, &[One(names::RESOURCES), Hex]),
    (abi::__NR_setrlimit, &[One(names::RESOURCES), Hex]),
    (abi::__NR_arch_prctl, &[One(names::ARCH), Hex]),
    (abi::__NR_prctl, &[One(names::PRCTL), Hex, Hex, Hex, Hex]),
    (abi::__NR_rename, &[Path, Path]),
    (abi::__NR_renameat, &[Descriptor, Path, Descriptor, Path]),
    (abi::__NR_renameat2, &[Descriptor, Path, Descriptor, Path, Hex]),
    (abi::__NR_link, &[Path, Path]),
    (abi::__NR_memfd_create, &[Path, Hex]),
    (abi::__NR_dup2, &[Descriptor, Descriptor]),
    (abi::__NR_getrandom, &[BytesOut, Int, Flags(names::RANDOM)]),
];

/// What the arguments of a call are, if it is a usual one.
pub(super) fn usual(number: u16) -> Option<&'static [Shape]> {
    USUAL.iter().find(|(usual, _)| *usual == u32::from(number)).map(|(_, shapes)| *shapes)
}

/// What an argument of this name is, of a call that is none of the usual ones.
pub(super) fn by_name(name: &str) -> Shape {
    match name {
        "path" | "new_path" | "target" => Path,
        "descriptor" | "directory" | "other" | "from" | "to" => Descriptor,
        "mode" => Mode,
        "signal" => Signal,
        "count" | "length" | "offset" | "size" | "process" | "thread" | "user" | "group" => Int,
        _ => Hex,
    }
}
