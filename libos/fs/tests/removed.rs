//! Directories that have lost their names while somebody has them.

use nom_fs::{Caller, Credentials, Errno, FileTime, LastLink, NodeId, Replace, Vfs};

fn with_files(act: impl FnOnce(&mut Vfs, &Caller<'_>, NodeId)) {
    let mut vfs = Vfs::new(FileTime::default(), 1 << 20);
    let (credentials, root) = (Credentials::default(), vfs.root());
    let first = Caller::first(&credentials, root, FileTime::default());
    act(&mut vfs, &first, root);
}

/// Makes a directory in each other, as deep as that, and holds the last.
fn nest(vfs: &mut Vfs, caller: &Caller<'_>, root: NodeId, depth: usize) -> (NodeId, Vec<String>) {
    let paths: Vec<String> = (1..=depth).map(|depth| "/d".repeat(depth)).collect();
    for path in &paths {
        vfs.make_directory(caller, root, path.as_bytes(), 0o755).expect("made");
    }
    let last = paths.last().map_or("/", |path| path.as_str());
    let held = vfs.resolve(caller, root, last.as_bytes(), LastLink::Follow).expect("it is there");
    vfs.hold(held);
    (held, paths)
}

#[test]
fn the_way_up_from_a_removed_directory_is_there_as_long_as_somebody_has_it() {
    with_files(|vfs, caller, root| {
        let before = vfs.space(root).files;
        let (held, paths) = nest(vfs, caller, root, 3);
        for path in paths.iter().rev() {
            vfs.remove_directory(caller, root, path.as_bytes()).expect("removed");
        }
        let above = vfs.resolve(caller, held, b"..", LastLink::Follow).expect("it is known");
        assert_eq!(vfs.attributes(caller, above).expect("it is there").links, 0);
        assert_eq!(vfs.resolve(caller, held, b"../../..", LastLink::Follow), Ok(root));
        assert_eq!(vfs.path_of(root, held), b"/ (deleted)/ (deleted)/ (deleted)");
        vfs.make_directory(caller, root, b"/x", 0o755).expect("made");
        let moved = vfs.rename(caller, (root, b"/x"), (held, b"y"), Replace::Yes);
        assert_eq!(moved, Err(Errno::ENOENT), "nothing goes into what was removed");
        vfs.remove_directory(caller, root, b"/x").expect("removed");
        vfs.release(held);
        assert_eq!(vfs.space(root).files, before, "all are gone with who had the last");
    });
}

#[test]
fn a_directory_whose_name_another_took_has_its_way_up_too() {
    with_files(|vfs, caller, root| {
        let before = vfs.space(root).files;
        let (held, _) = nest(vfs, caller, root, 2);
        vfs.make_directory(caller, root, b"/new", 0o755).expect("made");
        vfs.rename(caller, (root, b"/new"), (root, b"/d/d"), Replace::Yes).expect("it was empty");
        for path in [&b"/d/d"[..], b"/d"] {
            vfs.remove_directory(caller, root, path).expect("removed");
        }
        assert_eq!(vfs.resolve(caller, held, b"../..", LastLink::Follow), Ok(root));
        vfs.release(held);
        assert_eq!(vfs.space(root).files, before);
    });
}

#[test]
fn a_long_way_up_is_given_back_in_no_more_stack_than_a_short_one() {
    with_files(|vfs, caller, root| {
        let before = vfs.space(root).files;
        let (mut at, mut all) = (root, vec![root]);
        for _ in 0..50_000 {
            vfs.make_directory(caller, at, b"d", 0o755).expect("made");
            at = vfs.resolve(caller, at, b"d", LastLink::Follow).expect("it is there");
            all.push(at);
        }
        vfs.hold(at);
        all.pop();
        for directory in all.iter().rev() {
            vfs.remove_directory(caller, *directory, b"d").expect("removed");
        }
        assert_eq!(vfs.resolve(caller, at, b"..", LastLink::Follow), Ok(all[all.len() - 1]));
        vfs.release(at);
        assert_eq!(vfs.space(root).files, before);
    });
}
