use super::*;
use std::os::unix::fs::symlink;

fn names(root: &Root) -> Vec<&str> {
    root.entries.keys().map(String::as_str).collect()
}

fn problem(result: Result<Root>) -> String {
    result.expect_err("refused").to_string()
}

/// What is in the archive: names, modes, links, and where contents begin.
fn archived(root: &Root) -> Vec<(String, u32, u32, usize, Vec<u8>)> {
    let archive = root.archive().expect("archived");
    let mut rest = archive.as_slice();
    let mut found = Vec::new();
    loop {
        let mut reader = cpio::newc::Reader::new(rest).expect("an entry");
        if reader.entry().is_trailer() {
            return found;
        }
        let mut contents = Vec::new();
        std::io::Read::read_to_end(&mut reader, &mut contents).expect("contents");
        let name = reader.entry().name().trim_end_matches('\0').to_owned();
        let (mode, links) = (reader.entry().mode(), reader.entry().nlink());
        rest = reader.finish().expect("more");
        let start = archive.len() - rest.len() - contents.len().next_multiple_of(4);
        found.push((name, mode, links, start, contents));
    }
}

#[test]
fn a_program_brings_its_interpreter_and_libraries_and_the_links_to_them() {
    let root = Root::of_program(Path::new("/"), "/bin/ls", &[]).expect("gathered");
    assert!(root.contains("/usr/bin/ls"), "{:?}", names(&root));
    assert!(root.contains("/lib64/ld-linux-x86-64.so.2") || root.contains("/usr/lib64/ld-linux-x86-64.so.2"));
    let has_libc = names(&root).iter().any(|name| name.ends_with("x86_64-linux-gnu/libc.so.6"));
    let has_late = names(&root).iter().any(|name| name.ends_with("x86_64-linux-gnu/libgcc_s.so.1"));
    assert!(has_late, "what the C library loads when a thread leaves");
    assert!(has_libc, "{:?}", names(&root));
    assert!(root.contains("etc/passwd") && root.contains("tmp") && root.contains("var/log"));
    assert_eq!(root.entries["var/run"].body.contents().expect("a link"), b"/run");
    assert_eq!(root.user("root").expect("known"), (0, 0));
    assert_eq!(root.user("7:9").expect("numbers"), (7, 9));
    let error = root.user("nobody-at-all").expect_err("unknown").to_string();
    assert!(error.contains("no user `nobody-at-all`"), "{error}");
}

/// A tree with nothing but `/program`, which needs nothing; none where there is no such program.
fn tree_of_a_program() -> Option<tempfile::TempDir> {
    const STATIC: &str = "/bin/busybox";
    if !Path::new(STATIC).exists() {
        eprintln!("skipped: there is no {STATIC}: apt-get install busybox-static");
        return None;
    }
    let tree = tempfile::tempdir().expect("a directory");
    std::fs::copy(STATIC, tree.path().join("program")).expect("copied");
    Some(tree)
}

#[test]
fn a_program_asks_whom_this_computer_asks_but_for_itself() {
    let Some(tree) = tree_of_a_program() else { return };
    std::fs::create_dir(tree.path().join("etc")).expect("made");
    for (text, expected) in [
        (
            "search a.org\nnameserver 127.0.0.53\nnameserver 192.0.2.53\n",
            "search a.org\nnameserver 192.0.2.53\n",
        ),
        ("nameserver 127.0.0.53\nnameserver ::1\noptions edns0\n", ""),
        ("", ""),
    ] {
        std::fs::write(tree.path().join("etc/resolv.conf"), text).expect("written");
        let root = Root::of_program(tree.path(), "/program", &[]).expect("gathered");
        let found = root.entries.get("etc/resolv.conf").map(|entry| entry.body.contents().expect("a file"));
        assert_eq!(String::from_utf8(found.unwrap_or_default()).expect("text"), expected);
    }
}

#[test]
fn what_is_included_takes_the_place_of_a_link_that_every_root_has() {
    let Some(tree) = tree_of_a_program() else { return };
    std::fs::create_dir_all(tree.path().join("var/run")).expect("made");
    std::fs::write(tree.path().join("var/run/pid"), "1").expect("written");
    for (included, mode) in [(None, LINK), (Some("/var/run"), DIRECTORY), (Some("/var/run/pid"), DIRECTORY)] {
        let include: Vec<_> = included.iter().map(std::path::PathBuf::from).collect();
        let root = Root::of_program(tree.path(), "/program", &include).expect("gathered");
        assert_eq!(root.entries["var/run"].mode & TYPE_MASK, mode, "{included:?}");
        assert_eq!(root.contains("var/run/pid"), included.is_some());
    }
}

