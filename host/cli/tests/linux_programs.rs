//! Unmodified programs of this computer, in machines: docs/linux.md.

mod common;

use common::{PATIENCE, Site, ask, free_port, said};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Debian's, from the package of this name.
const MEMCACHED: &str = "/usr/bin/memcached";
/// Bytes of a file, more than any image has.
const LARGE_BYTES: u64 = 300 << 20;
/// What is asked of it, and what every memcached answers.
const ASKED: &[u8] = b"set nom 7 0 5\r\nearns\r\nget nom\r\nincr nom 1\r\n\
                       set count 0 0 2\r\n41\r\nincr count 1\r\nquit\r\n";
const ANSWERED: &str = "STORED\r\nVALUE nom 7 5\r\nearns\r\nEND\r\n\
                        CLIENT_ERROR cannot increment or decrement non-numeric value\r\n\
                        STORED\r\n42\r\n";

/// Runs a program to its end.
fn run(words: &[&str]) -> (Option<i32>, String) {
    let site = Site::new();
    let output = site.nom("run -m 256M").args(words).output().expect("it starts");
    (output.status.code(), said(&output))
}

#[test]
fn a_shell_computes_and_its_status_is_the_machines() {
    let script = "read line </etc/passwd; echo first $line; echo seven $((3 + 4)) >/tmp/it; \
                  while read a b; do echo $b $a; done </tmp/it; exit 3";
    let (status, said) = run(&["/bin/dash", "--", "-c", script]);
    assert_eq!(status, Some(3), "{said}");
    assert!(said.contains("7 seven"), "{said}");
    assert!(said.contains("first root:x:0:0:"), "{said}");
}

