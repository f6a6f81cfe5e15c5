//! What docs/write-your-own.md says, done by its words alone: its files are written and its commands run, in
//! a directory outside of the checkout.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PAGE: &str = include_str!("../../../docs/write-your-own.md");
/// How long anything may take, on a slow and busy computer.
const PATIENCE: Duration = Duration::from_secs(300);

/// What the page has between its words.
#[derive(Debug, PartialEq, Eq)]
enum Block {
    /// A file: its path and its text.
    File(String, String),
    /// Commands.
    Commands(String),
}

/// The blocks of a page. A file is named in the paragraph before it.
fn blocks(page: &str) -> Vec<Block> {
    let (mut blocks, mut paragraph) = (Vec::new(), String::new());
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let body = lines.by_ref().take_while(|line| *line != "```");
            let text: String = body.flat_map(|line| [line, "\n"]).collect();
            let named = paragraph.split('`').skip(1).step_by(2);
            let mut files = named.filter(|name| name.starts_with("kv/") || name.starts_with("fetch/"));
            blocks.push(match language {
                "sh" => Block::Commands(text),
                _ => Block::File(files.next().expect("a file has a name").to_owned(), text),
            });
            paragraph.clear();
        } else if line.is_empty() {
            // A block may stand apart from the paragraph that names it.
            paragraph.push('\n');
        } else {
            if paragraph.ends_with('\n') {
                paragraph.clear();
            }
            paragraph.push_str(line);
            paragraph.push(' ');
        }
    }
    blocks
}

/// A reader who does what the page says.
struct Reader {
    home: tempfile::TempDir,
    port: u16,
    control: u16,
    /// Programs that run in other terminals.
    others: Vec<Child>,
    /// The command that leads to the process's network, if there is one.
    way: Option<String>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        for other in &mut self.others {
            // It may have ended already.
            let _ = other.kill();
            let _ = other.wait();
        }
        let _ = self.command("nom stop kv store kv-debugged").output();
    }
}

impl Reader {
    /// With `nom` on her path, and a home of her own, so that her machines are nobody else's.
    fn new() -> Reader {
        let home = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir(home.path().join("bin")).expect("a directory");
        symlink(env!("CARGO_BIN_EXE_nom"), home.path().join("bin/nom")).expect("a link");
        let ports = [0, 0].map(|port| TcpListener::bind(("127.0.0.1", port)).expect("a free port"));
        let [port, control] = ports.map(|port| port.local_addr().expect("an address").port());
        Reader { home, port, control, others: Vec::new(), way: None }
    }

    /// The page's text with ports that are free here.
    fn with_ports(&self, text: &str) -> String {
        let text = text.replace("127.0.0.1:8080", &format!("127.0.0.1:{}", self.port));
        let text = text.replace("127.0.0.1:9999", &format!("127.0.0.1:{}", self.control));
        text.replace("10.0.2.2:8080", &format!("10.0.2.2:{}", self.port))
    }

    fn command(&self, script: &str) -> Command {
        let old_home = std::env::home_dir().expect("a home");
        let kept = |name: &str, otherwise: &str| {
            std::env::var_os(name).map_or_else(|| old_home.join(otherwise), PathBuf::from)
        };
        let (cargo, rustup) = (kept("CARGO_HOME", ".cargo"), kept("RUSTUP_HOME", ".rustup"));
        let path = std::env::var("PATH").expect("a path");
        let mut shell = Command::new("sh");
        shell.args(["-e", "-c", script]).current_dir(self.home.path()).env("HOME", self.home.path());
        shell.env("PATH", format!("{}/bin:{path}", self.home.path().display()));
        shell.env("CARGO_HOME", cargo).env("RUSTUP_HOME", rustup);
        // What cargo told this test is not for other packages.
        for variable in ["XDG_STATE_HOME", "CARGO_TARGET_DIR", "CARGO_MANIFEST_DIR"] {
            shell.env_remove(variable);
        }
        shell
    }

    /// Runs commands to their end; all that they said.
    fn run(&self, script: &str) -> String {
        let script = self.with_ports(script);
        let output = self.command(&format!("exec 2>&1\n{script}")).output().expect("a shell");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{script}{}\n{said}", output.status);
        said
    }

    /// Starts a command in another terminal.
    fn start(&mut self, script: &str) -> &mut Child {
        let mut command = self.command(&format!("exec {}", self.with_ports(script)));
        let started = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        self.others.push(started.expect("a shell"));
        self.others.last_mut().expect("it was just added")
    }

    /// Keeps what cargo makes of `package` for the next run: the crates below are the same each time.
    fn keep_target(&self, package: &str) {
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("write-your-own");
        fs::create_dir_all(&kept).expect("a directory");
        symlink(kept, self.home.path().join(package).join("target")).expect("a link");
    }

    /// Does what a block of commands says, and looks whether it came out as the page says.
    fn follow(&mut self, commands: &str) {
        if let Some(package) = commands.strip_prefix("nom new ").and_then(|rest| rest.split(' ').next_back())
        {
            self.run(commands);
            self.keep_target(package.trim());
        } else if commands.contains("nom run --host") {
            self.run_as_process(commands);
        } else if commands.contains("nom run --gdb") {
            let (stop, gdb) = commands.split_once('\n').expect("two commands");
            self.run(stop);
            self.start(gdb);
        } else if commands.starts_with("gdb ") {
            self.debug(commands);
        } else if commands.starts_with("perf ") {
            self.profile(commands);
        } else {
            let said = self.run(commands);
            self.judge(commands, &said);
        }
    }

