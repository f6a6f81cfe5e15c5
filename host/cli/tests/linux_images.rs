//! Images of containers, in machines: docs/linux.md.

mod common;
#[path = "../../image/tests/common/layout.rs"]
mod layout;

use common::{PATIENCE, Site, free_port, said};
use layout::Entry::{File, Link};
use layout::{GZIP, Layout, TAR, ZSTD, layer, on_platform, tagged};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What Debian's shell needs to run, and where it is on this computer and in the image.
const SHELL: [(&str, &str); 3] = [
    ("/bin/dash", "usr/bin/sh"),
    ("/lib64/ld-linux-x86-64.so.2", "lib64/ld-linux-x86-64.so.2"),
    ("/lib/x86_64-linux-gnu/libc.so.6", "usr/lib/x86_64-linux-gnu/libc.so.6"),
];
const PASSWD: &[u8] = b"root:x:0:0::/root:/bin/sh\nguest:x:77:78::/home/guest:/bin/sh\n";
/// What the image runs: it says where it is, as whom, and what it finds.
const SCRIPT: &str = concat!(
    "pwd; echo $GREETING from $HOME; read line <note; echo $line; test -e gone || echo none; ",
    "while read key value rest; do case $key in Uid:|Gid:) echo $key $value;; esac; ",
    "done </proc/self/status; echo words $0 $*; exit 7",
);

/// Puts Debian's shell into a layout, as an image of three layers; returns what describes it.
fn shell(layout: &Layout) -> Value {
    let read = |(from, to)| (to, std::fs::read(from).expect("Debian's"));
    let files: Vec<(&str, Vec<u8>)> = SHELL.into_iter().map(read).collect();
    let mut base: Vec<_> = files.iter().map(|(to, contents)| File(to, contents)).collect();
    base.extend([Link("bin", "usr/bin"), Link("lib", "usr/lib"), File("etc/passwd", PASSWD)]);
    base.extend([File("work/note", b"old\n"), File("work/gone", b"")]);
    let layers = [
        (ZSTD, layer(&base)),
        (GZIP, layer(&[File("work/note", b"new\n"), File("work/.wh.gone", b"")])),
        (TAR, layer(&[File("home/guest/.profile", b"")])),
    ];
    let config = json!({
        "Entrypoint": ["sh", "-c", SCRIPT], "Cmd": ["by", "default"],
        "Env": ["PATH=/bin", "GREETING=hello"], "WorkingDir": "/work", "User": "guest",
    });
    layout.image(&config, &layers)
}

#[test]
fn an_image_of_a_container_runs_as_docker_runs_it() {
    let site = Site::new();
    let layout = Layout::new(&site.path().join("images"));
    let image = shell(&layout);
    layout.index(&[tagged(&image, "1"), tagged(&image, "2")]);
    let output = site.nom("run --oci images:1 -e GREETING=hi -- by hand").output().expect("it starts");
    let text = said(&output);
    assert_eq!(output.status.code(), Some(7), "{text}");
    for line in ["/work", "hi from /home/guest", "new", "none", "Uid: 77", "Gid: 78", "words by hand"] {
        assert!(text.lines().any(|other| other.trim_end() == line), "{line}: {text}");
    }
    std::fs::write(site.path().join("image.tar"), layout.archive()).expect("written");
    let script = ["-c", "echo in $PWD as $HOME with $#", "name"];
    let mut command = site.nom("run --oci image.tar:2 /bin/sh --");
    let output = command.args(script).output().expect("it starts");
    let text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("in /work as /home/guest with 0"), "{text}");
}

#[test]
fn what_cannot_run_is_refused_before_anything_boots() {
    let site = Site::new();
    let layout = Layout::new(&site.path().join("images"));
    let right = shell(&layout);
    let evil = layout.image(&json!({ "Cmd": ["sh"] }), &[(GZIP, layer(&[File("../../etc/cron.d/x", b"")]))]);
    let mut lying = right.clone();
    lying["digest"] = json!(layout::digest(b"another"));
    let arm = layout.part(layout::INDEX, layout::index(&[on_platform(&right, "linux", "arm64")]).as_bytes());
    layout.index(&[tagged(&right, "1"), tagged(&evil, "evil"), tagged(&lying, "lying"), tagged(&arm, "arm")]);
    for (words, said) in [
        ("--oci absent", "absent: cannot be read"),
        ("--oci images:3", "index.json: no image with the tag 3, expected one of 1, evil, lying, arm"),
        ("--oci images:evil", "entry ../../etc/cron.d/x: `..` in a name leads out of the root"),
        ("--oci images:lying", "no such file in the layout"),
        ("--oci images:arm", "no image for linux/amd64, but linux/arm64"),
        ("--oci images:1 /bin/absent", "starts /bin/absent, which is not in the image"),
    ] {
        let complaint = site.refused(&format!("run {words}"));
        assert!(complaint.contains(said), "{words}: {complaint}");
    }
    assert_eq!(site.run("ps -a --json").trim(), "[]", "nothing has begun");
}