#[test]
fn a_program_that_asks_for_a_locale_brings_the_usual_one() {
    let locale = "usr/lib/locale/C.utf8/LC_CTYPE";
    let (ls, libc) = ("/bin/ls", "/lib/x86_64-linux-gnu/libc.so.6");
    let root = Root::of_program(Path::new("/"), ls, &[]).expect("gathered");
    assert_eq!(root.contains(locale), Path::new("/").join(locale).exists(), "ls asks");
    let root = Root::of_program(Path::new("/"), libc, &[]).expect("gathered");
    assert!(!root.contains(locale), "the C library asks nobody");
}

#[test]
fn a_link_to_nothing_in_a_directory_is_one() {
    let tree = tempfile::tempdir().expect("a directory");
    let path = |name: &str| tree.path().join(name);
    for directory in ["bin", "lib64", "real"] {
        std::fs::create_dir(path(directory)).expect("made");
    }
    let linker = "lib64/ld-linux-x86-64.so.2";
    std::fs::copy(format!("/{linker}"), path(linker)).expect("copied");
    std::fs::write(path("real/file"), "").expect("written");
    for (target, link) in [("real", "other"), ("/nowhere/at/all", "real/dangling"), ("round", "real/round")] {
        symlink(target, path(link)).expect("linked");
    }
    let include = [PathBuf::from("/other")];
    let root = Root::of_program(tree.path(), &format!("/{linker}"), &include).expect("gathered");
    for name in ["other", "real/file", "real/dangling", "real/round"] {
        assert!(root.contains(name), "{name}: {:?}", names(&root));
    }
    let error = Root::of_program(tree.path(), &format!("/{linker}"), &[PathBuf::from("/real/dangling")]);
    assert!(
        error.is_err_and(|error| error.to_string().contains("no such file")),
        "named, it has to be there"
    );
}

#[test]
fn a_script_brings_its_interpreter_and_what_env_finds() {
    let directory = tempfile::tempdir().expect("a directory");
    let script = directory.path().join("script");
    std::fs::write(&script, "#!/usr/bin/env sh\necho hello\n").expect("written");
    let path = script.to_str().expect("text");
    let root = Root::of_program(Path::new("/"), path, &[]).expect("gathered");
    assert!(root.contains(path) && root.contains("/usr/bin/env") && root.contains("/usr/bin/sh"));
}

#[test]
fn an_interpreter_of_python_brings_its_library_but_not_what_builds_extensions() {
    let tree = tempfile::tempdir().expect("a directory");
    let path = |name: &str| tree.path().join(name);
    for directory in ["usr/bin", "lib64", "usr/lib/python3.99/json", "usr/lib/python3.99/config-3.99-x86_64"]
    {
        std::fs::create_dir_all(path(directory)).expect("made");
    }
    let linker = "lib64/ld-linux-x86-64.so.2";
    std::fs::copy(format!("/{linker}"), path(linker)).expect("copied");
    std::fs::copy(format!("/{linker}"), path("usr/bin/python3.99")).expect("copied");
    symlink("python3.99", path("usr/bin/python3")).expect("linked");
    std::fs::write(path("usr/lib/python3.99/json/__init__.py"), "").expect("written");
    std::fs::write(path("usr/lib/python3.99/config-3.99-x86_64/libpython.a"), "").expect("written");
    std::fs::write(path("serve"), "#!/usr/bin/python3\n").expect("written");
    let root = Root::of_program(tree.path(), "/serve", &[]).expect("gathered");
    assert!(root.contains("usr/lib/python3.99/json/__init__.py") && root.contains("usr/bin/python3.99"));
    assert!(!names(&root).iter().any(|name| name.contains("config-")), "{:?}", names(&root));
    let root = Root::of_program(tree.path(), &format!("/{linker}"), &[]).expect("gathered");
    assert!(!names(&root).iter().any(|name| name.contains("python")));
}

#[test]
fn a_tree_keeps_names_rights_and_links() {
    let tree = tempfile::tempdir().expect("a directory");
    std::fs::create_dir_all(tree.path().join("proc/1")).expect("made");
    std::fs::create_dir_all(tree.path().join("usr/bin")).expect("made");
    std::fs::write(tree.path().join("usr/bin/tool"), vec![7; 5000]).expect("written");
    std::fs::hard_link(tree.path().join("usr/bin/tool"), tree.path().join("usr/bin/tool2")).expect("linked");
    symlink("usr/bin", tree.path().join("bin")).expect("linked");
    let root = Root::of_directory(tree.path()).expect("gathered");
    assert!(root.contains("/usr/bin/tool") && !root.contains("proc/1"));
    let entries = archived(&root);
    let entry = |name: &str| entries.iter().find(|entry| entry.0 == name).expect(name).clone();
    assert_eq!(entry("bin").4, b"usr/bin");
    let (tool, other) = (entry("usr/bin/tool"), entry("usr/bin/tool2"));
    assert_eq!((tool.1 & TYPE_MASK, tool.2, tool.3 % PAGE, tool.4.len()), (FILE, 2, 0, 5000));
    assert_eq!((other.2, other.4.len()), (2, 0), "its contents come with its first name");
    let order: Vec<_> = entries.iter().map(|entry| entry.0.as_str()).collect();
    let place = |name: &str| order.iter().position(|other| *other == name).expect(name);
    assert!(place("usr") < place("usr/bin") && place("usr/bin") < place("usr/bin/tool"));
}

