//! Unmodified servers of this computer, in machines, under clients of their own: docs/linux.md.

mod common;

use common::{PATIENCE, Site, ask, free_port, said};
use std::io::Read;
use std::net::UdpSocket;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A server in a machine.
struct Server {
    site: Site,
    /// Where its ports are on this computer, in the order in which they were asked for.
    ports: Vec<u16>,
}

impl Server {
    /// One that runs `program`, a path and its arguments, with `options` of `nom run`; nothing if it is not
    /// installed, which is said with the package that brings it.
    fn start(site: Site, package: &str, ports: &[u16], options: &str, program: &[&str]) -> Option<Server> {
        if !is_there(package, program[0]) {
            return None;
        }
        let own: Vec<u16> = ports.iter().map(|_| free_port()).collect();
        let published = own.iter().zip(ports).map(|(own, port)| format!(" -p {own}:{port}"));
        let words = format!("run -d --name server {options}{}", published.collect::<String>());
        let mut command = site.nom(&words);
        command.arg(program[0]).arg("--").args(&program[1..]);
        let output = command.output().expect("it starts");
        assert!(output.status.success(), "{}", said(&output));
        Some(Server { site, ports: own })
    }

    /// Waits until it answers `question` at its first port with something that has `part` in it.
    fn wait_for(&self, question: &[u8], part: &str) {
        // QEMU accepts before the guest does.
        self.wait_until("it answers", || {
            ask(self.ports[0], question).is_ok_and(|answer| answer.contains(part))
        });
    }

