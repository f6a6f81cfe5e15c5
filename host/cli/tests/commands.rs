//! Every command of every document is run by a test: those of pages that have a test of their own by that,
//! all others here, as they stand there. A command that nobody runs fails.

mod common;

use common::{PATIENCE, Site, said};
use nom_vmm::Namespace;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Instant;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// Pages with a test of their own, and where it is.
const OWN: [(&str, &str); 4] = [
    ("docs/boot.md", "tests/system/tests/by_hand.rs"),
    ("docs/machines.md", "host/cli/tests/machines_page.rs"),
    ("docs/provider.md", "host/cli/tests/provider.rs"),
    ("docs/write-your-own.md", "host/cli/tests/write_your_own.rs"),
];

/// Who runs a command, and how it ends.
#[derive(Clone, Copy)]
enum How {
    /// This test; it ends by itself, with status 0.
    Ends,
    /// This test; it says this, and ends by Ctrl-C.
    Serves(&'static str),
    /// This test, as [`How::Serves`], if it is root.
    ServesRoot(&'static str),
    /// A test of its own, in this file.
    In(&'static str),
    /// It takes longer than tests may: here it only says what it would do.
    Long,
}
use How::{Ends, In, Long, Serves, ServesRoot};

/// Beginnings of commands, of which the first that fits counts.
const COMMANDS: [(&str, How); 54] = [
    ("./nom demo", In("tests/system/tests/demo.rs")),
    ("./nom test tidy", In(".ci/run")),
    ("./nom test mutants", In("xtask/src/mutants/by_hand.rs")),
    ("./nom test", In(".ci/run")),
    ("./nom run -d --cpus 4 --memory 1G hello", Ends),
    ("./nom ps -a; ./nom logs -f hello-1; ./nom stop hello-1", Ends),
    ("./nom up -d", In("host/cli/tests/machines_page.rs")),
    ("mkdir identity", Ends),
    ("openssl req", Ends),
    ("./nom run -d --name web nhttpd", Ends),
    ("./nom run -d --name front", Ends),
    ("./nom stop front web", Ends),
    ("./nom run --gdb hello", Serves("gdb -x")),
    ("./nom build hello", Ends),
    ("./nom bench boot", Long),
    ("./nom bench serve", Long),
    ("./nom bench wire", Long),
    ("./nom bench bulk", Long),
    ("./nom bench floods", Long),
    ("./nom bench grid", Long),
    ("./nom bench linux", Long),
    ("nom bench table", Long),
    ("./nom run hello", Ends),
    ("./nom run /usr/bin/memcached", In("host/cli/tests/linux_programs.rs")),
    ("./nom run --root", Long),
    ("./nom strace", In("host/cli/tests/linux_programs.rs")),
    ("./nom run redis:7", In("host/cli/tests/linux_images.rs")),
    ("./nom run --oci", In("host/cli/tests/linux_images.rs")),
    ("./nom build /usr/bin/redis-server", Long),
    ("./nom grid", Ends),
    ("./nom run --host memcached", ServesRoot("serves at")),
    ("./nom run --watch --provider", Serves("watch: ")),
    ("./nom run --provider", Serves("watch: ")),
    ("./nom run --watch --utility", In("host/cli/tests/linux_earns.rs")),
    ("./nom run --watch", Serves("watch: ")),
    ("./nom run --ip", Serves("serves at")),
    ("./nom run -v /srv/data:/data", In("host/cli/tests/linux_volumes.rs")),
    ("./nom run -v data.img:/data", In("host/cli/tests/linux_volumes.rs")),
    ("truncate -s 1G data.img", In("host/cli/tests/linux_volumes.rs")),
    ("./nom run -v", Serves("serves at")),
    ("./nom run --network tap", ServesRoot("serves at")),
    ("./nom provider", Serves("http://")),
    ("./nom package", In("tests/system/tests/release.rs")),
    ("./nom top --no-stream", Ends),
    ("./nom top", Serves("gold")),
    ("./nom sim", In("sim/tests/trial.rs")),
    ("curl", Ends),
    ("cargo test -p nom-net --test moves", In("libos/net/tests/moves.rs")),
    ("cargo test -p nom-kernel-pure wfq::", In("kernel/pure/src/wfq.rs")),
    ("cargo test -p nom-system-tests --test costs", In("tests/system/tests/costs.rs")),
    ("NOM_SEQUENCES=", In("tests/system/tests/sequences.rs")),
    ("./nom run --cpus 2 /bin/sh", Ends),
    ("./nom run --cpus 2 -m 128M tests/guest/bundles/sequences.toml", Ends),
    ("cargo test -p nom-fuzz-targets --test replay", In("tests/fuzz/tests/replay.rs")),
];

/// What a page's commands need beside them, which runs until they have ended, and says this first.
const BESIDE: [(&str, &str, &str); 4] = [
    (
        "docs/control.md",
        "nom run --network bridge --cpus 2 -m 128M -e control=9999 -p 9999:9999 memcached",
        "serves at",
    ),
    ("docs/earn.md", "nom provider --listen 127.0.0.1:7070 --prices network_out=1", "http://"),
    ("docs/grid.md", "nom run --network bridge -m 128M -p 9999:9999 apps/memcached/shares.toml", "serves at"),
    ("docs/watch.md", "nom provider --listen 127.0.0.1:7070 --prices network_out=1", "http://"),
];

/// All documents, and the commands between their fences.
fn documents() -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    for directory in ["", "docs"] {
        let entries = std::fs::read_dir(Path::new(ROOT).join(directory)).expect("a directory");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        for path in paths.filter(|path| path.extension().is_some_and(|extension| extension == "md")) {
            let name = Path::new(directory).join(path.file_name().expect("a name")).display().to_string();
            let text = std::fs::read_to_string(path).expect("text");
            let commands = text.split("```sh\n").skip(1).flat_map(|rest| {
                rest.split("```").next().expect("the fence ends").lines().map(str::to_owned)
            });
            found.push((name, commands.collect()));
        }
    }
    found.sort();
    found
}

fn how(page: &str, command: &str) -> How {
    let fitting = COMMANDS.iter().find(|(beginning, _)| command.starts_with(beginning));
    fitting.unwrap_or_else(|| panic!("{page}: nobody runs `{command}`")).1
}

#[test]
fn every_command_of_every_document_is_run_by_a_test() {
    let mut unused: Vec<&str> = COMMANDS.iter().map(|(beginning, _)| *beginning).collect();
    for (page, commands) in documents() {
        if let Some((_, test)) = OWN.iter().find(|(own, _)| *own == page) {
            let text = std::fs::read_to_string(Path::new(ROOT).join(test)).expect("its test");
            assert!(text.contains(&page), "{test} does not read {page}");
            continue;
        }
        for command in commands {
            unused.retain(|beginning| !command.starts_with(beginning));
            if let In(place) = how(&page, &command) {
                assert!(Path::new(ROOT).join(place).exists(), "{page}: `{command}`: there is no {place}");
            }
        }
    }
    assert!(unused.is_empty(), "no document has {unused:?}");
}

/// Where commands run: nobody else's ports are there, and what a checkout has.
struct Desk {
    site: Site,
    namespace: Option<Namespace>,
}

impl Desk {
    fn new(name: &str) -> Desk {
        let namespace = common::namespace(name);
        let site = Site::at(namespace.as_ref());
        let desk = site.path().join("desk");
        std::fs::create_dir(&desk).expect("a directory");
        let links = ["apps", "tests"].map(|name| (name, Path::new(ROOT).join(name)));
        for (file, target) in links.into_iter().chain([("nom", env!("CARGO_BIN_EXE_nom").into())]) {
            std::os::unix::fs::symlink(target, desk.join(file)).expect("a link");
        }
        std::fs::create_dir(site.path().join("www")).expect("a directory");
        site.write("www/index.html", "<p>hello</p>");
        Desk { site, namespace }
    }

    /// A command as it stands, but for the two names that a reader chooses.
    fn shell(&self, command: &str) -> Command {
        let www = self.site.path().join("www").display().to_string();
        let (command, comment) = command.split_once(" # ").unwrap_or((command, ""));
        let command = command.trim_end().replace("/srv/www", &www);
        // A status that says no is a failure here.
        let command = command.replace("curl ", "curl -sS --fail-with-body --retry 5 --retry-all-errors ");
        let command = match command.strip_suffix(" APP") {
            Some(command) => format!("{command} memcached"),
            None => command,
        };
        println!("$ {command} # {comment}");
        let mut shell = self.site.command("sh");
        // What goes on is the shell itself, so that Ctrl-C reaches it.
        let is_one = !command.contains(';') || command.contains('\'');
        let script = if is_one { format!("exec {command}") } else { format!("set -e; {command}") };
        let script = format!("exec 2>&1; {script}");
        shell
            .args(["-c", &script])
            .current_dir(self.site.path().join("desk"))
            .env("PATH", common::search_path())
            .stdin(Stdio::null());
        shell
    }

    fn ends(&self, command: &str) {
        let output = self.shell(command).output().expect("a shell");
        assert!(output.status.success(), "`{command}`: {}", said(&output));
    }

    fn start(&self, command: &str, says: &str) -> Serving {
        let mut child = self.shell(command).stdout(Stdio::piped()).spawn().expect("a shell");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let serving = Serving(child);
        // In a thread, which takes what it says further, too, so that it never waits for a reader.
        let (sender, said) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                // Nobody listens any more once it has said what it should.
                let _ = sender.send(line);
            }
        });
        let end = Instant::now() + PATIENCE;
        let mut all = Vec::new();
        while let Ok(line) = said.recv_timeout(end.saturating_duration_since(Instant::now())) {
            if line.contains(says) {
                return serving;
            }
            all.push(line);
        }
        panic!("`{command}` does not say `{says}`: {all:#?}");
    }

    fn follow(&self, page: &str, command: &str) {
        let is_root = self.namespace.is_some();
        match how(page, command) {
            Ends => self.ends(command),
            Serves(says) => self.start(command, says).interrupt(command),
            ServesRoot(says) if is_root => self.start(command, says).interrupt(command),
            ServesRoot(_) => eprintln!("skipped: `{command}` needs root and /dev/net/tun"),
            In(_) => {}
            Long => {
                let (command, _) = command.split_once('#').unwrap_or((command, ""));
                // What stands behind a program of Linux is the program's.
                let (own, program) = command.split_at(command.find(" /usr/").unwrap_or(command.len()));
                self.ends(&format!("{own} --help{program}"));
            }
        }
    }
}

