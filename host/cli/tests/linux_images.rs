//! Images of containers, in machines: docs/linux.md.

mod common;
#[path = "../../image/tests/common/layout.rs"]
mod layout;

use common::{Site, said};
use layout::Entry::{File, Link};
use layout::{GZIP, Layout, TAR, ZSTD, layer, on_platform, tagged};
use serde_json::{Value, json};

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
