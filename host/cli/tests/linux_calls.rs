//! System calls of programs, compared with Linux's own: the same program runs here and in a machine.

mod common;

use common::{Site, said};
use std::process::{Command, Output};

/// Before each line that is compared.
const MARK: &str = "= ";
/// Where the programs are.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/linux");
/// Seconds after which a machine does not end any more.
const PATIENCE_S: &str = "400";

fn lines(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    let marked = text.lines().filter_map(|line| line.trim_end().strip_prefix(MARK));
    marked.map(str::to_owned).collect()
}

/// Memory ends: what is only kept goes back, then the largest process ends, with a report, and the others go
/// on; so it is with pages, with what the library has for a process, and with files.
#[test]
fn who_takes_all_memory_ends_and_the_others_go_on() {
    const LARGE_BYTES: usize = 80 << 20;
    let Some(program) = compiled("pressure") else { return };
    let site = Site::new();
    let large = program.path().join("large");
    // What the machine's root has more than a few of lies on its disk, and is read a block at a time.
    let bytes: Vec<u8> = (0..LARGE_BYTES).map(|at| (at >> 9) as u8).collect();
    std::fs::write(&large, bytes).expect("written");
    let mut nom = site.command("timeout");
    nom.args([PATIENCE_S, env!("CARGO_BIN_EXE_nom"), "run", "-m", "160M", "--include"]).args([
        &large,
        &program.path().join("pressure"),
        &large,
    ]);
    let nom = nom.output().expect("it starts");
    let expected = [
        "touched all: ended by 9",
        "another is there, and answers: 1",
        "had calls touch all: ended by 9",
        "another is there, and answers: 1",
        "a file that was read is kept: 1",
        "but goes when memory is wanted: 1",
        "and is read again: 1",
        "mapped a file and touched all: ended by 9",
        "filled pipes: ended by 9",
        "written: 32",
        "who had most ended by: 9",
        "files without end: ENOSPC",
        "arguments without end: E2BIG",
        "another is there, and answers: 1",
        "and ends by itself: 3",
        "limit: 0",
        "more than that: ENOMEM",
        "less: 0",
        "more by the heap: ENOMEM",
        "more by growing: ENOMEM",
    ];
    assert_eq!(lines(&nom), expected, "{}", said(&nom));
    let reports = String::from_utf8_lossy(&nom.stdout).matches("memory is at its end").count();
    assert_eq!(reports, 5, "{}", said(&nom));
}

/// A program in a directory of its own, or nothing if it cannot be compiled here.
fn compiled(name: &str) -> Option<tempfile::TempDir> {
    // Not in /tmp, of which the program gets one of its own here, as it has one there.
    let program = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let path = program.path().join(name);
    let source = format!("{SOURCES}/{name}.c");
    let compiled = Command::new("cc").args(["-w", "-O1", "-pthread", "-o"]).arg(&path).arg(source).output();
    let Ok(compiled) = compiled else {
        eprintln!("skipped: there is no cc: apt-get install gcc libc6-dev");
        return None;
    };
    assert!(compiled.status.success(), "{}", said(&compiled));
    Some(program)
}

/// The same of a machine with one processor.
fn compare(name: &str, at_least: usize) -> Option<Output> {
    compare_on(1, name, at_least)
}

/// Compiles a program and runs it on Linux and in a machine with so many processors: what it prints is the
/// same, at least so many lines. Returns what it said in the machine, or nothing if it cannot be compared
/// here.
fn compare_on(processors: usize, name: &str, at_least: usize) -> Option<Output> {
    let here = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if here < processors {
        eprintln!("skipped: this computer has {here} processors, and {processors} are wanted");
        return None;
    }
    let site = Site::new();
    let program = compiled(name)?;
    let path = program.path().join(name);
    let inside = format!("mount -t tmpfs -o mode=1777 none /tmp; exec {}", path.display());
    // Signals that are ignored here, as in the background of a script, are not there either.
    let linux = Command::new("env")
        .args(["--default-signal", "timeout", "--foreground", PATIENCE_S])
        .args(["unshare", "--mount", "sh", "-c", &inside])
        .output()
        .expect("it starts");
    assert_ne!(linux.status.code(), Some(124), "it does not end on Linux: {}", said(&linux));
    if !linux.status.success() {
        eprintln!("skipped: a /tmp of one's own is root's to make: {}", said(&linux));
        return None;
    }
    let mut nom = site.command("timeout");
    nom.args([PATIENCE_S, env!("CARGO_BIN_EXE_nom"), "run", "-m", "512M", "--cpus"]);
    nom.arg(processors.to_string()).arg(&path);
    let nom = nom.output().expect("it starts");
    assert!(nom.status.success(), "{}", said(&nom));
    let (expected, found) = (lines(&linux), lines(&nom));
    assert!(expected.len() >= at_least, "{}", said(&linux));
    let pairs = expected.iter().zip(&found).enumerate();
    let different: Vec<String> = pairs
        .filter(|(_, (expected, found))| expected != found)
        .map(|(line, (expected, found))| format!("line {line}: Linux `{expected}`, nom `{found}`"))
        .collect();
    assert!(different.is_empty() && expected.len() == found.len(), "{different:#?}\n{}", said(&nom));
    Some(nom)
}

