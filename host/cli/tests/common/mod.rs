//! The command with a store of its own, and what tests need around it.
#![allow(dead_code, reason = "each test uses a part")]

use nom_vmm::Namespace;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A network namespace of its own for a site, so that no port is taken, if this process may make one.
pub fn namespace(name: &str) -> Option<Namespace> {
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n");
    let may = is_root && Path::new("/dev/net/tun").exists();
    may.then(|| Namespace::create(name, 1).expect("a namespace"))
}

/// The search path, with `nom` before everything else.
pub fn search_path() -> String {
    let programs = Path::new(env!("CARGO_BIN_EXE_nom")).parent().expect("it is in a directory");
    format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default())
}

/// What the server at a port of this computer answers before it closes the connection.
pub fn ask(port: u16, question: &[u8]) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(question)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Far longer than anything takes, on however loaded a computer.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A directory with a store of machines, all of which end with it.
pub struct Site {
    directory: TempDir,
    /// The network namespace in which commands run, if it is not that of the test.
    namespace: Option<String>,
}

impl Site {
    pub fn new() -> Site {
        Site { directory: tempfile::tempdir().expect("a directory"), namespace: None }
    }

    /// Commands run in a network namespace.
    pub fn inside(namespace: &str) -> Site {
        Site { directory: tempfile::tempdir().expect("a directory"), namespace: Some(namespace.to_owned()) }
    }

    /// Commands run in a network namespace, if there is one.
    pub fn at(namespace: Option<&Namespace>) -> Site {
        namespace.map_or_else(Site::new, |namespace| Site::inside(namespace.name()))
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// `program`, to be started where this site is.
    pub fn command(&self, program: &str) -> Command {
        let mut command = match &self.namespace {
            None => Command::new(program),
            Some(namespace) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", namespace, program]);
                command
            }
        };
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        command.current_dir(self.path()).env("XDG_STATE_HOME", self.path()).env("NOM_ROOT", root);
        command
    }

    /// The command `nom` with these words.
    pub fn nom(&self, words: &str) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_nom"));
        command.args(words.split_whitespace());
        command
    }

    /// Runs `nom` and returns what it printed; it must succeed.
    pub fn run(&self, words: &str) -> String {
        let output = self.nom(words).output().expect("it starts");
        assert!(output.status.success(), "nom {words}: {}", said(&output));
        String::from_utf8(output.stdout).expect("text")
    }

    /// Runs `nom`, which must fail, and returns what it complained about.
    pub fn refused(&self, words: &str) -> String {
        let output = self.nom(words).output().expect("it starts");
        assert_eq!(output.status.code(), Some(125), "nom {words}: {}", said(&output));
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// What `nom inspect` says of a machine.
    pub fn inspect(&self, name: &str) -> Value {
        let list: Value = serde_json::from_str(&self.run(&format!("inspect {name}"))).expect("JSON");
        list[0].clone()
    }

    /// Waits until what `nom inspect` says of a machine is as it should be.
    pub fn wait_for(&self, name: &str, what: &str, reached: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let known = self.inspect(name);
            if reached(&known) {
                return known;
            }
            assert!(Instant::now() < end, "waited for {what}: {known:#}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until a machine's console has `text` so many times.
    pub fn wait_for_log(&self, name: &str, text: &str, times: usize) {
        let end = Instant::now() + PATIENCE;
        let log = || self.run(&format!("logs {name}"));
        while log().matches(text).count() < times {
            assert!(Instant::now() < end, "waited for {times} x `{text}`: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, text).expect("written");
        path
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // The store goes with the directory, so nobody could end them later.
        let _ = self.nom("rm --force --all").output();
    }
}

pub fn said(output: &Output) -> String {
    format!(
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// A port of the loopback interface that nobody uses.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.local_addr().expect("bound").port()
}

/// Kills the process that stands at `key` of what is known of a machine.
pub fn kill(known: &Value, key: &str) {
    let id = known[key]["id"].as_u64().expect("a process id").to_string();
    let killed = Command::new("kill").args(["-KILL", &id]).status().expect("`kill` runs");
    assert!(killed.success(), "{key} {id}");
}

/// Says something to an echo server at a port of the loopback interface until it is answered.
pub fn is_echoed(port: u16) {
    let end = Instant::now() + PATIENCE;
    let ask = || -> std::io::Result<[u8; 4]> {
        let mut stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"echo")?;
        let mut answer = [0; 4];
        stream.read_exact(&mut answer)?;
        Ok(answer)
    };
    // QEMU accepts before the guest does.
    while ask().ok() != Some(*b"echo") {
        assert!(Instant::now() < end, "port {port} does not echo");
        std::thread::sleep(Duration::from_millis(50));
    }
}
