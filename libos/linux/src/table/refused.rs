//! Calls that are refused on purpose.

use super::Row;
use linux_raw_sys::general as nr;

/// All of them.
pub const ROWS: &[Row] = &[
    Row::refused(nr::__NR_clone3, "clone3", "C libraries take `clone` instead"),
    Row::refused(nr::__NR_io_uring_setup, "io_uring_setup", "programs take `epoll` instead"),
    Row::refused(nr::__NR_io_uring_enter, "io_uring_enter", "programs take `epoll` instead"),
    Row::refused(nr::__NR_io_uring_register, "io_uring_register", "programs take `epoll` instead"),
    Row::refused(nr::__NR_rseq, "rseq", "C libraries do without"),
    Row::refused(nr::__NR_ptrace, "ptrace", "nobody looks into another process"),
    Row::refused(nr::__NR_bpf, "bpf", "there is no such machine in the library"),
    Row::refused(nr::__NR_perf_event_open, "perf_event_open", "nom counts by itself"),
    Row::refused(nr::__NR_seccomp, "seccomp", "the border is the application's"),
    Row::refused(nr::__NR_userfaultfd, "userfaultfd", "a process's page faults are the library's"),
    Row::refused(nr::__NR_modify_ldt, "modify_ldt", "there is no 32-bit code"),
    Row::refused(nr::__NR_membarrier, "membarrier", "programs that need it ask first"),
];
