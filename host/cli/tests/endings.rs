//! How what `nom run` starts comes to its end: exit statuses, what `nom ps -a` says of it, and that nothing
//! is left behind.

use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long anything may take on a busy computer.
const PATIENCE: Duration = Duration::from_secs(120);

/// Somebody's machines.
struct Home(TempDir);

impl Home {
    fn new() -> Home {
        Home(tempfile::tempdir().expect("a directory"))
    }

    fn nom(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nom"));
        command.args(words.split_whitespace()).env("XDG_STATE_HOME", self.0.path());
        command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
        command
    }

    /// Starts a machine in the foreground, and waits until its guest says that it runs.
    fn run(&self, image: &Path) -> Running {
        let mut command = self.nom("run --name it");
        command.arg(image);
        Home::begin(command)
    }

    /// The same, with a script that a shell of Linux runs.
    fn run_script(&self, options: &str, script: &str) -> Running {
        let mut command = self.nom(&format!("run --name it {options} --include /bin/sleep /bin/dash -c"));
        command.arg(script);
        Home::begin(command)
    }

    fn begin(mut command: Command) -> Running {
        command.stdout(Stdio::piped());
        let mut child = command.spawn().expect("nom runs");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        lines.by_ref().map_while(Result::ok).find(|line| line == "ready").expect("the guest runs");
        // What is written later is nobody's business, but somebody must take it.
        std::thread::spawn(move || lines.count());
        Running(child)
    }

    /// What `nom ps -a` says of the machine.
    fn ending(&self) -> String {
        let output = self.nom("ps -a --json").output().expect("nom runs");
        let machines: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        machines[0]["ending"].as_str().unwrap_or("running").to_owned()
    }

    /// Waits until the machine's log has a line.
    fn wait_for_log(&self, line: &str) {
        let deadline = Instant::now() + PATIENCE;
        let has = |output: &[u8]| String::from_utf8_lossy(output).lines().any(|other| other == line);
        while !has(&self.nom("logs it").output().expect("nom runs").stdout) {
            assert!(Instant::now() < deadline, "no `{line}` in the log");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn succeeds(&self, words: &str) {
        assert!(self.nom(words).status().expect("nom runs").success(), "{words}");
    }
}

/// A command that runs; it is killed when dropped.
struct Running(Child);

impl Running {
    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.0.id() as i32).expect("a process");
        kill_process(pid, signal).expect("it runs");
    }

    fn status(mut self) -> Option<i32> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.0.try_wait().expect("it is ours") {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it does not end");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The image of a bundle of `tests/guest`, built once.
fn image(bundle: &str) -> PathBuf {
    static IMAGES: OnceLock<TempDir> = OnceLock::new();
    let directory = IMAGES.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a directory");
        for bundle in ["shutdown", "shutdown-default", "shutdown-deaf"] {
            let file = directory.path().join(bundle);
            let words = format!("build tests/guest/bundles/{bundle}.toml -o {}", file.display());
            Home::new().succeeds(&words);
        }
        directory
    });
    directory.path().join(bundle)
}

#[test]
fn a_signal_ends_a_machine_as_it_does_a_process() {
    for (bundle, signals, status, ending) in [
        ("shutdown", &[Signal::INT][..], 7, "exited (7)"),
        ("shutdown", &[Signal::TERM], 7, "exited (7)"),
        ("shutdown-default", &[Signal::INT], 130, "interrupted"),
        ("shutdown-default", &[Signal::TERM], 143, "stopped"),
        ("shutdown-default", &[Signal::HUP], 129, "stopped"),
        ("shutdown-deaf", &[Signal::INT, Signal::INT], 130, "killed"),
        ("shutdown-deaf", &[Signal::TERM], 137, "killed"),
    ] {
        let home = Home::new();
        let running = home.run(&image(bundle));
        assert_eq!(home.ending(), "running");
        for (number, signal) in signals.iter().enumerate() {
            std::thread::sleep(Duration::from_millis(300 * number as u64));
            running.signal(*signal);
        }
        assert_eq!(running.status(), Some(status), "{bundle} {signals:?}");
        assert_eq!(home.ending(), ending, "{bundle} {signals:?}");
    }
}

#[test]
fn nom_stop_asks_first_and_then_kills() {
    for (bundle, status, ending) in [
        ("shutdown", 7, "exited (7)"),
        ("shutdown-default", 143, "stopped"),
        ("shutdown-deaf", 137, "killed"),
    ] {
        let home = Home::new();
        let running = home.run(&image(bundle));
        home.succeeds("stop --time 5 it");
        assert_eq!((running.status(), home.ending().as_str()), (Some(status), ending), "{bundle}");
        home.succeeds(&format!("run -d --name it {}", image(bundle).display()));
        home.wait_for_log("ready");
        let output = home.nom("stop --time 5 it").output().expect("nom runs");
        assert_eq!(String::from_utf8_lossy(&output.stderr).contains("killed"), ending == "killed");
        assert_eq!(home.ending(), ending, "{bundle} in the background");
    }
}