/// Debian's registry at a port of the loopback interface, which ends with this.
struct Registry {
    process: Child,
    port: u16,
}

impl Registry {
    /// One that keeps its parts in `directory`; nothing if there is none.
    fn start(directory: &Path) -> Option<Registry> {
        if !Path::new("/usr/bin/docker-registry").exists() {
            eprintln!("skipped: there is no docker-registry: apt-get install docker-registry");
            return None;
        }
        let port = free_port();
        let configuration = json!({
            "version": 0.1, "log": { "level": "error" },
            "storage": { "filesystem": { "rootdirectory": directory } },
            "http": { "addr": format!("127.0.0.1:{port}") },
        });
        std::fs::create_dir_all(directory).expect("made");
        let file = directory.join("config.yml");
        // All JSON is YAML.
        std::fs::write(&file, configuration.to_string()).expect("written");
        let mut command = Command::new("/usr/bin/docker-registry");
        let process = command.arg("serve").arg(file).stdout(Stdio::null()).spawn().expect("it starts");
        let registry = Registry { process, port };
        let end = Instant::now() + PATIENCE;
        while ureq::get(registry.url("v2/")).call().is_err() {
            assert!(Instant::now() < end, "docker-registry does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(registry)
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    /// Puts an image of a layout there, and gives it the tag `1`.
    fn push(&self, layout: &Layout, image: &Value) {
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let manifest = std::fs::read(layout.file(&text(&image["digest"]))).expect("read");
        let parts: Value = serde_json::from_slice(&manifest).expect("JSON");
        let layers = parts["layers"].as_array().expect("a list");
        for part in layers.iter().chain([&parts["config"]]) {
            let digest = text(&part["digest"]);
            let begun = ureq::post(self.url("v2/shell/blobs/uploads/")).send_empty().expect("begun");
            let place = begun.headers()["location"].to_str().expect("text");
            let contents = std::fs::read(layout.file(&digest)).expect("read");
            ureq::put(format!("{place}&digest={digest}")).send(contents).expect("pushed");
        }
        let put = ureq::put(self.url("v2/shell/manifests/1")).header("content-type", layout::MANIFEST);
        put.send(manifest).expect("pushed");
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill().and_then(|()| self.process.wait());
    }
}

#[test]
fn an_image_of_a_registry_is_pulled_once_and_runs() {
    let site = Site::new();
    let Some(registry) = Registry::start(&site.path().join("registry")) else { return };
    let layout = Layout::new(&site.path().join("made"));
    let image = shell(&layout);
    registry.push(&layout, &image);
    let name = format!("localhost:{}/shell", registry.port);
    let run = |reference: &str| {
        let output = site.nom(&format!("run {reference} -- by name")).output().expect("it starts");
        let text = said(&output);
        assert_eq!(output.status.code(), Some(7), "{text}");
        assert!(text.lines().any(|line| line.trim_end() == "words by name"), "{text}");
        text.matches(": pulls sha256:").count()
    };
    assert_eq!(run(&format!("{name}:1")), 4, "three layers and a configuration");
    assert_eq!(run(&format!("{name}:1")), 0, "all of it is there");
    let refused = |words: &str, expected: &str| {
        let complaint = site.refused(&format!("run {words}"));
        assert!(complaint.contains(expected), "{words}: {complaint}");
    };
    refused(&format!("{name}:2"), &format!("cannot pull {name}:2"));
    refused(&name, &format!("{name}: expected an image with its tag or digest, such as {name}:latest"));
    site.write("redis:7", "");
    refused("redis:7", "redis:7: a file here, and an image of a registry: expected ./redis:7 or docker.io/");
    let digest = image["digest"].as_str().expect("text");
    drop(registry);
    assert_eq!(run(&format!("{name}@{digest}")), 0, "nobody is asked for what a digest names");
    refused(&format!("{name}:1"), &format!("cannot pull {name}:1"));
}

#[test]
fn a_registry_that_lies_is_not_believed() {
    let site = Site::new();
    let Some(registry) = Registry::start(&site.path().join("registry")) else { return };
    let layout = Layout::new(&site.path().join("made"));
    registry.push(&layout, &layout.image(&json!({ "Cmd": ["sh"] }), &[(TAR, layer(&[File("a", b"right")]))]));
    let digest = layout::digest(&layer(&[File("a", b"right")]));
    let (_, hex) = digest.split_once(':').expect("a digest");
    let stored = site.path().join("registry/docker/registry/v2/blobs/sha256");
    std::fs::write(stored.join(&hex[..2]).join(hex).join("data"), layer(&[File("a", b"wrong")]))
        .expect("spoilt");
    let complaint = site.refused(&format!("run localhost:{}/shell:1", registry.port));
    assert!(complaint.contains("cannot pull localhost:") && complaint.contains(&digest), "{complaint}");
    assert_eq!(site.run("ps -a --json").trim(), "[]", "nothing has begun");
}
