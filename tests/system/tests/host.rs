//! Applications as processes of this computer: the same sources, without a machine.

use nom_build::{Process, Project};
use nom_system_tests::tap_is_possible;
use nom_vmm::{Namespace, namespace};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server with a network namespace of its own; both end with this value.
struct Server {
    child: Child,
    namespace: Namespace,
}

impl Server {
    /// Starts an application of `apps/` on one core and waits until it serves. `None` if that takes rights
    /// that are missing, which is said.
    fn start(app: &str) -> Option<Server> {
        Server::start_on(app, 1)
    }

    /// The same on `cores` cores, with a queue of the TAP device each.
    fn start_on(app: &str, cores: u32) -> Option<Server> {
        Server::start_by(app, cores, Namespace::create, None)
    }

    /// The same by XDP sockets at one end of a virtual Ethernet pair.
    fn start_by_xdp(app: &str, cores: u32) -> Option<Server> {
        Server::start_by(app, cores, Namespace::with_pair, Some(namespace::PEER))
    }

    fn start_by(
        app: &str,
        cores: u32,
        create: impl Fn(&str, u32) -> anyhow::Result<Namespace>,
        xdp: Option<&str>,
    ) -> Option<Server> {
        if !tap_is_possible(app) {
            return None;
        }
        // Tests run beside each other, and a namespace is named after machine and process.
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let process = build(app);
        let namespace = create(&format!("test-{app}-{number}"), cores).expect("a namespace");
        let mut command = namespace.command(&process.program);
        command.env("cores", cores.to_string()).envs(xdp.map(|name| ("xdp", name)));
        let child = process.furnish(&mut command).stdout(Stdio::piped()).spawn().expect("it starts");
        // From here on a failure ends it.
        let mut server = Server { child, namespace };
        let output = server.child.stdout.take().expect("it is piped");
        let line = BufReader::new(output).lines().next().expect("it says something").expect("it is text");
        assert!(line.starts_with("serves at 10.0.2.15, TCP ["), "{line}");
        assert!(cores == 1 || line.ends_with(&format!(", on {cores} cores")), "{line}");
        Some(server)
    }

    /// What it answers to `request` at `port` until it closes the connection.
    fn talk(&self, port: u16, request: &[u8]) -> Vec<u8> {
        let talk = || {
            self.namespace.enter().expect("entered");
            let mut stream = TcpStream::connect((namespace::GUEST, port)).expect("the server accepts");
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout is set");
            stream.write_all(request).expect("the request is sent");
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).expect("the server answers and closes");
            answer
        };
        std::thread::scope(|scope| scope.spawn(talk).join().expect("no panic"))
    }
}

