//! Calls as text, from memory that is an array.

use super::show::{self, ShownCall};
use super::{Lines, TraceOptions};
use crate::table;
use alloc::string::String;
use alloc::vec::Vec;
use linux_raw_sys::general as abi;

/// Where the memory begins.
const BASE: u64 = 0x1000;

struct Memory(Vec<u8>);

impl Memory {
    fn put(&mut self, bytes: &[u8]) -> u64 {
        let at = BASE + self.0.len() as u64;
        self.0.extend_from_slice(bytes);
        at
    }

    fn shown(&self, number: u32, arguments: &[u64], result: i64) -> String {
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        let peek = |at: u64, bytes: &mut [u8]| {
            let start = at.checked_sub(BASE).map(|start| start as usize);
            let found = start.and_then(|start| self.0.get(start..start.checked_add(bytes.len())?));
            found.map(|found| bytes.copy_from_slice(found)).is_some()
        };
        let row = table::row(number.into());
        let call = ShownCall { row, arguments: all, memory: &peek, most: 8 };
        let (text, known) = call.beginning();
        let rest = call.rest(known, result);
        alloc::format!("{}({text}{rest})", show::name(row, number.into()))
    }
}

#[test]
fn usual_calls_are_shown_as_strace_shows_them() {
    let mut memory = Memory(Vec::new());
    let path = memory.put(b"/etc/pass\"wd\0");
    let text = memory.put(b"a\n\x011\x02xyz!");
    let at = abi::AT_FDCWD as u64;
    let flags = u64::from(abi::O_RDONLY | abi::O_CLOEXEC);
    let open = |flags: u64| memory.shown(abi::__NR_openat, &[at, path, flags, 0o644], 3);
    assert_eq!(open(flags), r#"openat(AT_FDCWD, "/etc/pass\"wd", O_RDONLY|O_CLOEXEC)"#);
    let made = u64::from(abi::O_WRONLY | abi::O_CREAT | abi::O_TRUNC);
    assert_eq!(open(made), r#"openat(AT_FDCWD, "/etc/pass\"wd", O_WRONLY|O_CREAT|O_TRUNC, 0644)"#);
    let write = memory.shown(abi::__NR_write, &[1, text, 9], 9);
    assert_eq!(write, r#"write(1, "a\n\0011\2xyz"..., 9)"#);
    assert_eq!(memory.shown(abi::__NR_write, &[1, 7, 9], -14), "write(1, 0x7, 9)");
    assert_eq!(memory.shown(abi::__NR_read, &[0, text, 100], 2), r#"read(0, "a\n", 100)"#);
    assert_eq!(memory.shown(abi::__NR_read, &[0, text, 100], -9), alloc::format!("read(0, {text:#x}, 100)"));
    let protection = u64::from(abi::PROT_READ | abi::PROT_WRITE);
    let mapping = u64::from(abi::MAP_PRIVATE | abi::MAP_ANONYMOUS) | 1 << 30;
    let map = memory.shown(abi::__NR_mmap, &[0, 4096, protection, mapping, u64::MAX, 0], 0);
    let kinds = "PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS|0x40000000";
    assert_eq!(map, alloc::format!("mmap(NULL, 4096, {kinds}, -1, NULL)"));
    let clone = u64::from(abi::CLONE_VM | abi::CLONE_VFORK | abi::SIGCHLD);
    assert_eq!(
        memory.shown(abi::__NR_clone, &[clone, 0, 0, 0, 0], 2),
        "clone(CLONE_VM|CLONE_VFORK|SIGCHLD, NULL, NULL, NULL, NULL)"
    );
    assert_eq!(memory.shown(400, &[1], -38), "syscall_0x190(0x1, NULL, NULL, NULL, NULL, NULL)");
}

#[test]
fn structures_are_shown_by_their_fields() {
    let mut memory = Memory(Vec::new());
    let inet = memory.put(&[2, 0, 0x1f, 0x90, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    let unix = memory.put(b"\x01\0/run/a\0");
    let length = memory.put(&16_u32.to_le_bytes());
    let loopback = r#"{sa_family=AF_INET, sin_port=htons(8080), sin_addr=inet_addr("127.0.0.1")}"#;
    assert_eq!(memory.shown(abi::__NR_bind, &[3, inet, 16], 0), alloc::format!("bind(3, {loopback}, 16)"));
    assert_eq!(
        memory.shown(abi::__NR_accept4, &[3, inet, length, u64::from(abi::O_CLOEXEC)], 4),
        alloc::format!("accept4(3, {loopback}, [16], SOCK_CLOEXEC)")
    );
    assert_eq!(
        memory.shown(abi::__NR_connect, &[3, unix, 9], 0),
        r#"connect(3, {sa_family=AF_UNIX, sun_path="/run/a"}, 9)"#
    );
    let event = memory.put(&[1, 0, 0, 0x80, 5, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(
        memory.shown(abi::__NR_epoll_ctl, &[4, 1, 3, event], 0),
        "epoll_ctl(4, EPOLL_CTL_ADD, 3, {events=EPOLLIN|EPOLLET, data=0x5})"
    );
    let polled = memory.put(&[3, 0, 0, 0, 1, 0, 0x10, 0]);
    assert_eq!(
        memory.shown(abi::__NR_poll, &[polled, 1, u64::MAX], 1),
        "poll([{fd=3, events=POLLIN, revents=POLLHUP}], 1, -1)"
    );
    let killed = memory.put(&9_u32.to_le_bytes());
    assert_eq!(
        memory.shown(abi::__NR_wait4, &[u64::MAX, killed, 1, 0], 7),
        "wait4(-1, [{WIFSIGNALED(s) && WTERMSIG(s) == SIGKILL}], WNOHANG, NULL)"
    );
    for (status, shown) in
        [(0x137f_u32, "WIFSTOPPED(s) && WSTOPSIG(s) == SIGSTOP"), (0xffff, "WIFCONTINUED(s)")]
    {
        let at = memory.put(&status.to_le_bytes());
        let wait = memory.shown(abi::__NR_wait4, &[7, at, 2, 0], 7);
        assert_eq!(wait, alloc::format!("wait4(7, [{{{shown}}}], WUNTRACED, NULL)"));
    }
    let set = memory.put(&(1_u64 << 16 | 1 << 1).to_le_bytes());
    assert_eq!(
        memory.shown(abi::__NR_rt_sigprocmask, &[0, set, 0, 8], 0),
        "rt_sigprocmask(SIG_BLOCK, [INT CHLD], NULL, 8)"
    );
    let strings = [path_pointer(&mut memory, b"a\0"), path_pointer(&mut memory, b"-b\0"), 0];
    let list: Vec<u8> = strings.iter().flat_map(|pointer| pointer.to_le_bytes()).collect();
    let list = memory.put(&list);
    let execute = memory.shown(abi::__NR_execve, &[strings[0], list, list], 0);
    assert_eq!(execute, alloc::format!(r#"execve("a", ["a", "-b"], {list:#x} /* 2 vars */)"#));
}

fn path_pointer(memory: &mut Memory, bytes: &[u8]) -> u64 {
    memory.put(bytes)
}

#[test]
fn whatever_is_in_registers_and_memory_is_shown() {
    let mut memory = Memory((0..=255).collect());
    memory.put(&[0xff; 256]);
    let values = [0, 1, BASE, BASE + 1, BASE + 250, u64::MAX, 1 << 63, u64::from(u32::MAX)];
    for row in table::all() {
        for value in values {
            for result in [0, 1, -1, i64::MAX] {
                let text =
                    memory.shown(row.number.into(), &[value, value, value, value, value, value], result);
                assert!(text.starts_with(row.name) && text.ends_with(')'), "{text}");
            }
        }
    }
}

#[test]
fn results_are_numbers_or_addresses() {
    let row = |number: u32| table::row(number.into());
    assert_eq!(show::result(row(abi::__NR_mmap), 0x7f00_0000_1000), "0x7f0000001000");
    assert_eq!(show::result(row(abi::__NR_read), 12), "12");
}

#[test]
fn lines_of_several_threads_do_not_mix() {
    let mut lines = Lines::default();
    lines.begin(1, "read(0");
    lines.begin(2, "getpid(");
    lines.end(2, "getpid", ") = 2");
    lines.end(1, "read", ", \"\", 1) = 0");
    lines.begin(1, "close(0");
    lines.end(1, "close", ") = 0");
    lines.begin(1, "wait4(-1");
    lines.whole(2, "+++ exited with 0 +++");
    let expected = "1 read(0 <unfinished ...>\n2 getpid() = 2\n1 <... read resumed>, \"\", 1) = 0\n\
                    1 close(0) = 0\n1 wait4(-1 <unfinished ...>\n2 +++ exited with 0 +++\n";
    assert_eq!(lines.text, expected);
}

#[test]
fn options_are_read_and_refused() {
    let some = TraceOptions::read(Some("0,257"), None, None).expect("they are numbers");
    assert!(some.has(0) && some.has(257) && !some.has(1) && some.has(1 << 40));
    let all = TraceOptions::read(None, Some("counts"), Some("0")).expect("they are right");
    assert!(all.has(1) && all.counts && all.most == 0);
    for (calls, style, string, said) in [
        (Some("read"), None, None, "numbers of calls are expected"),
        (Some("512"), None, None, "numbers of calls are expected"),
        (None, Some("x"), None, "lines or counts is expected"),
        (None, None, Some("-1"), "a number of bytes is expected"),
    ] {
        let error = TraceOptions::read(calls, style, string).expect_err(said);
        assert!(error.contains(said), "{error}");
    }
}