/// A command that goes on.
struct Serving(Child);

impl Serving {
    /// Ctrl-C, after which it ends, with the status that says so or with 0.
    fn interrupt(mut self, command: &str) {
        let pid = Pid::from_raw(self.0.id().cast_signed()).expect("a process");
        kill_process(pid, Signal::INT).expect("it runs");
        let end = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.0.try_wait().expect("it is ours") {
                break status;
            }
            assert!(Instant::now() < end, "`{command}` does not end");
            std::thread::sleep(std::time::Duration::from_millis(20));
        };
        assert!(matches!(status.code(), Some(0 | 130)), "`{command}`: {status}");
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_commands_of_the_documents_do_what_they_say() {
    let desk = Desk::new("test-cli-docs");
    for (page, commands) in documents() {
        if OWN.iter().any(|(own, _)| *own == page) {
            continue;
        }
        let beside = BESIDE.iter().filter(|(of, ..)| *of == page);
        if desk.namespace.is_none() && beside.clone().any(|(_, command, _)| command.contains("bridge")) {
            eprintln!("skipped: {page} needs root and /dev/net/tun");
            continue;
        }
        let beside: Vec<Serving> = beside.map(|(_, command, says)| desk.start(command, says)).collect();
        for command in commands {
            desk.follow(&page, &command);
        }
        for serving in beside {
            serving.interrupt(&page);
        }
    }
}