#[test]
fn calls_say_what_linux_says() {
    let Some(nom) = compare("calls", 300) else { return };
    let complaints = String::from_utf8_lossy(&nom.stdout).matches("system call 999").count();
    assert_eq!(complaints, 1, "an unknown call is named once: {}", said(&nom));
}

/// What may be done to others' processes, set-user-ID, jumps to where no code is, and what is full.
#[test]
fn bounds_are_where_linux_has_them() {
    compare("bounds", 63);
}

#[test]
fn locks_of_files_keep_processes_out_as_on_linux() {
    compare("locks", 45);
}

/// Local datagrams and packets, UDP within the machine, urgent bytes, resets.
#[test]
fn datagrams_say_what_linux_says() {
    compare("datagrams", 280);
}

/// Headers of datagrams: hops, service and class, which are said and told; and when they came.
#[test]
fn headers_of_datagrams_say_what_linux_says() {
    compare("marks", 290);
}

/// Children that are stopped and go on, pipes that have names, bytes that are moved between descriptors.
#[test]
fn stops_say_what_linux_says() {
    compare("stops", 125);
}

/// Processor time and its timers; calls that signals interrupt, and what is left of their time.
#[test]
fn times_and_interruptions_are_linuxs() {
    compare("times", 170);
}

/// Of pseudoterminals: lines that are edited, keys that send signals, modes, sessions, job control, hang-ups,
/// packets.
#[test]
fn terminals_say_what_linux_says() {
    compare("terminals", 160);
}

/// How a process is treated, whose child it is, the network's interfaces, programs by descriptors.
#[test]
fn controls_say_what_linux_says() {
    compare("controls", 120);
}

/// Queues of messages, semaphores, signals with values, policies of the scheduler, users that come back.
#[test]
fn exchanges_say_what_linux_says() {
    compare("exchanges", 120);
}

/// Huge pages of which a part is protected, forgotten, unmapped, moved or copied.
#[test]
fn a_part_of_a_huge_page_is_as_a_part_of_small_ones() {
    compare("huge", 55);
}

/// Datagrams and segments that several calls put together.
#[test]
fn what_is_corked_goes_when_linux_sends_it() {
    compare("cork", 72);
}

/// Who listens where, and who gets a connection.
#[test]
fn connections_come_to_whom_they_come_to_on_linux() {
    compare("listeners", 39);
}

/// Signals that tell that a descriptor is ready.
#[test]
fn whoever_owns_a_descriptor_is_told_by_signals_as_on_linux() {
    compare("driven", 123);
}

/// What is told by queues of errors: datagrams that nobody takes, and sends without a copy.
#[test]
fn queues_of_errors_tell_what_linux_tells() {
    compare("errors", 180);
}

/// Processes that make no call share the processor, are told of signals, and keep every register.
#[test]
fn who_makes_no_call_is_interrupted_and_notices_nothing() {
    compare("preempt", 9);
}

/// The same where some of them compute on another processor.
#[test]
fn who_computes_on_another_processor_notices_nothing_either() {
    compare_on(2, "preempt", 9);
}

/// Threads that compute side by side, and what others do to them meanwhile: signals, copies of their memory,
/// pages that come and are closed to them, stops and ends.
#[test]
fn threads_compute_on_two_processors_as_on_linux() {
    compare_on(2, "cores", 25);
}