#[test]
fn what_cannot_run_is_named_before_anything_boots() {
    let tree = tempfile::tempdir().expect("a directory");
    let path = |name: &str| tree.path().join(name);
    std::fs::write(path("text"), "hello").expect("written");
    std::fs::write(path("script"), "#!/no/such/shell\n").expect("written");
    std::fs::write(path("empty"), "#!\n").expect("written");
    let mut arm = std::fs::read("/bin/ls").expect("read");
    arm[18] = 183;
    std::fs::write(path("arm"), arm).expect("written");
    std::fs::copy("/bin/ls", path("ls")).expect("copied");
    symlink("round", path("round")).expect("linked");
    for (program, said) in [
        ("/absent", "/absent: no such file"),
        ("/text", "/text: no 64-bit ELF file"),
        ("/script", "/script: its interpreter /no/such/shell is missing"),
        ("/empty", "/empty: a script whose first line names no interpreter"),
        ("/arm", "/arm: made for another processor, expected x86-64"),
        ("/ls", "/ls: its interpreter /lib64/ld-linux-x86-64.so.2 is missing"),
        ("/round", "/round: no such file"),
        ("/", "/: a directory, expected a program"),
    ] {
        let problem = problem(Root::of_program(tree.path(), program, &[]));
        assert!(problem.starts_with(said), "{program}: {problem}");
    }
    std::fs::create_dir(path("lib64")).expect("made");
    std::fs::copy("/lib64/ld-linux-x86-64.so.2", path("lib64/ld-linux-x86-64.so.2")).expect("copied");
    let problem = problem(Root::of_program(tree.path(), "/ls", &[]));
    assert!(
        problem.contains("/ls: needs lib") && problem.contains("which is in none of /lib/x86"),
        "{problem}"
    );
}

#[test]
fn what_is_included_brings_what_it_needs() {
    let include = [PathBuf::from("/bin/cat"), PathBuf::from("/etc/ld.so.conf.d")];
    let root = Root::of_program(Path::new("/"), "/bin/ls", &include).expect("gathered");
    assert!(root.contains("usr/bin/cat") && root.contains("etc/ld.so.conf.d"));
    let relative = problem(Root::of_program(Path::new("/"), "/bin/ls", &[PathBuf::from("bin/cat")]));
    assert_eq!(relative, "bin/cat: expected an absolute path");
}

#[test]
fn a_library_that_is_included_need_not_lie_where_another_looks_for_it() {
    let tree = tempfile::tempdir().expect("a directory");
    let path = |name: &str| tree.path().join(name);
    for directory in ["lib64", "app/lib", "app/lib/inner", "bin"] {
        std::fs::create_dir_all(path(directory)).expect("made");
    }
    let linker = "lib64/ld-linux-x86-64.so.2";
    for copy in [linker, "bin/app"] {
        std::fs::copy(format!("/{linker}"), path(copy)).expect("copied");
    }
    // It needs `libc.so.6`, and other libraries, which are in no usual place of this tree.
    let needing = std::fs::canonicalize("/bin/ls").expect("it is there");
    std::fs::copy(needing, path("app/lib/needing.so")).expect("copied");
    let include = |name: &str| Root::of_program(tree.path(), "/bin/app", &[PathBuf::from(name)]);
    let refused = problem(include("/app/lib"));
    assert!(refused.contains("needing.so: needs lib"), "{refused}");
    assert!(refused.contains("which is in none of"), "{refused}");
    for library in ["libc.so.6", "libselinux.so.1"] {
        std::fs::copy(format!("/{linker}"), path(&format!("app/lib/inner/{library}"))).expect("copied");
    }
    let root = include("/app/lib").expect("gathered");
    assert!(root.contains("app/lib/needing.so") && root.contains("app/lib/inner/libc.so.6"));
    // Beside it, it is found as well, but what is not taken along is not there.
    let refused = problem(include("/app/lib/needing.so"));
    assert!(refused.contains("needing.so: needs lib"), "{refused}");
}
