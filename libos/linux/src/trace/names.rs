//! Names of flags and of other numbers, as Linux's headers and strace have them.

use linux_raw_sys::{general as abi, ioctl, net, prctl};

/// Numbers and their names.
pub(super) type Names = &'static [(u64, &'static str)];

macro_rules! names {
    ($of:ident: $($name:ident)*) => {
        &[$(($of::$name as u32 as u64, stringify!($name))),*]
    };
}

pub(super) const ACCESS: Names = names![abi: O_RDONLY O_WRONLY O_RDWR];
pub(super) const OPEN: Names = names![abi:
    O_CREAT O_EXCL O_NOCTTY O_TRUNC O_APPEND O_NONBLOCK O_SYNC O_DSYNC O_DIRECT O_LARGEFILE O_TMPFILE
    O_DIRECTORY O_NOFOLLOW O_NOATIME O_CLOEXEC O_PATH];
pub(super) const AT: Names = names![abi:
    AT_SYMLINK_NOFOLLOW AT_REMOVEDIR AT_SYMLINK_FOLLOW AT_EMPTY_PATH AT_NO_AUTOMOUNT];
pub(super) const ACCESSIBLE: Names = names![abi: F_OK X_OK W_OK R_OK];
pub(super) const PROTECTION: Names = names![abi: PROT_NONE PROT_READ PROT_WRITE PROT_EXEC];
pub(super) const MAP: Names = names![abi:
    MAP_SHARED MAP_PRIVATE MAP_FIXED MAP_ANONYMOUS MAP_GROWSDOWN MAP_DENYWRITE MAP_LOCKED MAP_NORESERVE
    MAP_POPULATE MAP_STACK MAP_HUGETLB MAP_FIXED_NOREPLACE];
pub(super) const REMAP: Names = names![abi: MREMAP_MAYMOVE MREMAP_FIXED MREMAP_DONTUNMAP];
pub(super) const ADVICE: Names = names![abi:
    MADV_NORMAL MADV_RANDOM MADV_SEQUENTIAL MADV_WILLNEED MADV_DONTNEED MADV_FREE MADV_DONTFORK
    MADV_HUGEPAGE MADV_NOHUGEPAGE MADV_DONTDUMP];
pub(super) const WHENCE: Names = names![abi: SEEK_SET SEEK_CUR SEEK_END SEEK_DATA SEEK_HOLE];
pub(super) const CLONE: Names = names![abi:
    CLONE_VM CLONE_FS CLONE_FILES CLONE_SIGHAND CLONE_VFORK CLONE_PARENT CLONE_THREAD CLONE_SYSVSEM
    CLONE_SETTLS CLONE_PARENT_SETTID CLONE_CHILD_CLEARTID CLONE_DETACHED CLONE_CHILD_SETTID];
pub(super) const WAIT: Names = names![abi: WNOHANG WUNTRACED WEXITED WCONTINUED WNOWAIT];
pub(super) const FUTEX: Names = names![abi:
    FUTEX_WAIT FUTEX_WAKE FUTEX_REQUEUE FUTEX_CMP_REQUEUE FUTEX_WAKE_OP FUTEX_LOCK_PI FUTEX_UNLOCK_PI
    FUTEX_TRYLOCK_PI FUTEX_WAIT_BITSET FUTEX_WAKE_BITSET];
pub(super) const FUTEX_FLAGS: Names = names![abi: FUTEX_PRIVATE_FLAG FUTEX_CLOCK_REALTIME];
pub(super) const CLOCKS: Names = names![abi:
    CLOCK_REALTIME CLOCK_MONOTONIC CLOCK_PROCESS_CPUTIME_ID CLOCK_THREAD_CPUTIME_ID CLOCK_MONOTONIC_RAW
    CLOCK_REALTIME_COARSE CLOCK_MONOTONIC_COARSE CLOCK_BOOTTIME];
pub(super) const EPOLL: Names = names![abi: EPOLL_CTL_ADD EPOLL_CTL_DEL EPOLL_CTL_MOD];
pub(super) const EVENTS: Names = &[
    (1, "EPOLLIN"),
    (2, "EPOLLPRI"),
    (4, "EPOLLOUT"),
    (8, "EPOLLERR"),
    (0x10, "EPOLLHUP"),
    (0x2000, "EPOLLRDHUP"),
    (0x1000_0000, "EPOLLEXCLUSIVE"),
    (0x4000_0000, "EPOLLONESHOT"),
    (0x8000_0000, "EPOLLET"),
];
pub(super) const POLL: Names = &[
    (1, "POLLIN"),
    (2, "POLLPRI"),
    (4, "POLLOUT"),
    (8, "POLLERR"),
    (0x10, "POLLHUP"),
    (0x20, "POLLNVAL"),
    (0x2000, "POLLRDHUP"),
];
pub(super) const CLOEXEC: Names =
    &[(abi::O_CLOEXEC as u64, "O_CLOEXEC"), (abi::O_NONBLOCK as u64, "O_NONBLOCK")];
pub(super) const EPOLL_FLAGS: Names = names![abi: EPOLL_CLOEXEC];
pub(super) const EVENT_FLAGS: Names =
    &[(1, "EFD_SEMAPHORE"), (abi::O_CLOEXEC as u64, "EFD_CLOEXEC"), (abi::O_NONBLOCK as u64, "EFD_NONBLOCK")];
