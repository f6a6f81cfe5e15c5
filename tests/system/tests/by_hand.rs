//! The commands of `docs/boot.md`, as they stand there.

use nom_system_tests::Guest;
use nom_vmm::qmp::Monitor;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// How long a machine may take, in seconds.
const PATIENCE: &str = "120";

/// A command of the page, what it must say, and the status with which it must end.
struct Example {
    command: String,
    says: String,
    status: i32,
    /// How the monitor ends it.
    end: &'static str,
}

/// The commands that are marked: `<!-- test: TEXT -->`, `<!-- test: TEXT, status N -->`, or, for a server
/// that has no power button, `<!-- test: TEXT, quit -->`.
fn examples() -> Vec<Example> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/boot.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let marked = page.split("<!-- test: ").skip(1).map(|part| {
        let (mark, rest) = part.split_once(" -->\n```sh\n").expect("a command follows the mark");
        let (command, _) = rest.split_once("```").expect("it ends");
        let (mark, end) = match mark.strip_suffix(", quit") {
            Some(mark) => (mark, "quit"),
            None => (mark, "system_powerdown"),
        };
        let (says, status) = mark.split_once(", status ").unwrap_or((mark, "0"));
        let status = status.parse().expect("a status");
        Example { command: command.to_owned(), says: says.to_owned(), status, end }
    });
    marked.collect()
}

/// A directory with the images of the page.
fn images() -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    for name in ["hello", "memcached"] {
        Guest::app(name).write_image(&directory.path().join(format!("{name}.img")));
    }
    directory
}

fn start(example: &Example, directory: &Path) -> Child {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", PATIENCE, "sh", "-c", &example.command]).current_dir(directory);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it starts")
}

/// Has memcached, at the port that the command leads to it, keep a value.
fn talk(command: &str) {
    let Some((_, rest)) = command.split_once("hostfwd=tcp:") else { return };
    let (address, _) = rest.split_once("-:").expect("where it leads");
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.write_all(b"set a 0 0 2\r\nhi\r\nget a\r\nquit\r\n").expect("it is sent");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout is set");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert_eq!(answer, "STORED\r\nVALUE a 0 2\r\nhi\r\nEND\r\n", "{command}");
}

#[test]
fn every_command_of_the_page_boots_a_machine_that_ends_once() {
    let directory = images();
    let examples = examples();
    assert_eq!(examples.len(), 9);
    for example in examples {
        let mut child = start(&example, directory.path());
        let mut lines =
            BufReader::new(child.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
        let has_said = lines.by_ref().any(|line| line.contains(&example.says));
        assert!(has_said, "`{}` does not say `{}`", example.command, example.says);
        talk(&example.command);
        if let Some((_, rest)) = example.command.split_once("-qmp unix:") {
            let socket = rest.split(',').next().expect("a name");
            let mut monitor = Monitor::connect(directory.path(), socket).expect("QEMU listens");
            monitor.execute(example.end, serde_json::json!({})).expect("the button is pressed");
        }
        let again = lines.filter(|line| line.contains(&example.says)).count();
        let status = child.wait().expect("it ends");
        assert_eq!((again, status.code()), (0, Some(example.status)), "{}", example.command);
    }
    let control = std::fs::read_to_string(directory.path().join("control.log")).expect("it is written");
    assert!(control.ends_with("halt status=0\n"), "{control}");
}
