//! Images of containers: what they hold, what they start, and what is refused.

#[path = "common/layout.rs"]
mod layout;

use layout::Entry::{Directory, File, Hard, Link, Other};
use layout::{Entry, GZIP, INDEX, Layout, TAR, ZSTD, layer, on_platform, tagged};
use nom_image::{Command, OciImage, StartOverrides, StopSignal};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::path::Path;
use tempfile::TempDir;

const PASSWD: &[u8] = b"root:x:0:0:root:/root:/bin/sh\nserver:x:7:8:Server:/srv:/bin/sh\n";

fn site() -> (TempDir, Layout) {
    let directory = tempfile::tempdir().expect("a directory");
    let layout = Layout::new(directory.path());
    (directory, layout)
}

/// The only image, of these layers.
fn read(layers: &[(&str, Vec<u8>)]) -> Result<OciImage, String> {
    let (directory, layout) = site();
    layout.index(&[layout.image(&json!({}), layers)]);
    OciImage::read(directory.path(), None).map_err(|error| error.to_string())
}

/// What is in the root: names, the type of each, the number that names of one file share, contents.
fn entries(image: &OciImage) -> Vec<(String, u32, u32, Vec<u8>)> {
    let archive = image.root.archive().expect("archived");
    let (mut rest, mut found) = (archive.as_slice(), Vec::new());
    loop {
        let mut reader = cpio::newc::Reader::new(rest).expect("an entry");
        if reader.entry().is_trailer() {
            return found;
        }
        let mut contents = Vec::new();
        std::io::Read::read_to_end(&mut reader, &mut contents).expect("contents");
        let entry = reader.entry();
        let name = entry.name().trim_end_matches('\0').to_owned();
        found.push((name, entry.mode() >> 12, entry.ino(), contents));
        rest = reader.finish().expect("more");
    }
}

#[test]
fn layers_lie_over_each_other_however_they_are_compressed() {
    let image = read(&[
        (
            TAR,
            layer(&[
                Directory("./usr/"),
                File("usr/bin/tool", b"old"),
                Hard("usr/bin/other", "usr/bin/tool"),
                Link("bin", "usr/bin"),
                Link("sbin", "/usr/bin"),
                File("etc/gone", b""),
                File("etc/gone.d/deep/file", b""),
                File("var/cache/a", b""),
                File("was/file", b""),
            ]),
        ),
        (
            GZIP,
            layer(&[
                File("/bin/tool", b"new"),
                File("sbin/second", b"2"),
                File("etc/.wh.gone", b""),
                File("etc/.wh.gone.d", b""),
                File("var/cache/b", b""),
                File("var/cache/.wh..wh..opq", b""),
                File("var/cache/.wh..wh.aufs", b""),
                File("was", b"a file now"),
            ]),
        ),
        (
            ZSTD,
            layer(&[
                Other("dev/sda", b'4'),
                Other("pipe", b'6'),
                File("proc/1/stat", b""),
                File("proc", b""),
            ]),
        ),
    ]);
    let entries = entries(&image.expect("read"));
    let entry = |name: &str| entries.iter().find(|entry| entry.0 == name);
    let contents = |name: &str| entry(name).map(|entry| String::from_utf8_lossy(&entry.3).into_owned());
    assert_eq!(contents("usr/bin/tool").as_deref(), Some("new"), "through a link");
    assert_eq!(contents("usr/bin/other").as_deref(), Some("old"), "the name that nobody changed");
    assert_eq!(contents("usr/bin/second").as_deref(), Some("2"));
    assert_eq!(contents("bin").as_deref(), Some("usr/bin"));
    assert_eq!(contents("was").as_deref(), Some("a file now"));
    assert!(entry("var/cache/b").is_some() && entry("var/cache/a").is_none());
    for absent in ["etc/gone", "etc/gone.d", "etc/gone.d/deep/file", "was/file", "dev/sda", "pipe", "proc/1"]
    {
        assert!(entry(absent).is_none(), "{absent}");
    }
    assert!(!entries.iter().any(|entry| entry.0.contains(".wh.")));
    assert_eq!(entry("proc").map(|entry| entry.1), Some(4), "a directory");
}

