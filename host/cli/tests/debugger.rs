//! `nom run --gdb`, with a debugger: the kernel, which is elsewhere at each boot otherwise, is where its
//! symbols say, and so is the application, which was placed at random.

mod common;

use common::{PATIENCE, Site, said};
use std::process::{Command, Stdio};
use std::time::Instant;

#[test]
fn a_debugger_stops_in_the_kernel_and_in_an_application() {
    if !Command::new("gdb").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return println!("skipped: gdb is not installed");
    }
    let site = Site::new();
    let mut machine = site.nom("run --name debugged --gdb hello");
    let machine = machine.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let script = site.path().join("nom/machines/debugged/nom.gdb");
    let end = Instant::now() + PATIENCE;
    while !script.exists() {
        assert!(Instant::now() < end, "there is no {}", script.display());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let commands = [
        // The first instruction of an application, which the kernel enters.
        "nom-start",
        "break nom_main",
        "continue",
        "backtrace 1",
        // The way back in, from that address space.
        "hbreak user_syscall",
        "continue",
        "info symbol $pc",
        "delete",
        "continue",
    ];
    let mut gdb = site.command("gdb");
    gdb.args(["-nx", "-batch", "-x"]).arg(&script).stdin(Stdio::null());
    let output = gdb.args(commands.iter().flat_map(|command| ["-ex", command])).output().expect("it starts");
    let told = said(&output);
    assert!(told.contains("in enter_application ()"), "a symbol of the kernel: {told}");
    assert!(told.contains("#0  nom_main ()"), "one of the application: {told}");
    assert!(told.contains("user_syscall") && told.contains(" in section .text"), "the kernel again: {told}");
    let output = machine.wait_with_output().expect("it ends");
    assert!(output.status.success() && said(&output).contains("Hello from nom!"), "{}", said(&output));
}