pub(super) const FAMILIES: Names = names![net: AF_UNSPEC AF_UNIX AF_INET AF_INET6 AF_NETLINK AF_PACKET];
pub(super) const KINDS: Names = names![net: SOCK_STREAM SOCK_DGRAM SOCK_RAW SOCK_SEQPACKET];
pub(super) const KIND_FLAGS: Names =
    &[(abi::O_CLOEXEC as u64, "SOCK_CLOEXEC"), (abi::O_NONBLOCK as u64, "SOCK_NONBLOCK")];
pub(super) const MESSAGE: Names = &[
    (1, "MSG_OOB"),
    (2, "MSG_PEEK"),
    (4, "MSG_DONTROUTE"),
    (8, "MSG_CTRUNC"),
    (0x20, "MSG_TRUNC"),
    (0x40, "MSG_DONTWAIT"),
    (0x100, "MSG_WAITALL"),
    (0x4000, "MSG_NOSIGNAL"),
    (0x8000, "MSG_MORE"),
    (0x1_0000, "MSG_WAITFORONE"),
    (0x4000_0000, "MSG_CMSG_CLOEXEC"),
];
pub(super) const SHUTDOWN: Names = &[(0, "SHUT_RD"), (1, "SHUT_WR"), (2, "SHUT_RDWR")];
pub(super) const LEVELS: Names =
    &[(0, "SOL_IP"), (1, "SOL_SOCKET"), (6, "SOL_TCP"), (17, "SOL_UDP"), (41, "SOL_IPV6")];
pub(super) const SOCKET_OPTIONS: Names = names![net:
    SO_REUSEADDR SO_TYPE SO_ERROR SO_DONTROUTE SO_BROADCAST SO_SNDBUF SO_RCVBUF SO_KEEPALIVE SO_OOBINLINE
    SO_PRIORITY SO_LINGER SO_REUSEPORT SO_PASSCRED SO_PEERCRED SO_RCVLOWAT SO_SNDLOWAT SO_ACCEPTCONN
    SO_PROTOCOL SO_DOMAIN SO_BUSY_POLL SO_INCOMING_CPU SO_ZEROCOPY SO_SNDBUFFORCE SO_RCVBUFFORCE];
pub(super) const TCP_OPTIONS: Names = names![net:
    TCP_NODELAY TCP_MAXSEG TCP_CORK TCP_KEEPIDLE TCP_KEEPINTVL TCP_KEEPCNT TCP_SYNCNT TCP_DEFER_ACCEPT
    TCP_INFO TCP_QUICKACK TCP_CONGESTION TCP_USER_TIMEOUT TCP_FASTOPEN];
pub(super) const FCNTL: Names = names![abi:
    F_DUPFD F_GETFD F_SETFD F_GETFL F_SETFL F_GETLK F_SETLK F_SETLKW F_SETOWN F_GETOWN F_DUPFD_CLOEXEC
    F_SETPIPE_SZ F_GETPIPE_SZ F_ADD_SEALS F_GET_SEALS F_OFD_SETLK F_OFD_SETLKW];
pub(super) const IOCTL: Names = &[
    (ioctl::TCGETS as u64, "TCGETS"),
    (ioctl::TCSETS as u64, "TCSETS"),
    (ioctl::TIOCGWINSZ as u64, "TIOCGWINSZ"),
    (ioctl::TIOCGPGRP as u64, "TIOCGPGRP"),
    (ioctl::FIONREAD as u64, "FIONREAD"),
    (ioctl::FIONBIO as u64, "FIONBIO"),
    (ioctl::FIOCLEX as u64, "FIOCLEX"),
];
pub(super) const LOCK: Names = names![abi: LOCK_SH LOCK_EX LOCK_NB LOCK_UN];
pub(super) const HOW: Names = names![abi: SIG_BLOCK SIG_UNBLOCK SIG_SETMASK];
pub(super) const RESOURCES: Names = names![abi:
    RLIMIT_CPU RLIMIT_FSIZE RLIMIT_DATA RLIMIT_STACK RLIMIT_CORE RLIMIT_RSS RLIMIT_NPROC RLIMIT_NOFILE
    RLIMIT_MEMLOCK RLIMIT_AS RLIMIT_LOCKS RLIMIT_SIGPENDING RLIMIT_MSGQUEUE RLIMIT_NICE];
pub(super) const ARCH: Names = &[(0x1001, "ARCH_SET_GS"), (0x1002, "ARCH_SET_FS"), (0x1003, "ARCH_GET_FS")];
pub(super) const PRCTL: Names = names![prctl:
    PR_SET_PDEATHSIG PR_GET_DUMPABLE PR_SET_DUMPABLE PR_SET_KEEPCAPS PR_SET_NAME PR_GET_NAME
    PR_CAPBSET_READ PR_CAPBSET_DROP PR_SET_NO_NEW_PRIVS PR_SET_CHILD_SUBREAPER];
pub(super) const RANDOM: Names = &[(1, "GRND_NONBLOCK"), (2, "GRND_RANDOM")];
const SIGNALS: [&str; 32] = [
    "0",
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
];

/// A signal's name, if it is not one of those that have numbers alone.
pub(super) fn signal(number: u64) -> Option<&'static str> {
    SIGNALS.get(usize::try_from(number).ok()?).copied()
}
