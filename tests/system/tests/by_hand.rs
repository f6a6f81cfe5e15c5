//! The commands of `docs/boot.md`, as they stand there.

use nom_system_tests::Guest;
use nom_vmm::qmp::Monitor;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// How long a machine may take, in seconds.
const PATIENCE: &str = "120";

/// A command of the page, what it must say, and the status with which it must end.
struct Example {
    command: String,
    says: String,
    status: i32,
}

/// The commands that are marked: `<!-- test: TEXT -->`, or `<!-- test: TEXT, status N -->`.
fn examples() -> Vec<Example> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/boot.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let marked = page.split("<!-- test: ").skip(1).map(|part| {
        let (mark, rest) = part.split_once(" -->\n```sh\n").expect("a command follows the mark");
        let (command, _) = rest.split_once("```").expect("it ends");
        let (says, status) = mark.split_once(", status ").unwrap_or((mark, "0"));
        let status = status.parse().expect("a status");
        Example { command: command.to_owned(), says: says.to_owned(), status }
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

#[test]
fn every_command_of_the_page_boots_a_machine_that_ends_once() {
    let directory = images();
    let examples = examples();
    assert_eq!(examples.len(), 6);
    for example in examples {
        let mut child = start(&example, directory.path());
        let mut lines =
            BufReader::new(child.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
        let has_said = lines.by_ref().any(|line| line.contains(&example.says));
        assert!(has_said, "`{}` does not say `{}`", example.command, example.says);
        if let Some((_, rest)) = example.command.split_once("-qmp unix:") {
            let socket = rest.split(',').next().expect("a name");
            let mut monitor = Monitor::connect(directory.path(), socket).expect("QEMU listens");
            monitor.execute("system_powerdown", serde_json::json!({})).expect("the button is pressed");
        }
        let again = lines.filter(|line| line.contains(&example.says)).count();
        let status = child.wait().expect("it ends");
        assert_eq!((again, status.code()), (0, Some(example.status)), "{}", example.command);
    }
    let control = std::fs::read_to_string(directory.path().join("control.log")).expect("it is written");
    assert!(control.ends_with("halt status=0\n"), "{control}");
}