#[test]
fn names_of_one_file_stay_names_of_one_file() {
    let image = read(&[(GZIP, layer(&[File("a", b"text"), Hard("b/c", "./a"), File("d", b"text")]))]);
    let entries = entries(&image.expect("read"));
    let number = |name: &str| entries.iter().find(|entry| entry.0 == name).expect(name).2;
    assert_eq!(number("a"), number("b/c"));
    assert_ne!(number("a"), number("d"));
}

/// Several frames, and one that holds nothing: as `zstd:chunked` has them.
#[test]
fn a_layer_may_have_several_frames() {
    let (directory, layout) = site();
    let archive = layer(&[File("a", &[7; 3000]), File("b", b"2")]);
    let (one, other) = archive.split_at(1000);
    let mut packed = layout::packed(ZSTD, one);
    packed.extend([0x51, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3]);
    packed.extend(layout::packed(ZSTD, other));
    let described = layout.part(ZSTD, &packed);
    let configuration = configuration(&[layout::digest(&archive)]);
    layout.index(&[layout.manifest(&configuration, &[described])]);
    let image = OciImage::read(directory.path(), None).expect("read");
    assert!(image.root.contains("a") && image.root.contains("b"));
}

fn configuration(diff_ids: &[String]) -> Value {
    let rootfs = json!({ "type": "layers", "diff_ids": diff_ids });
    json!({ "architecture": "amd64", "os": "linux", "rootfs": rootfs })
}