    fn judge(&self, commands: &str, said: &str) {
        let expected: &[&str] = match commands {
            test if test.starts_with("nom test kv") => &["2 passed"],
            run if run.contains("--name kv kv") => {
                &["[1,2]", "kv_puts_total 1\n", "kv_keys 1\n", "Z INFO  kv: keeps up to ", "serves at"]
            }
            fetch if fetch.contains("nom run fetch") => &["HTTP/1.1 404 Not Found", "no such key"],
            _ => &[],
        };
        for expected in expected {
            assert!(said.contains(expected), "{commands}: expected `{expected}` in\n{said}");
        }
        if commands.contains("--name kv kv") {
            self.fill();
        }
    }

    /// Stores until the server refuses, and finds that it serves on.
    fn fill(&self) {
        let value = "x".repeat(12_000);
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut ask = |method: &str, key: &str, body: &str| {
            let head = format!("{method} /{key} HTTP/1.1\r\nContent-Length: {}\r\n\r\n", body.len());
            stream.write_all((head + body).as_bytes()).expect("sent");
            answer(&mut stream)
        };
        let body = format!("{{\"value\": \"{value}\"}}");
        let refused = (0..3000).find(|n| !ask("PUT", &format!("k{n}"), &body).contains("201 Created"));
        let count = refused.expect("it refuses at some time");
        assert!(count > 50, "only {count} values were kept");
        assert!(ask("PUT", "one-more", &body).contains("507 Insufficient Storage"));
        assert!(ask("GET", "numbers", "").ends_with("[1,2]"));
    }

    fn run_as_process(&mut self, command: &str) {
        let is_root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
        if !is_root || !Path::new("/dev/net/tun").exists() {
            return println!("skipped: a process on a TAP device needs root and /dev/net/tun");
        }
        let said = self.start(command).stderr.take().expect("it is piped");
        let mut lines = BufReader::new(said).lines().map_while(Result::ok);
        let way = lines.find_map(|line| {
            let (_, way) = line.split_once("from `")?;
            Some(way.split_once(" COMMAND`")?.0.to_owned())
        });
        let way = way.expect("it says how to reach it");
        // Whoever writes to a pipe that nobody reads is ended.
        std::thread::spawn(move || lines.for_each(|line| eprintln!("{line}")));
        let url = "http://10.0.2.15:8080/numbers";
        let put = format!("{way} curl -sS --retry 30 --retry-all-errors -X PUT -d '{{\"value\": 7}}' {url}");
        let said = self.run(&format!("{put}\n{way} curl -sS {url}"));
        assert!(said.ends_with("{}7"), "{said}");
        self.way = Some(way);
    }

    fn profile(&self, commands: &str) {
        let Some(way) = &self.way else { return println!("skipped: nothing runs as a process") };
        if !is_installed("perf") {
            return println!("skipped: perf is not installed");
        }
        let url = "http://10.0.2.15:8080/numbers";
        let load = format!("for n in $(seq 400); do {way} curl -sS {url}; done >/dev/null &\n");
        let said = self.run(&(load + commands));
        assert!(said.contains("nom_"), "a profile names functions of nom:\n{said}");
    }

    fn debug(&mut self, command: &str) {
        if !is_installed("gdb") {
            return println!("skipped: gdb is not installed");
        }
        let script = self.home.path().join(".local/state/nom/machines/kv-debugged/nom.gdb");
        let end = Instant::now() + PATIENCE;
        while !script.exists() {
            assert!(Instant::now() < end, "there is no {}", script.display());
            std::thread::sleep(Duration::from_millis(50));
        }
        let mut gdb = self.command(&format!("exec {} -ex bt -batch", command.trim()));
        let gdb = gdb.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut gdb = gdb.expect("a shell");
        // The third terminal: a PUT, again and again, since the server takes its time to begin.
        let put = b"PUT /a HTTP/1.1\r\nContent-Length: 12\r\n\r\n{\"value\": 1}";
        while gdb.try_wait().expect("it can be watched").is_none() {
            assert!(Instant::now() < end, "the breakpoint is never hit");
            if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) {
                let _ = stream.write_all(put);
                std::thread::sleep(Duration::from_millis(500));
            }
        }
        let output = gdb.wait_with_output().expect("it has ended");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("Breakpoint 2, ") && said.contains("lib.rs:63"), "{said}");
        assert!(said.contains("answer ()"), "the way there: {said}");
        if let Some(mut machine) = self.others.pop() {
            let _ = machine.kill();
            let _ = machine.wait();
        }
    }
}

/// One answer of the server.
fn answer(stream: &mut TcpStream) -> String {
    let (mut text, mut byte) = (Vec::new(), [0]);
    while !text.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("an answer");
        text.extend(byte);
    }
    let head = String::from_utf8(text).expect("text");
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let mut body = vec![0; length.expect("a length").parse().expect("a number")];
    stream.read_exact(&mut body).expect("its body");
    head + std::str::from_utf8(&body).expect("text")
}

fn is_installed(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

#[test]
fn the_page_builds_and_runs_what_it_says() {
    let mut reader = Reader::new();
    for block in blocks(PAGE) {
        match block {
            Block::File(path, text) => {
                fs::write(reader.home.path().join(&path), reader.with_ports(&text)).expect("written");
            }
            Block::Commands(commands) => {
                println!("{commands}");
                reader.follow(&commands);
            }
        }
    }
}

#[test]
fn files_and_commands_are_told_apart() {
    let page =
        "Make `kv/a.rs` and\nsome, see `kv/b.rs`:\n\n```rust\nfn a() {}\n```\nThen\n```sh\nls kv\n```\n";
    let file = Block::File("kv/a.rs".into(), "fn a() {}\n".into());
    assert_eq!(blocks(page), [file, Block::Commands("ls kv\n".into())]);
}
