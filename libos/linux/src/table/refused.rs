//! Calls that are refused on purpose.

use super::SystemCall;
use linux_raw_sys::general as nr;

/// All of them.
pub const ROWS: &[SystemCall] = &[
    SystemCall::refused(nr::__NR_clone3, "clone3", "C libraries take `clone` instead"),
    SystemCall::refused(nr::__NR_io_uring_setup, "io_uring_setup", "programs take `epoll` instead"),
    SystemCall::refused(nr::__NR_io_uring_enter, "io_uring_enter", "programs take `epoll` instead"),
    SystemCall::refused(nr::__NR_io_uring_register, "io_uring_register", "programs take `epoll` instead"),
    SystemCall::refused(nr::__NR_io_setup, "io_setup", "programs take threads instead"),
    SystemCall::refused(nr::__NR_rseq, "rseq", "C libraries do without"),
    SystemCall::refused(nr::__NR_ptrace, "ptrace", "nobody looks into another process"),
    SystemCall::refused(nr::__NR_bpf, "bpf", "there is no such machine in the library"),
    SystemCall::refused(nr::__NR_perf_event_open, "perf_event_open", "nom counts by itself"),
    SystemCall::refused(nr::__NR_seccomp, "seccomp", "the border is the application's"),
    SystemCall::refused(nr::__NR_userfaultfd, "userfaultfd", "a process's page faults are the library's"),
    SystemCall::refused(nr::__NR_unshare, "unshare", "there is one namespace of each kind"),
    SystemCall::refused(nr::__NR_setns, "setns", "there is one namespace of each kind"),
    SystemCall::refused(nr::__NR_modify_ldt, "modify_ldt", "there is no 32-bit code"),
    SystemCall::refused(nr::__NR_pkey_alloc, "pkey_alloc", "programs do without keys"),
];