#[test]
fn a_layer_stays_in_the_root() {
    let escapes: &[(&[Entry<'_>], &str)] = &[
        (&[File("../etc/passwd", b"")], "entry ../etc/passwd: `..` in a name leads out of the root"),
        (&[File("a/../../b", b"")], "entry a/../../b: `..` in a name"),
        (
            &[Link("x", "/outside"), File("x/a", b"")],
            "goes through the link /x to /outside, which leads to no",
        ),
        (&[Link("x", "../.."), File("x/a", b"")], "goes through the link /x to ../.., which leads out of"),
        (&[Link("x", "y"), Link("y", "x"), File("x/a", b"")], "links lead to links without end"),
        (&[Hard("a", "../../etc/shadow")], "a hard link to ../../etc/shadow: `..` in a name"),
        (&[Hard("a", "/etc/shadow")], "a hard link to /etc/shadow: no such file in the image"),
        (&[Directory("d"), Hard("a", "d")], "a hard link to d: a directory, expected a file"),
        (&[File("f", b""), File("f/a", b"")], "entry f/a: /f is there and is no directory"),
        (&[File("d/.wh...", b"")], "entry d/.wh...: a whiteout of no name"),
        (&[File("d/.wh.", b"")], "a whiteout of no name"),
        (&[Other("a", b'Z')], "entry a: of the unknown type 'Z'"),
    ];
    for (entries, said) in escapes {
        let error = read(&[(TAR, layer(entries))]).expect_err(said);
        assert!(error.contains("blobs/sha256/") && error.contains(said), "{said}: {error}");
    }
}

#[test]
fn what_a_layout_lies_about_is_named() {
    let archive = layer(&[File("a", b"contents")]);
    let id = layout::digest(&archive);
    // What is done to a right layout, and what is said of it.
    type Row = (&'static str, fn(&Layout, &mut Value, &mut Value), &'static str);
    let rows: &[Row] = &[
        ("size", |_, layer, _| layer["size"] = json!(7), "bytes, expected the 7 that it is said to have"),
        (
            "digest",
            |layout, layer, _| {
                let file = layout.file(layer["digest"].as_str().expect("text"));
                let mut bytes = std::fs::read(&file).expect("read");
                bytes[600] ^= 1;
                std::fs::write(&file, bytes).expect("written");
            },
            "its digest is sha256:",
        ),
        (
            "absent",
            |layout, layer, _| {
                std::fs::remove_file(layout.file(layer["digest"].as_str().expect("text"))).expect("removed");
            },
            "no such file in the layout",
        ),
        (
            "type",
            |_, layer, _| layer["mediaType"] = json!("text/plain"),
            "a layer of the media type text/plain",
        ),
        (
            "unpacked",
            |_, _, c| c["rootfs"]["diff_ids"][0] = json!(layout::digest(b"")),
            "unpacked, its digest is",
        ),
        (
            "count",
            |_, _, c| c["rootfs"]["diff_ids"] = json!([]),
            "0 digests of layers (diff_ids), expected 1",
        ),
        (
            "architecture",
            |_, _, c| c["architecture"] = json!("arm64"),
            "an image for linux/arm64, expected linux/",
        ),
        ("system", |_, _, c| c["os"] = json!("windows"), "an image for windows/amd64, expected linux/amd64"),
        ("configuration", |_, _, c| *c = json!({ "os": 1 }), "expected an image configuration"),
        ("gzip", |_, layer, _| layer["mediaType"] = json!(GZIP), "no tar archive"),
        ("zstd", |_, layer, _| layer["mediaType"] = json!(ZSTD), "no tar archive"),
    ];
    for (name, spoil, said) in rows {
        let (directory, layout) = site();
        let mut described = layout.part(TAR, &archive);
        let mut configuration = configuration(std::slice::from_ref(&id));
        spoil(&layout, &mut described, &mut configuration);
        layout.index(&[layout.manifest(&configuration, &[described])]);
        let error = OciImage::read(directory.path(), None).expect_err(name).to_string();
        assert!(error.contains(said), "{name}: {error}");
        assert!(error.contains("blobs/sha256/"), "{name}: {error}");
    }
}

#[test]
fn what_is_no_layout_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    let problem = |path: &Path| OciImage::read(path, None).expect_err("refused").to_string();
    assert!(problem(&at("absent")).contains("absent: cannot be read"));
    assert!(problem(directory.path()).contains("oci-layout: no such file in the layout"));
    std::fs::write(
        at("file"),
        "no archive at all, though it is as long as a header of one would be".repeat(20),
    )
    .expect("written");
    let said = problem(&at("file"));
    assert!(said.contains("file: expected an OCI image layout, a directory or a tar archive"), "{said}");
    let layout = Layout::new(directory.path());
    assert!(problem(directory.path()).contains("index.json: no such file in the layout"));
    layout.index(&[layout.part("text/plain", b"hello")]);
    let said = problem(directory.path());
    assert!(said.contains("index.json: of the media type text/plain, expected an image's"), "{said}");
    std::fs::write(at("index.json"), "{}").expect("written");
    assert!(problem(directory.path()).contains("index.json: expected an image index"));
    std::fs::write(at("oci-layout"), r#"{"imageLayoutVersion":"2.0.0"}"#).expect("written");
    assert!(problem(directory.path()).contains("oci-layout: a layout of version 2.0.0, expected 1.0.0"));
}

#[test]
fn the_image_that_is_meant_is_found_by_its_tag_and_platform() {
    let (directory, layout) = site();
    let image = |name: &str| layout.image(&json!({}), &[(GZIP, layer(&[File(name, b"")]))]);
    let (one, two, three) = (image("one"), image("two"), image("three"));
    let platforms = [
        on_platform(&one, "linux", "arm64"),
        on_platform(&two, "linux", "amd64"),
        on_platform(&three, "unknown", "unknown"),
    ];
    let nested = layout.part(INDEX, layout::index(&platforms).as_bytes());
    layout.index(&[tagged(&one, "1"), tagged(&nested, "2")]);
    let read = |tag| OciImage::read(directory.path(), tag);
    assert!(read(Some("1")).expect("read").root.contains("one"));
    assert!(read(Some("2")).expect("read").root.contains("two"));
    let error = read(Some("3")).expect_err("absent").to_string();
    assert!(error.ends_with("index.json: no image with the tag 3, expected one of 1, 2"), "{error}");
    let error = read(None).expect_err("several").to_string();
    assert!(error.contains("no image for linux/amd64") && error.ends_with("the tags are 1, 2"), "{error}");
    layout.index(&platforms);
    assert!(read(None).expect("read").root.contains("two"));
    layout.index(&platforms[..1]);
    assert!(read(None).is_ok(), "the only one, whose configuration says what it is");
    let arm = layout.part(INDEX, layout::index(&platforms[..1]).as_bytes());
    layout.index(&[arm]);
    let error = read(None).expect_err("another processor").to_string();
    assert!(error.contains("no image for linux/amd64, but linux/arm64"), "{error}");
}

#[test]
fn an_archive_of_a_layout_is_one_too() {
    let (directory, layout) = site();
    layout.index(&[tagged(&layout.image(&json!({}), &[(GZIP, layer(&[File("a", b"1")]))]), "1")]);
    let archive = layout.archive();
    let file = directory.path().join("image.tar");
    std::fs::write(&file, &archive).expect("written");
    assert!(OciImage::read(&file, Some("1")).expect("read").root.contains("a"));
    std::fs::write(&file, &archive[..archive.len() / 2]).expect("written");
    OciImage::read(&file, Some("1")).expect_err("cut short");
}

/// What an image starts with this configuration.
fn started(config: &Value, program: Option<&str>, arguments: &[&str]) -> Result<Command, String> {
    let entrypoint = program.map(str::to_owned);
    started_as(config, &StartOverrides { entrypoint, ..StartOverrides::default() }, arguments)
}

/// The same, as whoever runs it says.
fn started_as(config: &Value, said: &StartOverrides, arguments: &[&str]) -> Result<Command, String> {
    let (directory, layout) = site();
    // A program that needs no other file, and one that does.
    let read = |path: &str| std::fs::read(path).expect("Debian's");
    let (linker, ls) = (read("/lib64/ld-linux-x86-64.so.2"), read("/bin/ls"));
    let files = [
        File("etc/passwd", PASSWD),
        File("etc/group", b"root:x:0:\nserver:x:8:\nother:x:9:\n"),
        File("usr/bin/server", &linker),
        Link("bin", "usr/bin"),
        File("srv/run", b"#!/bin/server"),
        File("srv/lost", b"#!/bin/absent -x"),
        File("srv/text", b"hello"),
        File("srv/ls", &ls),
    ];
    layout.index(&[layout.image(config, &[(GZIP, layer(&files))])]);
    let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
    let mut image = OciImage::read(directory.path(), None).map_err(|error| error.to_string())?;
    let command = image.command(said, &arguments).map_err(|error| error.to_string())?;
    assert!(image.root.contains(&command.directory) || command.directory == "/");
    Ok(command)
}

#[test]
fn who_runs_an_image_says_more_than_it() {
    let config =
        json!({ "Cmd": ["server"], "User": "server", "WorkingDir": "/srv", "StopSignal": "SIGQUIT" });
    let own = started(&config, None, &[]).expect("started");
    assert_eq!((own.user, own.directory.as_str()), ((7, 8), "/srv"));
    assert_eq!(own.stop_signal.map(StopSignal::number), Some(3));
    let said = StartOverrides {
        user: Some("0:8".into()),
        directory: Some("/data/new".into()),
        stop_signal: "INT".parse().ok(),
        entrypoint: None,
    };
    let command = started_as(&config, &said, &[]).expect("started");
    assert_eq!((command.user, command.directory.as_str()), ((0, 8), "/data/new"));
    assert_eq!(command.stop_signal.map(StopSignal::number), Some(2));
    assert!(command.environment.contains(&"HOME=/root".to_owned()));
    for (said, named) in [
        (StartOverrides { user: Some("absent".into()), ..StartOverrides::default() }, "absent"),
        (StartOverrides { directory: Some("data".into()), ..StartOverrides::default() }, "--workdir data"),
    ] {
        assert!(started_as(&config, &said, &[]).is_err_and(|error| error.contains(named)), "{named}");
    }
    let wrong = json!({ "Cmd": ["server"], "StopSignal": "SIGNOTHING" });
    let error = started(&wrong, None, &[]).expect_err("no such signal");
    assert!(error.contains("StopSignal") && error.contains("SIGNOTHING"), "{error}");
}

#[test]
fn an_image_starts_what_docker_would_start() {
    let both = json!({ "Entrypoint": ["server", "-a"], "Cmd": ["-b", "-c"] });
    let words = |config: &Value, program, arguments: &[&str]| {
        let command = started(config, program, arguments).expect("started");
        [vec![command.program], command.arguments].concat().join(" ")
    };
    let rows: [(_, _, &[&str], _); 6] = [
        (both.clone(), None, &[], "/usr/bin/server -a -b -c"),
        (both.clone(), None, &["-d"], "/usr/bin/server -a -d"),
        (both.clone(), Some("/bin/server"), &[], "/bin/server"),
        (both, Some("server"), &["-d"], "/usr/bin/server -d"),
        (json!({ "Cmd": ["server", "-b"] }), None, &[], "/usr/bin/server -b"),
        (json!({ "Cmd": ["./run"], "WorkingDir": "/srv" }), None, &[], "/srv/./run"),
    ];
    for (config, program, arguments, expected) in rows {
        assert_eq!(words(&config, program, arguments), expected);
    }
    let plain = started(&json!({ "Cmd": ["server"] }), None, &[]).expect("started");
    assert_eq!((plain.user, plain.directory.as_str()), ((0, 0), "/"));
    assert!(plain.environment.iter().any(|entry| entry.starts_with("PATH=/usr/local/sbin:")));
    assert!(plain.environment.contains(&"HOME=/root".to_owned()));
    let config = json!({
        "Cmd": ["server"], "User": "server:other", "WorkingDir": "/new/place",
        "Env": ["PATH=/srv:/bin", "A=b=c"],
    });
    let full = started(&config, None, &[]).expect("started");
    assert_eq!((full.user, full.program.as_str()), ((7, 9), "/bin/server"));
    assert_eq!(full.directory, "/new/place");
    assert_eq!(full.environment, ["PATH=/srv:/bin", "A=b=c", "HOME=/srv"]);
}

#[test]
fn what_cannot_start_is_named() {
    for (config, program, said) in [
        (json!({}), None, "nothing to start (Entrypoint, Cmd)"),
        (
            json!({ "Cmd": ["absent"] }),
            None,
            "starts absent, which is not in the image: looked in /usr/local/s",
        ),
        (json!({ "Cmd": ["server"] }), Some("/bin/absent"), "starts /bin/absent, which is not in the image"),
        (json!({ "Cmd": ["/srv/lost"] }), None, "/srv/lost: its interpreter /bin/absent is missing"),
        (json!({ "Cmd": ["/srv/text"] }), None, "/srv/text: no 64-bit ELF file"),
        (
            json!({ "Cmd": ["/srv/ls"] }),
            None,
            "/srv/ls: its interpreter /lib64/ld-linux-x86-64.so.2 is missing",
        ),
        (json!({ "Cmd": ["server"], "User": "nobody" }), None, "no user `nobody`"),
        (
            json!({ "Cmd": ["server"], "WorkingDir": "here" }),
            None,
            "WorkingDir here: expected an absolute path",
        ),
    ] {
        let error = started(&config, program, &[]).expect_err(said);
        assert!(error.contains(said), "{error}");
    }
}

proptest! {
    /// Whatever the entries of layers say: all that there is has a directory above it, and no name leads up.
    #[test]
    fn whatever_layers_say_the_root_is_a_tree(
        layers in prop::collection::vec(
            prop::collection::vec((0_u8..6, "[ab./]{1,5}", "[ab./]{1,5}"), 0..8),
            1..4,
        ),
    ) {
        let archives: Vec<_> = layers.iter().map(|entries| {
            let entries: Vec<Entry<'_>> = entries.iter().map(|(kind, name, target)| match kind {
                0 => File(name, b"contents"),
                1 => Directory(name),
                2 => Link(name, target),
                3 => Hard(name, target),
                4 => File(".wh..wh..opq", b""),
                _ => Other(name, b'6'),
            }).collect();
            (TAR, layer(&entries))
        }).collect();
        let Ok(image) = read(&archives) else { return Ok(()) };
        let entries = entries(&image);
        for (name, ..) in &entries {
            let names: Vec<&str> = name.split('/').collect();
            prop_assert!(names.iter().all(|name| !["", ".", ".."].contains(name)), "{}", name);
            if let Some((above, _)) = name.rsplit_once('/') {
                let above = entries.iter().find(|entry| entry.0 == above);
                prop_assert!(above.is_some_and(|above| above.1 == 4), "{} has no directory", name);
            }
        }
    }
}

#[test]
fn media_types_of_docker_are_known() {
    let (directory, layout) = site();
    let archive = layer(&[File("a", b"1")]);
    let gzip = "application/vnd.docker.image.rootfs.diff.tar.gzip";
    let described = layout.part(gzip, &layout::packed(gzip, &archive));
    let text = configuration(&[layout::digest(&archive)]).to_string();
    let config = layout.part("application/vnd.docker.container.image.v1+json", text.as_bytes());
    let manifest = json!({ "schemaVersion": 2, "config": config, "layers": [described] }).to_string();
    let kind = "application/vnd.docker.distribution.manifest.v2+json";
    layout.index(&[layout.part(kind, manifest.as_bytes())]);
    assert!(OciImage::read(directory.path(), None).expect("read").root.contains("a"));
}