impl Server {
    /// Processor time of its cores but the first, from the scheduler's statistics of its threads.
    fn ran_on_further_cores_ns(&self) -> u64 {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("it runs");
        let ran = |thread: &Path| {
            let text = std::fs::read_to_string(thread.join("schedstat")).expect("statistics");
            text.split(' ').next().expect("a number").parse::<u64>().expect("a number")
        };
        let threads = threads.map(|thread| thread.expect("a thread").path());
        let name = |thread: &Path| std::fs::read_to_string(thread.join("comm")).expect("a name");
        threads.filter(|thread| name(thread).starts_with("core ")).map(|thread| ran(&thread)).sum()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn build(app: &str) -> Process {
    let project = Project::find().expect("a checkout");
    let manifest = project.manifest_path(app).expect("an application");
    project.process(project.bundle(&manifest, None).expect("it is right")).expect("it builds")
}

#[test]
fn an_application_without_devices_is_an_ordinary_program() {
    let process = build("hello");
    let output = Command::new(&process.program).args(["one", "two"]).output().expect("it runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "Hello from nom! one two\n");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn memcached_answers_and_keeps_what_it_is_given() {
    let Some(server) = Server::start("memcached") else { return };
    answers_and_keeps(&server);
}

#[test]
fn memcached_answers_by_xdp() {
    let Some(server) = Server::start_by_xdp("memcached", 1) else { return };
    answers_and_keeps(&server);
}

fn answers_and_keeps(server: &Server) {
    let answer = server.talk(11211, b"set a 0 0 5\r\nhello\r\nget a b\r\nnonsense\r\nquit\r\n");
    assert_eq!(String::from_utf8_lossy(&answer), "STORED\r\nVALUE a 0 5\r\nhello\r\nEND\r\nERROR\r\n");
    // Large enough for segments that are cut and joined, both ways.
    let value: Vec<u8> = (0..700_000u32).map(|index| b'a' + (index % 23) as u8).collect();
    let head = format!("large 0 0 {}\r\n", value.len());
    let request = [b"set ", head.as_bytes(), &value, b"\r\nget large\r\nquit\r\n"].concat();
    let expected = [b"STORED\r\nVALUE large 0 700000\r\n".as_slice(), &value, b"\r\nEND\r\n"].concat();
    assert!(server.talk(11211, &request) == expected, "700,000 bytes come back as they went");
}

#[test]
fn memcached_is_capable() {
    let Some(server) = Server::start("memcached") else { return };
    let host = namespace::GUEST.to_string();
    let mut client = server.namespace.command("timeout");
    let output =
        client.args(["60", "memccapable", "-h", &host, "-p", "11211"]).output().expect("`timeout` runs");
    if output.status.code() == Some(127) {
        return println!("skipped: memccapable is not installed");
    }
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("All tests passed"), "{said}");
}

#[test]
fn memcached_serves_on_several_cores() {
    let Some(server) = Server::start_on("memcached", 2) else { return };
    serves_on_several_cores(&server);
}

/// Linux chooses an end's queue by the processor that sends, so that a connection's frames come to either
/// core.
#[test]
fn memcached_serves_on_several_cores_by_xdp() {
    let Some(server) = Server::start_by_xdp("memcached", 2) else { return };
    serves_on_several_cores(&server);
}

/// Connections reach both cores, and the items of one are those of the other.
fn serves_on_several_cores(server: &Server) {
    assert_eq!(server.talk(11211, b"set shared 0 0 3\r\nyes\r\nquit\r\n"), b"STORED\r\n");
    let idle_ns = server.ran_on_further_cores_ns();
    let mut ask = Vec::new();
    for number in 0..24 {
        let request = format!("get shared\r\nset {number} 0 0 1\r\nx\r\nget {number}\r\nquit\r\n");
        let expected =
            format!("VALUE shared 0 3\r\nyes\r\nEND\r\nSTORED\r\nVALUE {number} 0 1\r\nx\r\nEND\r\n");
        ask.push((request, expected));
    }
    std::thread::scope(|scope| {
        for (request, expected) in &ask {
            scope.spawn(|| {
                let answer = server.talk(11211, request.as_bytes());
                assert_eq!(String::from_utf8_lossy(&answer), *expected);
            });
        }
    });
    assert!(server.ran_on_further_cores_ns() > idle_ns, "the other core has done something, too");
}

#[test]
fn who_asks_for_an_interface_that_is_not_there_is_told() {
    let Some(server) = Server::start_by_xdp("memcached", 1) else { return };
    let refused = |name: &str| {
        let process = build("memcached");
        let mut command = server.namespace.command(&process.program);
        let output = process.furnish(command.env("xdp", name)).output().expect("it runs");
        assert!(!output.status.success());
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    for (name, reason) in [
        ("xdp7", "XDP on `xdp7`: cannot find it: No such device (os error 19); expected an interface"),
        ("lo", "XDP on `lo`: cannot ask for its MTU"),
        (namespace::PEER, "XDP on `xdp0`: cannot attach a program: Device or resource busy (os error 16)"),
    ] {
        let said = refused(name);
        assert!(said.contains(reason), "{said}");
    }
}

#[test]
fn nhttpd_serves_files() {
    let Some(server) = Server::start("nhttpd") else { return };
    let page = server.talk(80, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let page = String::from_utf8_lossy(&page);
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.contains("It earns."), "{page}");
}