    /// Waits until it `is` so.
    fn wait_until(&self, what: &str, is: impl Fn() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is() {
            assert!(Instant::now() < end, "not yet: {what}: {}", self.site.run("logs server"));
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// What a client, which must succeed, says of the server.
    fn client(&self, words: &[&str]) -> String {
        let output = Command::new(words[0]).args(&words[1..]).stdin(Stdio::null()).output();
        let output = output.unwrap_or_else(|error| panic!("{}: {error}", words[0]));
        assert!(output.status.success(), "{words:?}: {}{}", said(&output), self.site.run("logs server"));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Loads an HTTP server with ten connections that are kept, and finds no error: for a second, and for
    /// longer where nobody has an answer by then, as on a busy computer.
    fn load(&self, index: usize, path: &str) {
        if !is_there("wrk", "/usr/bin/wrk") {
            return;
        }
        let target = format!("http://127.0.0.1:{}{path}", self.ports[index]);
        let mut said = String::new();
        for seconds in ["1", "5", "25"] {
            said = self.client(&["wrk", "-c", "10", "-t", "1", "-d", seconds, "--timeout", "30", &target]);
            assert!(
                !said.contains("Socket errors") && !said.contains("Non-2xx"),
                "{said}{}",
                self.site.run("logs server")
            );
            let requests = said.lines().find_map(|line| line.trim().split_once(" requests in "));
            if requests.and_then(|(count, _)| count.parse::<u64>().ok()).is_some_and(|count| count > 0) {
                return;
            }
        }
        panic!("nobody was answered: {said}{}", self.site.run("logs server"));
    }

    /// The answer to a GET, with its head.
    fn get(&self, index: usize, path: &str) -> String {
        self.try_to_get(index, path).expect("an answer")
    }

    fn try_to_get(&self, index: usize, path: &str) -> std::io::Result<String> {
        let question = format!("GET {path} HTTP/1.1\r\nHost: nom\r\nConnection: close\r\n\r\n");
        ask(self.ports[index], question.as_bytes())
    }
}

/// Whether a program is there; says which package brings it if it is not.
fn is_there(package: &str, program: &str) -> bool {
    let is_there = Path::new(program).exists();
    if !is_there {
        eprintln!("skipped: there is no {program}: apt-get install {package}");
    }
    is_there
}

/// Options for an interpreter of Python with its library, which it brings only if it is the program that is
/// run.
const WITH_PYTHON: &str = "--include /usr/bin/python3 --include /usr/lib/python3.11";
const GET: &[u8] = b"GET /hello HTTP/1.0\r\n\r\n";

#[test]
fn redis_serves_its_own_clients() {
    let options = ["--protected-mode", "no", "--save", "", "--appendonly", "yes", "--dir", "/tmp"];
    let program = [&["/usr/bin/redis-server"][..], &options].concat();
    let Some(server) = Server::start(Site::new(), "redis-server", &[6379], "", &program) else { return };
    server.wait_for(b"PING\r\nQUIT\r\n", "PONG");
    if !is_there("redis-tools", "/usr/bin/redis-benchmark") {
        return;
    }
    let port = server.ports[0].to_string();
    let redis = |words: &[&str]| server.client(&[&["redis-cli", "-p", &port][..], words].concat());
    assert_eq!(redis(&["set", "nom", "earns"]).trim(), "OK");
    assert_eq!(redis(&["get", "nom"]).trim(), "earns");
    let script = "return redis.call('incrby', KEYS[1], ARGV[1]) * 2";
    assert_eq!(redis(&["eval", script, "1", "count", "21"]).trim(), "42");
    assert!(redis(&["info", "persistence"]).contains("aof_last_write_status:ok"));
    saves_by_a_child(&redis);
    let tests = "ping,set,get,incr,lpush,rpop,sadd,hset,zadd,lrange_100,mset";
    let benchmark =
        ["redis-benchmark", "-p", &port, "-n", "300", "-c", "10", "-P", "4", "--csv", "-t", tests];
    let said = server.client(&benchmark);
    assert!(said.lines().count() > 11 && said.contains("\"ZADD\""), "{said}");
}

#[test]
fn nginx_serves_files_in_one_process() {
    let site = Site::new();
    let configuration = "master_process off; daemon off; error_log stderr; pid /tmp/pid;\n\
        events { worker_connections 64; }\n\
        http { access_log off; sendfile on; include /etc/nginx/mime.types;\n\
        client_body_temp_path /tmp/a; proxy_temp_path /tmp/b; fastcgi_temp_path /tmp/c;\n\
        uwsgi_temp_path /tmp/d; scgi_temp_path /tmp/e;\n\
        server { listen 80; root /etc/nginx; location /hello { return 200 \"hello\\n\"; } } }\n";
    let file = site.write("nginx.conf", configuration);
    let path = file.display().to_string();
    let options = format!("--include /etc/nginx/mime.types --include {path}");
    let program = ["/usr/sbin/nginx", "-c", &path];
    let Some(server) = Server::start(site, "nginx", &[80], &options, &program) else { return };
    server.wait_for(GET, "hello\n");
    let types = std::fs::read_to_string("/etc/nginx/mime.types").expect("it is there");
    assert!(server.get(0, "/mime.types").ends_with(&types));
    let (first, rest) = (server.get(0, "/absent"), "HTTP/1.1 404 Not Found");
    assert!(first.starts_with(rest), "{first}");
    server.load(0, "/mime.types");
}

/// A child of redis writes what there was when it began, while its parent goes on.
fn saves_by_a_child(redis: &dyn Fn(&[&str]) -> String) {
    let fill = "for n = 1, ARGV[1] do redis.call('set', 'key:' .. n, 'before') end return ARGV[1]";
    assert_eq!(redis(&["eval", fill, "0", "20000"]).trim(), "20000");
    assert!(redis(&["bgsave"]).contains("Background saving started"));
    assert_eq!(redis(&["set", "key:7", "after"]).trim(), "OK");
    let end = Instant::now() + PATIENCE;
    while redis(&["info", "persistence"]).contains("rdb_bgsave_in_progress:1") {
        assert!(Instant::now() < end, "the child does not end");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(redis(&["info", "persistence"]).contains("rdb_last_bgsave_status:ok"));
    assert!(!redis(&["info", "stats"]).contains("total_forks:0"));
    assert_eq!(redis(&["get", "key:7"]).trim(), "after");
    assert_eq!(redis(&["get", "key:8"]).trim(), "before");
}

/// The processes of a server that share its port.
#[test]
fn nginx_serves_with_a_master_and_two_workers() {
    let site = Site::new();
    let configuration = "daemon off; worker_processes 2; user nobody nogroup; pid /tmp/pid;\n\
        error_log stderr notice; events { worker_connections 64; }\n\
        http { access_log off; sendfile on; include /etc/nginx/mime.types;\n\
        client_body_temp_path /tmp/a; proxy_temp_path /tmp/b; fastcgi_temp_path /tmp/c;\n\
        uwsgi_temp_path /tmp/d; scgi_temp_path /tmp/e;\n\
        server { listen 80; root /etc/nginx; location /hello { return 200 \"$pid\\n\"; } } }\n";
    let path = site.write("nginx.conf", configuration).display().to_string();
    let options = format!("--include /etc/nginx/mime.types --include {path}");
    let program = ["/usr/sbin/nginx", "-c", &path];
    let Some(server) = Server::start(site, "nginx", &[80], &options, &program) else { return };
    server.wait_for(GET, "200 OK");
    let said = server.site.run("logs server");
    assert!(said.contains("start worker process 2") && said.contains("start worker process 3"), "{said}");
    let types = std::fs::read_to_string("/etc/nginx/mime.types").expect("it is there");
    assert!(server.get(0, "/mime.types").ends_with(&types));
    let answer = server.get(0, "/hello");
    let worker = answer.lines().last().and_then(|line| line.parse::<u32>().ok());
    assert!(worker.is_some_and(|worker| worker > 1), "the master serves nobody: {answer}");
    server.load(0, "/mime.types");
}

#[test]
fn lighttpd_serves_files() {
    let site = Site::new();
    let configuration = "server.document-root = \"/etc\"\nserver.port = 80\n\
        server.errorlog = \"/dev/stderr\"\nmimetype.assign = ( \"\" => \"text/plain\" )\n";
    let path = site.write("lighttpd.conf", configuration).display().to_string();
    let options = format!("--include /usr/lib/lighttpd --include {path}");
    let program = ["/usr/sbin/lighttpd", "-D", "-f", &path];
    let Some(server) = Server::start(site, "lighttpd", &[80], &options, &program) else { return };
    server.wait_for(GET, "404 Not Found");
    let names = std::fs::read_to_string("/etc/passwd").expect("it is there");
    assert!(server.get(0, "/passwd").ends_with(&names));
    server.load(0, "/passwd");
}

/// Processes of several threads each, which share a port and a board of who does what.
#[test]
fn apache_serves_with_two_processes_of_threads() {
    let site = Site::new();
    let configuration = "ServerRoot /tmp\nServerName nom\nPidFile /tmp/pid\nListen 80\nErrorLog /dev/stderr\n\
        LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so\n\
        LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so\n\
        StartServers 2\nUser nobody\nGroup nogroup\nDocumentRoot /etc\n\
        <Directory /etc>\nRequire all granted\n</Directory>\n";
    let path = site.write("apache.conf", configuration).display().to_string();
    let options = format!("--include /usr/lib/apache2/modules --include {path}");
    let program = ["/usr/sbin/apache2", "-D", "FOREGROUND", "-f", &path];
    let Some(server) = Server::start(site, "apache2-bin", &[80], &options, &program) else { return };
    server.wait_for(GET, "404 Not Found");
    let names = std::fs::read_to_string("/etc/passwd").expect("it is there");
    assert!(server.get(0, "/passwd").ends_with(&names));
    server.load(0, "/passwd");
}

/// BIND listens at each address of each interface, by UDP and TCP.
#[test]
fn bind_answers_at_each_address() {
    answers_names("bind9", &["/usr/sbin/named", "-g"], |zone| {
        format!(
            "options {{ directory \"/tmp\"; pid-file none; session-keyfile \"/tmp/key\"; recursion no; \
             dnssec-validation no; listen-on {{ any; }}; }};\ncontrols {{ }};\n\
             zone \"example.org\" {{ type primary; file \"{zone}\"; }};\n"
        )
    });
}

/// NSD has its sockets' buffers be as long as root may.
#[test]
fn nsd_answers() {
    answers_names("nsd", &["/usr/sbin/nsd", "-d"], |zone| {
        format!(
            "server:\n ip-address: 0.0.0.0\n username: \"\"\n zonesdir: /tmp\n database: \"\"\n \
             pidfile: \"\"\n zonelistfile: /tmp/zones\n xfrdfile: /tmp/state\n xfrdir: /tmp\n\
             remote-control:\n control-enable: no\nzone:\n name: example.org\n zonefile: {zone}\n"
        )
    });
}

/// A name server that is configured to have the zone of a path answers by UDP and TCP.
fn answers_names(package: &str, program: &[&str], configuration: impl Fn(&str) -> String) {
    const ZONE: &str = "$TTL 300\n@ IN SOA ns.example.org. admin.example.org. 1 3600 600 86400 300\n\
        @ IN NS ns.example.org.\nns IN A 192.0.2.1\nwww IN A 192.0.2.2\n";
    if !is_there("bind9-dnsutils", "/usr/bin/dig") {
        return;
    }
    let site = Site::new();
    let zone = site.write("example.zone", ZONE).display().to_string();
    let path = site.write("server.conf", &configuration(&zone)).display().to_string();
    let port = free_port();
    let options = format!("--include {path} --include {zone} -p {port}:53/udp");
    let words = [program, &["-c", &path]].concat();
    let Some(server) = Server::start(site, package, &[53], &options, &words) else { return };
    let asks = |port: u16, by: &str| {
        let port = port.to_string();
        let words = ["+tries=1", "+time=2", "+short", by, "@127.0.0.1", "-p", &port, "www.example.org"];
        Command::new("dig").args(words).output().expect("it starts").stdout == b"192.0.2.2\n"
    };
    server.wait_until("it answers by UDP", || asks(port, "+notcp"));
    server.wait_until("it answers by TCP", || asks(server.ports[0], "+tcp"));
}

/// A process a connection, users, and a terminal for whoever wants one.
#[test]
fn sshd_lets_somebody_in_with_his_key_and_a_terminal() {
    const SSHD: &str = "/usr/sbin/sshd";
    let site = Site::new();
    if !is_there("openssh-server", SSHD) || !is_there("openssh-client", "/usr/bin/ssh") {
        return;
    }
    let key = site.path().join("key").display().to_string();
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", &key]).output();
    assert!(made.is_ok_and(|made| made.status.success()), "a key is made");
    // Whose directories these are here matters to sshd: it looks at copies there.
    let script = format!(
        "mkdir -p /run/sshd /tmp/keys && cp {key} {key}.pub /tmp/keys && chmod 600 /tmp/keys/key && \
         exec {SSHD} -D -e -f /dev/null -h /tmp/keys/key -o AuthorizedKeysFile=/tmp/keys/key.pub \
         -o StrictModes=no -o UsePAM=no"
    );
    let included = [SSHD, "/bin/bash", "/bin/mkdir", "/bin/cp", "/bin/chmod", "/usr/bin/id", "/usr/bin/tty"];
    let included: String = included.iter().map(|path| format!("--include {path} ")).collect();
    let options = format!("{included} --include {key} --include {key}.pub");
    let server = Server::start(site, "dash", &[22], &options, &["/bin/sh", "-c", &script]);
    let server = server.expect("a shell is there");
    server.wait_until("it greets", || {
        let mut greeting = [0; 4];
        let connection = std::net::TcpStream::connect(("127.0.0.1", server.ports[0]));
        connection.and_then(|mut it| it.read_exact(&mut greeting)).is_ok_and(|()| greeting == *b"SSH-")
    });
    let port = server.ports[0].to_string();
    let ssh = |words: &[&str]| {
        let trusting =
            ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "BatchMode=yes"];
        let words = [
            &["ssh", "-q", "-i", &key, "-p", &port][..],
            &trusting,
            &words[..1],
            &["root@127.0.0.1"],
            &words[1..],
        ];
        server.client(&words.concat())
    };
    let said = ssh(&["-T", "id; tty || true"]);
    assert!(said.contains("uid=0(root)") && said.contains("not a tty"), "{said}");
    let said = ssh(&["-tt", "tty; echo $((6 * 7))"]);
    assert!(said.contains("/dev/pts/") && said.contains("42"), "{said}");
}

#[test]
fn haproxy_answers_with_two_threads() {
    let site = Site::new();
    let configuration = "global\n  nbthread 2\n  log stderr format raw local0\n\
        defaults\n  mode http\n  timeout connect 5s\n  timeout client 30s\n  timeout server 30s\n\
        frontend front\n  bind *:80\n  http-request return status 200 content-type text/plain \
        string \"balanced\\n\" if { path /hello }\n";
    let path = site.write("haproxy.cfg", configuration).display().to_string();
    let program = ["/usr/sbin/haproxy", "-f", &path];
    let options = format!("--include {path}");
    let Some(server) = Server::start(site, "haproxy", &[80], &options, &program) else { return };
    server.wait_for(GET, "balanced\n");
    server.load(0, "/hello");
}

#[test]
fn python_serves_with_threads_and_with_asyncio() {
    let site = Site::new();
    let path = site.write("serve.py", include_str!("linux/serve.py")).display().to_string();
    if !is_there("python3", "/usr/bin/python3") {
        return;
    }
    let is_whole = Command::new("/usr/bin/python3").args(["-c", "import asyncio, http.server"]).status();
    if !is_whole.is_ok_and(|status| status.success()) {
        eprintln!("skipped: python3 has no library: apt-get install python3");
        return;
    }
    let program = ["/usr/bin/python3", &path];
    let options = format!("--include {path}");
    let Some(server) = Server::start(site, "python3", &[80, 81], &options, &program) else { return };
    server.wait_for(GET, "threads: /hello\n");
    // It comes to that one later.
    server.wait_until("asyncio answers", || {
        server.try_to_get(1, "/hello").is_ok_and(|answer| answer.ends_with("asyncio: /hello\n"))
    });
    server.load(0, "/");
    server.load(1, "/");
    // Beside a thread that makes no call, ever.
    assert!(server.get(1, "/compute").ends_with("asyncio: /compute\n"));
    for _ in 0..5 {
        assert!(server.get(0, "/hello").ends_with("threads: /hello\n"));
        assert!(server.get(1, "/hello").ends_with("asyncio: /hello\n"));
    }
}

/// The peer that cuts them and puts them together again is QEMU's network.
#[test]
fn datagrams_longer_than_a_packet_come_and_go() {
    if !is_there("python3", "/usr/bin/python3") {
        return;
    }
    let site = Site::new();
    let path = site.write("datagrams.py", include_str!("linux/datagrams.py")).display().to_string();
    let port = free_port();
    let options = format!("--include {path} -p {port}:7/udp");
    let program = ["/usr/bin/python3", &path];
    let Some(server) = Server::start(site, "python3", &[], &options, &program) else { return };
    let client = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    client.connect(("127.0.0.1", port)).expect("an address");
    client.set_read_timeout(Some(Duration::from_millis(500))).expect("a timeout");
    // Others than the one that is waited for may yet come: each question is asked until it is answered.
    let is_answered = |question: &[u8], answer: &[u8]| {
        let mut bytes = vec![0; 65_535];
        let end = Instant::now() + PATIENCE;
        let mut is_it = false;
        while !is_it {
            let said = || server.site.run("logs server");
            assert!(Instant::now() < end, "no answer of {} bytes: {}", answer.len(), said());
            client.send(question).expect("it is sent");
            is_it = client.recv(&mut bytes).is_ok_and(|count| bytes[..count] == *answer);
        }
    };
    for len in [5u32, 1472, 1473, 5000, 60_000] {
        let question: Vec<u8> = (0..len).map(|byte| (byte / 3) as u8).collect();
        let answer: Vec<u8> = question.iter().rev().copied().collect();
        is_answered(&question, &answer);
    }
    is_answered(b"whole", b"EMSGSIZE");
}

/// Of Go's own sources, compiled here: a static program, with a runtime that calls Linux by itself.
#[test]
fn a_static_server_in_go_serves() {
    let Ok(version) = Command::new("go").arg("version").output() else {
        eprintln!("skipped: there is no go: apt-get install golang-go");
        return;
    };
    assert!(version.status.success(), "{}", said(&version));
    let site = Site::new();
    site.write("serve.go", include_str!("linux/serve.go"));
    let mut compile = site.command("go");
    compile.args(["build", "-o", "serve", "serve.go"]).env("CGO_ENABLED", "0").env("GO111MODULE", "off");
    let output = compile.env("GOCACHE", site.path().join("cache")).output().expect("it starts");
    assert!(output.status.success(), "{}", said(&output));
    let program = site.path().join("serve").display().to_string();
    let server = Server::start(site, "golang-go", &[80], "--cpus 2", &[&program]).expect("it was built");
    server.wait_for(GET, "go: /hello\n");
    server.load(0, "/");
}

/// V8 compiles while it runs, with several threads.
#[test]
fn node_serves_with_its_own_library() {
    let site = Site::new();
    let path = site.write("serve.js", include_str!("linux/serve.js")).display().to_string();
    let program = ["/usr/bin/node", &path];
    let options = format!("-m 1G --include {path}");
    let Some(server) = Server::start(site, "nodejs", &[80], &options, &program) else { return };
    server.wait_for(GET, "node: /hello\n");
    assert!(server.get(0, "/compute").ends_with("node: 6765\n"));
    server.load(0, "/");
}

/// The JVM catches signals of its own, reserves memory that it never touches, and compiles while it runs,
/// beside its program on another processor.
#[test]
fn java_serves_with_four_threads() {
    let Some(home) = java_home() else { return };
    let site = Site::new();
    let options =
        format!("-m 2G --cpus 2{}", java_files(&site, &home, "Serve", include_str!("linux/Serve.java")));
    let classes = site.path().display().to_string();
    let program = [&format!("{home}/bin/java"), "-Xmx64m", "-cp", &classes, "Serve"];
    let server = Server::start(site, "openjdk-17-jdk-headless", &[80], &options, &program);
    let server = server.expect("it is there");
    server.wait_for(GET, "java: /hello\n");
    assert!(server.get(0, "/compute").ends_with("java: 65536000 bytes\n"));
    server.load(0, "/");
}

/// Options for a class that is compiled here, and for what a JVM loads by itself; among it what finds
/// `libjvm.so` because that is loaded before.
fn java_files(site: &Site, home: &str, class: &str, source: &str) -> String {
    let file = format!("{class}.java");
    site.write(&file, source);
    let output = site.command(&format!("{home}/bin/javac")).arg(&file).output().expect("it starts");
    assert!(output.status.success(), "{}", said(&output));
    let parts = "server modules jvm.cfg tzdb.dat libjava.so libjimage.so libnet.so libnio.so libzip.so \
                 libextnet.so libverify.so libattach.so";
    let parts: String = parts.split(' ').map(|part| format!(" --include {home}/lib/{part}")).collect();
    format!(" --include {home}/conf{parts} --include {}/{class}.class", site.path().display())
}

/// A heap that was full gives back what nobody needs when others need it: the virtual machine is asked, and
/// nobody ends.
#[test]
fn java_gives_back_what_its_heap_does_not_need_when_memory_is_scarce() {
    let Some(home) = java_home() else { return };
    if !is_there("python3", "/usr/bin/python3") {
        return;
    }
    let site = Site::new();
    let files = java_files(&site, &home, "Heap", include_str!("linux/Heap.java"));
    let taker = site.write("take.py", include_str!("linux/take.py")).display().to_string();
    let words =
        format!("run -m 352M{files} --include {home}/bin/java {WITH_PYTHON} --include {taker} /bin/sh");
    let mut run = site.nom(&words);
    let classes = site.path().display();
    let script = format!("{home}/bin/java -Xmx160m -cp {classes} Heap & /usr/bin/python3 {taker}; wait");
    let output = run.args(["--", "-c", &script]).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("took it all") && text.contains("java goes on"), "{}", said(&output));
    assert!(text.contains("memory is scarce: process 2 (Java) gave "), "{}", said(&output));
    assert!(!text.contains("memory is at its end"), "{}", said(&output));
}

/// Who takes all memory ends; memcached beside it has what it had, and answers.
#[test]
fn memcached_stays_beside_a_program_in_python_that_takes_all_memory() {
    if !is_there("memcached", "/usr/bin/memcached") || !is_there("python3", "/usr/bin/python3") {
        return;
    }
    let site = Site::new();
    let eater = site.write("eat.py", include_str!("linux/eat.py")).display().to_string();
    let options = format!("-m 192M --include /usr/bin/memcached {WITH_PYTHON} --include {eater}");
    let script = format!("/usr/bin/memcached -u root & /usr/bin/python3 {eater}; echo python: $?; wait");
    let server = Server::start(site, "dash", &[11211], &options, &["/bin/sh", "-c", &script]);
    let server = server.expect("a shell is there");
    server.wait_for(b"version\r\nquit\r\n", "VERSION");
    let value = "kept".repeat(50_000);
    let store = |key: &str, value: &str| format!("set {key} 0 0 {}\r\n{value}\r\nquit\r\n", value.len());
    assert_eq!(ask(server.ports[0], store("kept", &value).as_bytes()).expect("an answer"), "STORED\r\n");
    assert_eq!(ask(server.ports[0], store("go", "1").as_bytes()).expect("an answer"), "STORED\r\n");
    server.wait_until("it has ended", || server.site.run("logs server").contains("python: 137"));
    let said = server.site.run("logs server");
    assert!(
        said.matches("memory is at its end").count() == 1 && said.contains("(python3.11), the largest"),
        "{said}"
    );
    let answer = ask(server.ports[0], b"get kept\r\nquit\r\n").expect("an answer");
    assert!(answer.contains(&value), "{} bytes: {said}", answer.len());
}

/// Where a JVM is with its compiler, if there is one.
fn java_home() -> Option<String> {
    if !is_there("openjdk-17-jdk-headless", "/usr/bin/javac") {
        return None;
    }
    let compiler = std::fs::canonicalize("/usr/bin/javac").expect("it is there");
    compiler.ancestors().nth(2).map(|home| home.display().to_string())
}

/// InnoDB on files of the machine, with a thread a connection. It makes its own tables; who may what is not
/// asked, since that would take a database of this computer's.
#[test]
fn mariadb_serves_its_own_load_with_a_thread_a_connection() {
    if !is_there("mariadb-client", "/usr/bin/mariadb-slap") {
        return;
    }
    let options = "-m 768M --cpus 2 --include /usr/share/mysql/english";
    let settings = "--no-defaults --user=root --skip-grant-tables --skip-name-resolve --bind-address=0.0.0.0 \
                    --datadir=/tmp --socket=/tmp/socket --innodb-log-file-size=4M \
                    --innodb-buffer-pool-size=16M --innodb-data-file-path=ibdata1:4M:autoextend";
    let mut program = vec!["/usr/sbin/mariadbd"];
    program.extend(settings.split_whitespace());
    let Some(server) = Server::start(Site::new(), "mariadb-server-core", &[3306], options, &program) else {
        return;
    };
    let port = server.ports[0].to_string();
    let to = ["--no-defaults", "-h", "127.0.0.1", "-P", &port, "-u", "root"];
    let ask = || Command::new("mariadb-admin").args(to).args(["--connect-timeout=5", "ping"]).output();
    server.wait_until("it is ready", || ask().is_ok_and(|output| output.status.success()));
    let load = ["--auto-generate-sql", "--auto-generate-sql-load-type=mixed", "--engine=innodb"];
    let size = ["--concurrency=4", "--number-of-queries=40"];
    let said = server.client(&[&["mariadb-slap"][..], &to, &load, &size].concat());
    assert!(said.contains("Average number of queries per client: 10"), "{said}");
    let script = "create database it; use it; create table t(v int, key(v)) engine=innodb; \
                  insert into t values (3), (1), (2); begin; update t set v = v * 10; rollback; \
                  insert into t select v + 100 from t; select count(*), sum(v) from t; check table t";
    let said = server.client(&[&["mariadb"][..], &to, &["-N", "-e", script]].concat());
    assert_eq!(said, "6\t312\nit.t\tcheck\tstatus\tOK\n");
}

/// Who runs PostgreSQL is not root: the owner of a cluster that this computer's own `initdb` made.
#[test]
fn postgres_serves_pgbench_with_a_process_a_connection() {
    let Some(bin) = postgres_bin() else { return };
    let cluster = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let (user, group) = make_cluster(&bin, cluster.path());
    let data = cluster.path().join("data").display().to_string();
    let postgres = format!("{bin}/postgres");
    let owner = format!("--userspec={user}:{group}");
    // It says itself where what it loads and reads lies: `/usr/lib/postgresql/15/lib`, and share.
    let (library, share) = (bin.replace("/bin", "/lib"), bin.replace("/lib/", "/share/").replace("/bin", ""));
    let options = format!(
        "-m 768M --cpus 2 --include {library}/plpgsql.so --include {share}/timezonesets --include {data}"
    );
    let options = format!("{options} --include {postgres}");
    let settings =
        "-c listen_addresses=* -c unix_socket_directories=/tmp -c shared_buffers=16MB -c fsync=off";
    let mut program = vec!["/usr/sbin/chroot", &owner, "/", &postgres, "-D", &data];
    program.extend(settings.split(' '));
    let server = Server::start(Site::new(), "postgresql", &[5432], &options, &program).expect("it is there");
    let port = server.ports[0].to_string();
    let client = |words: &[&str]| {
        let to = ["-h", "127.0.0.1", "-p", &port, "-U", "nom"];
        server.client(&[&words[..1], &to, &words[1..], &["postgres"]].concat())
    };
    let ask = || Command::new("pg_isready").args(["-q", "-h", "127.0.0.1", "-p", &port]).status();
    server.wait_until("it is ready", || ask().is_ok_and(|status| status.success()));
    client(&["pgbench", "-i", "-q", "-s", "1"]);
    let said = client(&["pgbench", "-c", "4", "-t", "10"]);
    assert!(said.contains("number of transactions actually processed: 40/40"), "{said}");
    let counted =
        client(&["psql", "-A", "-t", "-c", "select count(*), sum(delta) is not null from pgbench_history"]);
    assert_eq!(counted.trim(), "40|t");
}

/// Where PostgreSQL's programs are, if they are.
fn postgres_bin() -> Option<String> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let bins = versions.map(|version| version.path().join("bin").display().to_string());
    let newest = bins.filter(|bin| Path::new(bin).join("postgres").exists()).max();
    if newest.is_none() {
        eprintln!("skipped: there is no PostgreSQL: apt-get install postgresql");
    }
    newest
}

/// Makes a cluster in a directory, which belongs to who is not root: user and group.
fn make_cluster(bin: &str, directory: &Path) -> (u32, u32) {
    let is_root = std::fs::metadata(directory).expect("it is there").uid() == 0;
    let mut initdb = match is_root {
        true => {
            let mut command = Command::new("setpriv");
            command
                .args(["--reuid=postgres", "--regid=postgres", "--clear-groups"])
                .arg(format!("{bin}/initdb"));
            std::os::unix::fs::chown(directory, Some(owner_of_postgres()), None).expect("root may");
            command
        }
        false => Command::new(format!("{bin}/initdb")),
    };
    initdb.args(["-N", "-A", "trust", "-U", "nom", "--no-locale", "-E", "UTF8", "-D"]);
    // Of all time zones this alone needs no file.
    let initdb = initdb.arg(directory.join("data")).env("TZ", "GMT").current_dir("/");
    let output = initdb.output().expect("it starts");
    assert!(output.status.success(), "{}", said(&output));
    let access = directory.join("data/pg_hba.conf");
    let rules = std::fs::read_to_string(&access).expect("initdb wrote it");
    std::fs::write(&access, format!("{rules}host all all 0.0.0.0/0 trust\n")).expect("written");
    let owner = std::fs::metadata(access).expect("it is there");
    (owner.uid(), owner.gid())
}

/// The number of the user `postgres`, whom the package made.
fn owner_of_postgres() -> u32 {
    let users = std::fs::read_to_string("/etc/passwd").expect("it is there");
    let row = users.lines().find_map(|line| line.strip_prefix("postgres:")).expect("the package made it");
    row.split(':').nth(1).and_then(|number| number.parse().ok()).expect("a number")
}