#[test]
fn a_program_of_linux_is_asked_by_its_signal() {
    const IDLE: &str = "echo ready; exec /bin/sleep 1000";
    const COMPUTING: &str = "echo ready; while :; do :; done";
    const WAITING: &str = "trap 'exit 7' TERM QUIT; echo ready; /bin/sleep 1000 & wait";
    let handling = format!("trap 'exit 7' TERM; trap 'exit 8' QUIT; {COMPUTING}");
    let deaf = format!("trap '' TERM; {COMPUTING}");
    for (options, script, status, ending) in [
        ("", WAITING, 7, "exited (7)"),
        ("", &handling, 7, "exited (7)"),
        ("--stop-signal SIGQUIT", &handling, 8, "exited (8)"),
        ("", IDLE, 143, "stopped"),
        ("", COMPUTING, 143, "stopped"),
        ("", &deaf, 137, "killed"),
    ] {
        let home = Home::new();
        let running = home.run_script(options, script);
        home.succeeds("stop --time 5 it");
        let ended = (running.status(), home.ending());
        assert_eq!(ended, (Some(status), ending.to_owned()), "{options} {script}");
    }
}

#[test]
fn a_published_port_that_is_taken_is_refused_before_anything_boots() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = listener.local_addr().expect("bound").port();
    for detach in ["", "-d"] {
        let home = Home::new();
        let mut command = home.nom(&format!("run {detach} -p 127.0.0.1:{port}:80"));
        let output = command.arg(image("shutdown-default")).output().expect("nom runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(125), "{said}");
        let holder = format!("port 127.0.0.1:{port} is taken by endings");
        assert!(said.contains(&holder) && said.contains(&std::process::id().to_string()), "{said}");
        assert_eq!(home.ending(), "running", "no machine is written down");
    }
}

/// Names of the network namespaces of machines called `machine`.
fn namespaces(machine: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with(&format!("nom.{machine}."))).collect()
}

fn may_make_namespaces() -> bool {
    let may = geteuid().is_root() && Path::new("/dev/net/tun").exists();
    if !may {
        eprintln!("skipped: namespaces with TAP devices need root and /dev/net/tun");
    }
    may
}

#[test]
fn ctrl_c_at_any_moment_leaves_no_namespace() {
    if !may_make_namespaces() {
        return;
    }
    let image = image("shutdown-default");
    for milliseconds in [5, 20, 40, 60, 80, 110, 150, 200, 300] {
        let (home, name) = (Home::new(), format!("interrupted-{}", std::process::id()));
        let nom = home.nom(&format!("run --network tap --name {name}"));
        // This test may run where SIGINT is ignored, in a script's background: until nom waits for it, it
        // would be lost.
        let mut command = Command::new("env");
        command.arg("--default-signal=INT").arg(nom.get_program()).args(nom.get_args()).arg(&image);
        command.envs(nom.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let running = Running(command.stdout(Stdio::null()).spawn().expect("nom runs"));
        std::thread::sleep(Duration::from_millis(milliseconds));
        running.signal(Signal::INT);
        let status = running.status();
        assert!([None, Some(130)].contains(&status), "{status:?} after {milliseconds} ms");
        assert_eq!(namespaces(&name), [""; 0], "after {milliseconds} ms");
    }
}

#[test]
fn a_killed_process_leaves_nothing() {
    if !may_make_namespaces() {
        return;
    }
    let home = Home::new();
    let mut command = home.nom("run --host apps/memcached");
    let mut running = Running(command.stdout(Stdio::piped()).spawn().expect("nom runs"));
    let mut output = BufReader::new(running.0.stdout.take().expect("it is piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("the server speaks");
    assert!(line.starts_with("serves at"), "{line}");
    let ours =
        || namespaces("memcached").into_iter().find(|name| name.contains(&format!(".{}.", running.0.id())));
    let namespace = ours().expect("it has one");
    running.signal(Signal::KILL);
    // The process holds the other end: it is gone when nothing more can come.
    output.read_to_string(&mut line).expect("it ends");
    let deadline = Instant::now() + PATIENCE;
    while namespaces("memcached").contains(&namespace) {
        assert!(Instant::now() < deadline, "{namespace} stays");
        home.succeeds("ps");
    }
}

#[test]
fn a_process_ends_by_a_signal_as_a_machine_does() {
    if !may_make_namespaces() {
        return;
    }
    for signal in [Signal::INT, Signal::TERM] {
        let home = Home::new();
        let mut command = home.nom("run --host apps/memcached");
        let mut running = Running(command.stdout(Stdio::piped()).spawn().expect("nom runs"));
        let mut line = String::new();
        BufReader::new(running.0.stdout.take().expect("piped")).read_line(&mut line).expect("it speaks");
        assert!(line.starts_with("serves at"), "{line}");
        let own = format!(".{}.", running.0.id());
        running.signal(signal);
        assert_eq!(running.status(), Some(0), "{signal:?}: it ends itself");
        assert!(namespaces("memcached").iter().all(|name| !name.contains(&own)));
    }
}