#[test]
fn a_shell_runs_pipelines_and_waits_for_its_children() {
    let script = "ls / | cat | wc -l; (exit 7); echo child $?; x=1; (x=2; echo inner $x); echo outer $x; \
                  sleep 30 & kill -9 $!; wait $!; echo killed $?; seen=$(echo sub | tr a-z A-Z); echo $seen; \
                  while :; do :; done & echo alive; sleep 0.1; kill $!; wait $!; echo stopped $?; \
                  sleep 30 & exit 4";
    let included = ["/bin/ls", "/bin/cat", "/usr/bin/wc", "/usr/bin/tr", "/bin/sleep"];
    let mut words: Vec<_> = included.iter().flat_map(|path| ["--include", path]).collect();
    words.extend(["/bin/dash", "--", "-c", script]);
    let (status, said) = run(&words);
    assert_eq!(status, Some(4), "{said}");
    for expected in
        ["child 7\n", "inner 2\n", "outer 1\n", "killed 137\n", "SUB\n", "alive\n", "stopped 143\n"]
    {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    assert!(said.contains("the first process (dash) has ended, and the machine with it"), "{said}");
    assert!(said.contains("); a server is to stay in the foreground"), "{said}");
    let lines: Vec<&str> = said.lines().collect();
    let counted = lines.iter().position(|line| *line == "child 7").map(|at| lines[at - 1]);
    assert!(counted.and_then(|count| count.parse::<u32>().ok()).is_some_and(|count| count > 5), "{said}");
}

/// One static program that is all of them: its shell calls itself by `/proc/self/exe`.
#[test]
fn busybox_runs_a_pipeline_of_its_own_applets() {
    let busybox = "/bin/busybox";
    if !Path::new(busybox).exists() {
        eprintln!("skipped: there is no {busybox}: apt-get install busybox-static");
        return;
    }
    let script = "seq 1 1000 | awk '{s += $1} END {print s}'; echo nom | md5sum | cut -c1-8; \
                  mkdir /tmp/a; echo b >/tmp/a/b; tar -C /tmp -c a | tar -t; exit 5";
    let (status, said) = run(&[busybox, "--", "sh", "-c", script]);
    assert_eq!(status, Some(5), "{said}");
    assert!(said.contains("\n500500\n"), "{said}");
    assert!(said.contains("\na/b\n"), "{said}");
    assert!(said.contains("\n8cad4fee\n"), "{said}");
}

/// Far more files than the machine has memory: what nobody reads is never there.
#[test]
fn a_root_larger_than_the_machine_is_read_on_demand() {
    let busybox = "/bin/busybox";
    if !Path::new(busybox).exists() {
        eprintln!("skipped: there is no {busybox}: apt-get install busybox-static");
        return;
    }
    let root = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(root.path().join("bin")).expect("made");
    std::fs::copy(busybox, root.path().join("bin/busybox")).expect("copied");
    let mut large = std::fs::File::create(root.path().join("large")).expect("made");
    large.set_len(LARGE_BYTES).expect("grown");
    large.seek(SeekFrom::End(-4)).and_then(|_| large.write_all(b"last")).expect("written");
    let script = "wc -c </large; tail -c 4 /large; echo; \
                  cp /bin/busybox /tmp/b; cmp /tmp/b /bin/busybox && echo same; \
                  head -c 1048576 /large | md5sum; echo more >>/large; tail -c 9 /large; exit 6";
    let site = Site::new();
    let mut command = site.nom("run -m 64M --root");
    let output =
        command.arg(root.path()).args([busybox, "--", "sh", "-c", script]).output().expect("it starts");
    let said = said(&output);
    assert_eq!(output.status.code(), Some(6), "{said}");
    for expected in [
        &format!("\n{LARGE_BYTES}\n"),
        "\nlast\n",
        "\nsame\n",
        "\nb6d81b360a5672d80c27430f39153e2c  -\n",
        "\nlastmore\n",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

#[test]
fn bash_runs_pipelines_and_substitutes_processes() {
    let script = "for i in 1 2 3; do echo $i; done | sort -r | (read most; echo most $most); \
                  printf -v padded %05d 42; echo padded $padded; \
                  [[ abc =~ ^a(.)c$ ]] && echo ${BASH_REMATCH[1]}es; \
                  while read line; do echo from $line; done < <(echo inside); exit 5";
    let (status, said) = run(&["--include", "/usr/bin/sort", "/bin/bash", "--", "-c", script]);
    assert_eq!(status, Some(5), "{said}");
    for expected in ["most 3\n", "padded 00042\n", "bes\n", "from inside\n"] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

#[test]
fn files_are_listed_as_they_are() {
    let (status, said) = run(&["/bin/ls", "-ln", "/etc/passwd", "/nowhere"]);
    assert_eq!(status, Some(2), "{said}");
    let bytes = std::fs::metadata("/etc/passwd").expect("it is there").len();
    assert!(said.contains(&format!(" {bytes} ")) && said.contains("/etc/passwd"), "{said}");
    assert!(said.contains("cannot access '/nowhere': No such file or directory"), "{said}");
}

#[test]
fn processes_and_the_machine_are_told_of_in_proc() {
    let script = "read all </proc/self/stat; echo stat $all; read name </proc/sys/kernel/osrelease; \
                  echo release $name; \
                  while read key value rest; do echo $key $value; done </proc/self/status; \
                  while read line; do echo $line; done </proc/self/maps; \
                  while read key value unit; do echo $key $value; done </proc/meminfo; \
                  read device place kind rest </proc/mounts; echo mounted $kind at $place; \
                  test -e /proc/self/fd/1 && test ! -e /proc/self/fd/9 && echo descriptors; \
                  read load </proc/loadavg; echo load $load";
    let (status, said) = run(&["/bin/dash", "--", "-c", script]);
    assert_eq!(status, Some(0), "{said}");
    for part in
        ["stat 1 (dash) R 0 1 1 0", "Name: dash", "Threads: 1", "MemTotal: ", "release 6.1", "descriptors"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    let has = |front: &str, end: &str| {
        said.lines().any(|line| line.contains(front) && line.trim_end().ends_with(end))
    };
    assert!(has("r-xp", "/bin/dash") && has("rw-p", "[heap]") && has("rw-p", "[stack]"), "{said}");
    assert!(said.contains("mounted rootfs at /") && said.contains("load 0.00 0.00 0.00 1/1 1"), "{said}");
    let (status, said) = run(&["/bin/ls", "--", "-l", "/proc/self/exe", "/proc/self/fd/1", "/proc/self/cwd"]);
    assert_eq!(status, Some(0), "{said}");
    assert!(has_link(&said, "exe -> /usr/bin/ls") || has_link(&said, "exe -> /bin/ls"), "{said}");
    assert!(has_link(&said, "fd/1 -> /dev/console") && has_link(&said, "cwd -> /"), "{said}");
}

fn has_link(said: &str, link: &str) -> bool {
    said.lines().any(|line| line.trim_end().ends_with(link))
}

/// The shell of SQLite, with a journal on disk, a table in memory, and what its own functions say.
#[test]
fn sqlite_keeps_what_it_is_told() {
    if !Path::new("/usr/bin/sqlite3").exists() {
        eprintln!("skipped: there is no /usr/bin/sqlite3: apt-get install sqlite3");
        return;
    }
    let script = "create table t(a integer primary key, b text); begin; \
                  with recursive n(i) as (select 1 union all select i+1 from n where i<2000) \
                  insert into t select i, hex(i) from n; commit; create index x on t(b); \
                  begin; delete from t; rollback; pragma integrity_check; \
                  select count(*), sum(a), max(b) from t; vacuum; pragma journal_mode=wal; \
                  update t set b = 'nom' where a = 7; pragma wal_checkpoint; select b from t where a = 7;";
    let (status, said) = run(&["/usr/bin/sqlite3", "--", "/tmp/it.db", script]);
    assert_eq!(status, Some(0), "{said}");
    for part in ["ok", "2000|2001000|", "wal", "nom"] {
        assert!(said.lines().any(|line| line.trim_end().starts_with(part)), "{part}: {said}");
    }
}

#[test]
fn memcached_serves_without_a_change() {
    if !Path::new(MEMCACHED).exists() {
        eprintln!("skipped: there is no {MEMCACHED}: apt-get install memcached");
        return;
    }
    let (site, port) = (Site::new(), free_port());
    let published = format!("run -d --name cache -m 256M -p {port}:11211");
    let mut command = site.nom(&published);
    let output = command.args([MEMCACHED, "--", "-u", "nobody", "-m", "64"]).output().expect("it starts");
    assert!(output.status.success(), "{}", said(&output));
    let end = Instant::now() + PATIENCE;
    // QEMU accepts before the guest does.
    while !ask(port, b"version\r\nquit\r\n").is_ok_and(|answer| answer.starts_with("VERSION ")) {
        assert!(Instant::now() < end, "memcached does not answer: {}", site.run("logs cache"));
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(ask(port, ASKED).expect("an answer"), ANSWERED);
    // Its threads, each with connections of its own.
    let all: Vec<_> = (0..8).map(|_| std::thread::spawn(move || ask(port, ASKED))).collect();
    for each in all {
        let answer = each.join().expect("it asks").expect("an answer");
        assert!(answer.starts_with("STORED\r\n") && answer.ends_with("42\r\n"), "{answer}");
    }
    capable(port);
}

/// The protocol suite of memcached's own client library, where that is installed.
fn capable(port: u16) {
    let port = port.to_string();
    let Ok(output) = Command::new("memccapable").args(["-h", "127.0.0.1", "-p", &port, "-a"]).output() else {
        eprintln!("skipped: there is no memccapable: apt-get install libmemcached-tools");
        return;
    };
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn what_is_no_program_is_named_with_what_was_expected() {
    let directory = tempfile::tempdir().expect("a directory");
    let text = directory.path().join("notes");
    std::fs::write(&text, "hello\n").expect("it is written");
    let text = text.to_str().expect("UTF-8");
    let there = directory.path().to_str().expect("UTF-8");
    for (words, expected) in [
        (&["/usr/bin/nonexistent"][..], "/usr/bin/nonexistent: no such file or directory".to_owned()),
        (
            &[text],
            format!("{text}: expected a manifest (*.toml), or a program: an ELF file, or a script (#!)"),
        ),
        (&[there], format!("{there}: no app.toml or bundle.toml in it")),
        (&["--root", "/nonexistent", "/bin/sh"], "--root /nonexistent: no such directory".to_owned()),
        (&["nonexistent"], "no application `nonexistent`: expected one of echo".to_owned()),
    ] {
        let (status, said) = run(words);
        assert_eq!(status, Some(125), "{words:?}: {said}");
        assert!(said.contains(&expected), "{words:?}: {said}");
    }
}

/// The trace of a program, apart from what it writes.
#[test]
fn a_program_is_traced_call_by_call() {
    let site = Site::new();
    let script = "echo hello; (exit 3); echo nobody >/absent/file";
    let trace = site.path().join("trace");
    let output = site
        .nom("strace -m 256M -e trace=%file,%process,write -o")
        .arg(&trace)
        .args(["/bin/dash", "--", "-c", script])
        .output()
        .expect("it starts");
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    let text = std::fs::read_to_string(&trace).expect("a trace");
    assert!(String::from_utf8_lossy(&output.stdout).contains("hello\n"), "{}", said(&output));
    assert!(!String::from_utf8_lossy(&output.stdout).contains("write("), "{}", said(&output));
    for expected in [
        "\n1 openat(AT_FDCWD, \"/lib/x86_64-linux-gnu/libc.so.6\", O_RDONLY|O_CLOEXEC) = 3\n",
        "\n1 write(1, \"hello\\n\", 6) = 6\n",
        "\n2 exit_group(3) = ?\n2 +++ exited with 3 +++\n",
        "[{WIFEXITED(s) && WEXITSTATUS(s) == 3}], 0, NULL) = 2\n",
        "\n1 openat(AT_FDCWD, \"/absent/file\", O_WRONLY|O_CREAT|O_TRUNC, 0666) = -1 ENOENT\n",
        "\n1 exit_group(2) = ?\n1 +++ exited with 2 +++\n",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert!(!text.contains(" brk("), "{text}");
}

/// A call that waits has its beginning written, and others' lines do not mix with it.
#[test]
fn a_trace_says_who_waits_and_its_summary_counts() {
    let site = Site::new();
    let script = "read it; echo $it";
    let traced = |options: &str, words: &[&str]| {
        let output = site.nom(options).args(words).output().expect("it starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let pipeline = "(sleep 0.1; echo late) | (read it; echo $it)";
    let words = ["--include", "/bin/sleep", "/bin/dash", "--", "-c", pipeline];
    let (status, text) = traced("strace -m 256M -e trace=wait4,read,clock_nanosleep", &words);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("] read(0 <unfinished ...>\n"), "{text}");
    assert!(text.contains("] <... read resumed>, \"l\", 1) = 1\n"), "{text}");
    let (status, text) = traced("strace -m 256M -c -e trace=read,write,close", &["/bin/dash", "-c", script]);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("% time     seconds  usecs/call     calls    errors syscall\n"), "{text}");
    let total = text.lines().find(|line| line.ends_with(" total")).expect("a line for all");
    let calls = |name: &str| {
        let line = text.lines().find(|line| line.ends_with(&format!(" {name}")));
        line.and_then(|line| line.split_whitespace().nth(3)).and_then(|calls| calls.parse::<u32>().ok())
    };
    assert_eq!(calls("write"), Some(1), "{text}");
    let sum = ["read", "write", "close"].iter().filter_map(|name| calls(name)).sum::<u32>();
    assert_eq!(total.split_whitespace().nth(3), Some(sum.to_string().as_str()), "{text}");
    let (status, text) = traced("strace -e trace=raed", &["/bin/dash"]);
    assert_eq!(status, Some(125));
    assert!(text.contains("-e trace=raed: `raed`: expected the name of a call"), "{text}");
    let (status, text) = traced("strace", &["hello"]);
    assert_eq!(status, Some(125));
    assert!(text.contains("hello: expected the path of a Linux program"), "{text}");
}

/// Whoever runs a program hears which files it would have found on this computer.
#[test]
fn files_that_are_looked_for_in_vain_are_told_as_options() {
    let site = Site::new();
    let missing = |options: &str| {
        let words = ["/bin/dash", "--", "-c", "sleep 0; test -e /nowhere || exit 3"];
        let output = site.nom("strace --missing -m 256M").args(options.split(' ')).args(words).output();
        let output = output.expect("it starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (status, text) = missing("--env A=B");
    assert_eq!(status, Some(3), "{text}");
    let (_, told) = text.split_once("It looked in vain for files that this computer has").expect(&text);
    assert!(told.contains("  --include /bin/sleep\n"), "{text}");
    assert!(!told.contains("nowhere") && !told.contains("ld.so.cache"), "{text}");
    let (status, text) = missing("--include /bin/sleep");
    assert_eq!(status, Some(3), "{text}");
    let (_, told) = text.rsplit_once("It looked ").expect(&text);
    assert!(!told.contains("/bin/sleep"), "{text}");
    let words = ["-m", "256M", "/bin/dash", "-c", "sleep 0"];
    let output = site.nom("run").args(words).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(127), "{said}");
    assert!(said.contains("`nom strace --missing /bin/dash` says which files"), "{said}");
    let (status, text) = missing("--root /");
    assert_eq!(status, Some(2), "{text}");
    assert!(text.contains("--root") && text.contains("--missing"), "{text}");
}

/// What a program does is among what its code can do.
#[test]
fn what_a_program_can_call_is_told_before_anything_boots() {
    let site = Site::new();
    let output = site.nom("strace --check /bin/dash").output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(text.contains("/bin/dash: its 4 files can make "), "{text}");
    let refused = text.split("refused (ENOSYS)").nth(1).expect("some are");
    assert!(refused.contains("  rseq                 C libraries do without; by "), "{text}");
    let complete = text.split("complete:\n").nth(1).and_then(|rest| rest.lines().next()).expect("a line");
    let made = ["openat", "read", "write", "dup2", "vfork", "exit_group", "getppid", "rt_sigaction"];
    for name in made {
        assert!(complete.split_whitespace().any(|known| known == name), "{name}: {text}");
    }
    // Of libraries only what is led to: dash waits for no set of sockets.
    assert!(!complete.contains("epoll_wait") && !complete.contains("listen"), "{text}");
    assert!(text.contains("  wait4                ") && text.contains("  execve               "), "{text}");
    let output = site.nom("strace --check /etc/passwd").output().expect("it starts");
    assert_eq!(output.status.code(), Some(125));
    assert!(said(&output).contains("passwd"), "{}", said(&output));
}
