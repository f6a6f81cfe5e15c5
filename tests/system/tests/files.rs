//! Files that go along with an application, and change without a build.

use nom_build::Project;
use nom_image::manifest::Mount;
use nom_system_tests::{Guest, Server, tap_is_possible};
use nom_vmm::{Namespace, namespace};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;

/// What nhttpd answers to a request for `path`, head and all.
fn get(mut stream: TcpStream, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("the request is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// The first page, and one in a directory; both of several pages of memory, but for the last byte.
fn write_site(site: &Path, word: &str) {
    let pages = std::fs::create_dir_all(site.join("more")).and_then(|()| {
        std::fs::write(site.join("index.html"), format!("<p>{word}"))?;
        std::fs::write(site.join("more/long.txt"), word.repeat(5000))
    });
    pages.expect("written");
}

#[test]
fn a_changed_directory_is_served_by_the_next_run() {
    let site = tempfile::tempdir().expect("a temporary directory");
    for word in ["first", "other"] {
        write_site(site.path(), word);
        let server = Server::boot(Guest::app("nhttpd").memory("128M").files(site.path()), 80);
        let page = get(server.connect(), "/");
        assert!(page.starts_with("HTTP/1.1 200") && page.ends_with(&format!("<p>{word}")), "{page}");
        let page = get(server.connect(), "/more/long.txt");
        assert!(page.ends_with(&format!("\r\n\r\n{}", word.repeat(5000))), "{} bytes", page.len());
        assert!(get(server.connect(), "/absent").starts_with("HTTP/1.1 404"));
    }
}

#[test]
fn a_linux_process_has_the_same_files() {
    if !tap_is_possible("files") {
        return;
    }
    let site = tempfile::tempdir().expect("a temporary directory");
    write_site(site.path(), "given");
    let project = Project::find().expect("a checkout");
    let bundle = project.bundle(&project.manifest_path("nhttpd").expect("there"), None).expect("right");
    let mount = Mount { directory: site.path().to_owned(), at: "/".to_owned() };
    let process = project.process(bundle.with_files(&[mount]).expect("it has files")).expect("it builds");
    let network = Namespace::create("test-files", 1).expect("a namespace");
    let mut command = network.command(&process.program);
    let mut child = process.furnish(&mut command).stdout(Stdio::piped()).spawn().expect("it starts");
    let output = child.stdout.take().expect("it is piped");
    let serves = BufReader::new(output).lines().next().expect("it says something").expect("text");
    assert!(serves.starts_with("serves at"), "{serves}");
    let page = std::thread::scope(|scope| {
        let inside = || {
            network.enter().expect("entered");
            get(TcpStream::connect((namespace::GUEST, 80)).expect("it accepts"), "/")
        };
        scope.spawn(inside).join()
    });
    child.kill().and_then(|()| child.wait()).expect("it ends");
    let page = page.expect("no panic");
    assert!(page.ends_with("<p>given"), "{page}");
}
