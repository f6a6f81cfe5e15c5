//! Ways that paths may not take (openat2(2)); what programs see of it is compared with Linux's
//! (`tests/linux/controls.c`).

use nom_fs::{Caller, Credentials, Errno, FileTime, LastLink, NodeId, Scope, Vfs};

const DIRECTORIES: [&str; 3] = ["/home", "/home/inner", "/other"];
const LINKS: [(&str, &str); 4] =
    [("inner", "/home/in"), ("../other", "/home/out"), ("/other", "/home/whole"), ("..", "/home/inner/up")];

/// Resolves a path from `/home`, where it may not go as `scope` says.
fn resolve(scope: Scope, path: &str) -> Result<NodeId, Errno> {
    let mut vfs = Vfs::new(FileTime::default(), 1 << 20);
    let credentials = Credentials::default();
    let root = vfs.root();
    let first = Caller::first(&credentials, root, FileTime::default());
    vfs.mount_system(&first, 1).expect("/proc, /dev and /sys");
    for directory in DIRECTORIES {
        vfs.make_directory(&first, root, directory.as_bytes(), 0o755).expect("a directory");
    }
    for (target, link) in LINKS {
        vfs.make_link(&first, target.as_bytes(), root, link.as_bytes()).expect("a link");
    }
    let home = vfs.resolve(&first, root, b"/home", LastLink::Follow).expect("it is there");
    let root = if scope.is_within() { home } else { root };
    vfs.resolve(&Caller { root, scope, ..first }, home, path.as_bytes(), LastLink::Follow)
}

#[test]
fn paths_go_where_they_may_and_nowhere_else() {
    const FINE: Option<Errno> = None;
    let expected = [
        (Scope::default(), [("inner", FINE), ("out", FINE), ("/other", FINE), ("..", FINE), ("/proc", FINE)]),
        (
            Scope::BENEATH,
            [
                ("inner/../in", FINE),
                ("inner/up/inner", FINE),
                ("out", Some(Errno::EXDEV)),
                ("whole", Some(Errno::EXDEV)),
                ("inner/../..", Some(Errno::EXDEV)),
            ],
        ),
        (
            Scope::IN_ROOT,
            [
                ("/inner", FINE),
                ("../../inner", FINE),
                ("out", Some(Errno::ENOENT)),
                ("whole", Some(Errno::ENOENT)),
                ("/other", Some(Errno::ENOENT)),
            ],
        ),
        (
            Scope::NO_LINKS,
            [
                ("inner", FINE),
                ("../other", FINE),
                ("in", Some(Errno::ELOOP)),
                ("inner/up", Some(Errno::ELOOP)),
                ("/proc/self/status", Some(Errno::ELOOP)),
            ],
        ),
        (
            Scope::ONE_FILE_SYSTEM,
            [
                ("../other", FINE),
                ("whole", FINE),
                ("..", FINE),
                ("../proc", Some(Errno::EXDEV)),
                ("/proc/self", Some(Errno::EXDEV)),
            ],
        ),
    ];
    for (scope, paths) in expected {
        for (path, error) in paths {
            assert_eq!(resolve(scope, path).err(), error, "{scope:?} {path}");
        }
    }
    assert_eq!(Scope::from_bits(8 | 16), Err(Errno::EINVAL));
    assert_eq!(Scope::from_bits(64), Err(Errno::EINVAL));
}
