//! Directories of the host: what of them reaches it, and what becomes of those whose host is silent.

use linux_raw_sys::general::{O_CREAT, O_RDONLY, O_RDWR};
use nom_fs::{
    Access, Caller, Credentials, Durable, Errno, FileTime, LastLink, MountAccess, NodeId, Replace, Vfs,
};
use nom_ninep::{Client, Kind, NinepChannel, NoAnswer};
use nom_ninep_fake::FakeServer;
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;

/// A server that the test looks at, and can silence.
#[derive(Clone)]
struct Host {
    server: Rc<RefCell<FakeServer>>,
    is_silent: Rc<Cell<bool>>,
}

impl NinepChannel for Host {
    fn exchange(&mut self, request: &[u8], answer: &mut [u8]) -> Result<usize, NoAnswer> {
        if self.is_silent.get() {
            return Err(NoAnswer);
        }
        self.server.borrow_mut().exchange(request, answer)
    }
}

impl Host {
    fn lends(directory: &Path) -> Host {
        let server = Rc::new(RefCell::new(FakeServer::new(directory)));
        Host { server, is_silent: Rc::default() }
    }

    fn asked(&self, kind: Kind) -> usize {
        self.server.borrow().asked().iter().filter(|asked| **asked == kind).count()
    }
}

/// Does something with a tree that has the host's directory at `/data/here`.
fn with_volume(host: &Host, act: impl FnOnce(&mut Vfs, &Caller<'_>, NodeId)) {
    let mut vfs = Vfs::new(FileTime::default(), 1 << 20);
    let (credentials, root) = (Credentials::default(), vfs.root());
    let caller = Caller::first(&credentials, root, FileTime::default());
    let lent = Client::new(Box::new(host.clone())).expect("attached");
    vfs.mount_host(&caller, b"/data/here", lent, MountAccess::ReadWrite).expect("mounted");
    act(&mut vfs, &caller, root);
}

#[test]
fn what_is_to_be_durable_is_asked_of_the_host() {
    let site = tempfile::tempdir().expect("a directory");
    let host = Host::lends(site.path());
    with_volume(&host, |vfs, caller, root| {
        let file = vfs.open(caller, root, b"/data/here/f", O_CREAT | O_RDWR, 0o644).expect("made");
        vfs.write(file, 3, b"text", caller).expect("written");
        assert_eq!(std::fs::read(site.path().join("f")).expect("read"), b"\0\0\0text");
        assert_eq!(host.asked(Kind::Sync), 0);
        vfs.sync(file, Durable::Data).expect("durable");
        vfs.sync(file, Durable::All).expect("durable");
        assert_eq!(host.asked(Kind::Sync), 2);
        let directory = vfs.open(caller, root, b"/data/here", O_RDONLY, 0).expect("there");
        vfs.sync(directory, Durable::All).expect("durable");
        assert_eq!(host.asked(Kind::Sync), 3);
        vfs.sync_all();
        assert_eq!(host.asked(Kind::Sync), 5, "of all that is open");
        let memory = vfs.open(caller, root, b"/f", O_CREAT | O_RDWR, 0o644).expect("made");
        vfs.sync(memory, Durable::All).expect("it is nowhere else");
        assert_eq!(host.asked(Kind::Sync), 5);
        let before = host.server.borrow().handles();
        vfs.release(file);
        vfs.release(directory);
        assert_eq!(host.server.borrow().handles(), before - 2, "what is closed here is closed there");
        assert_eq!(vfs.path_of(root, file), b"/data/here/f");
    });
}

#[test]
fn a_file_of_the_hosts_covers_one_and_cannot_be_taken_away() {
    let site = tempfile::tempdir().expect("a directory");
    std::fs::write(site.path().join("it"), "from the host").expect("written");
    std::fs::create_dir(site.path().join("d")).expect("made");
    let mut vfs = Vfs::new(FileTime::default(), 1 << 20);
    let (credentials, root) = (Credentials::default(), vfs.root());
    let caller = Caller::first(&credentials, root, FileTime::default());
    let lent = || Client::new(Box::new(Host::lends(site.path()))).expect("attached");
    vfs.make_directory(&caller, root, b"/etc", 0o755).expect("made");
    let below = vfs.open(&caller, root, b"/etc/it.conf", O_CREAT | O_RDWR, 0o600).expect("made");
    vfs.write(below, 0, b"packed", &caller).expect("written");
    let mount = |vfs: &mut Vfs, path: &[u8], name: &[u8]| {
        vfs.mount_host_file(&caller, path, lent(), (name, MountAccess::ReadWrite))
    };
    assert_eq!(mount(&mut vfs, b"/etc/it.conf", b"it"), Ok(()));
    assert_eq!(mount(&mut vfs, b"/new/place", b"it"), Ok(()), "it is made");
    assert_eq!(mount(&mut vfs, b"/etc/it.conf", b"it"), Err(Errno::EBUSY), "it is covered");
    assert_eq!(mount(&mut vfs, b"/etc", b"it"), Err(Errno::EISDIR));
    assert_eq!(mount(&mut vfs, b"/etc/other", b"absent"), Err(Errno::ENOENT));
    assert_eq!(mount(&mut vfs, b"/etc/other", b"d"), Err(Errno::EINVAL));
    let file = vfs.open(&caller, root, b"/etc/../etc/it.conf", O_RDWR, 0).expect("there");
    let mut text = [0; 16];
    assert_eq!(vfs.read(file, 0, &mut text), Ok(13));
    assert_eq!(&text[..13], b"from the host");
    assert_eq!(vfs.write(file, 0, b"into", &caller), Ok(4));
    assert_eq!(std::fs::read(site.path().join("it")).expect("read"), b"into the host");
    assert_eq!(vfs.path_of(root, file), b"/etc/it.conf");
    assert_eq!(vfs.unlink(&caller, root, b"/etc/it.conf"), Err(Errno::EBUSY));
    let (from, to) = ((root, &b"/etc/it.conf"[..]), (root, &b"/etc/moved"[..]));
    assert_eq!(vfs.rename(&caller, from, to, Replace::Yes), Err(Errno::EBUSY));
    let mut under = [0; 6];
    assert_eq!(vfs.read(below, 0, &mut under), Ok(6), "who had it open has it");
    assert_eq!(&under, b"packed");
}

#[test]
fn what_is_lent_to_be_read_says_so_before_anybody_writes() {
    let site = tempfile::tempdir().expect("a directory");
    std::fs::write(site.path().join("it"), "").expect("written");
    let mut vfs = Vfs::new(FileTime::default(), 1 << 20);
    let (credentials, root) = (Credentials::default(), vfs.root());
    let caller = Caller::first(&credentials, root, FileTime::default());
    let lent = Client::new(Box::new(Host::lends(site.path()))).expect("attached");
    vfs.mount_host(&caller, b"/data", lent, MountAccess::ReadOnly).expect("mounted");
    for path in [&b"/data"[..], b"/data/it"] {
        let node = vfs.resolve(&caller, root, path, LastLink::Follow).expect("there");
        assert_eq!(vfs.access(&caller, node, Access::WRITE), Err(Errno::EROFS), "access(2), of root, too");
        assert_eq!(vfs.access(&caller, node, Access::READ), Ok(()));
        assert_eq!(vfs.space(node).access, MountAccess::ReadOnly);
    }
    assert_eq!(vfs.open(&caller, root, b"/data/it", O_RDWR, 0).err(), Some(Errno::EROFS));
    assert_eq!(vfs.open(&caller, root, b"/data/new", O_CREAT | O_RDWR, 0o644).err(), Some(Errno::EROFS));
    assert_eq!(vfs.space(root).access, MountAccess::ReadWrite);
}

#[test]
fn a_silent_host_is_an_error_to_who_asks_it_and_to_nobody_else() {
    let site = tempfile::tempdir().expect("a directory");
    let host = Host::lends(site.path());
    with_volume(&host, |vfs, caller, root| {
        let file = vfs.open(caller, root, b"/data/here/f", O_CREAT | O_RDWR, 0o644).expect("made");
        let memory = vfs.open(caller, root, b"/data/f", O_CREAT | O_RDWR, 0o644).expect("made");
        host.is_silent.set(true);
        assert_eq!(vfs.write(file, 0, b"text", caller), Err(Errno::EIO));
        assert_eq!(vfs.read(file, 0, &mut [0; 4]), Err(Errno::EIO));
        assert_eq!(vfs.sync(file, Durable::Data), Err(Errno::EIO));
        assert_eq!(vfs.size(file), Err(Errno::EIO), "a size that is not known is not 0");
        assert_eq!(vfs.resolve(caller, root, b"/data/here/f", LastLink::Keep), Err(Errno::EIO));
        assert_eq!(vfs.unlink(caller, root, b"/data/here/f"), Err(Errno::EIO));
        assert_eq!(vfs.write(memory, 0, b"text", caller), Ok(4));
        vfs.release(file);
        host.is_silent.set(false);
        let file = vfs.open(caller, root, b"/data/here/f", O_RDWR, 0).expect("there again");
        assert_eq!(vfs.write(file, 0, b"text", caller), Ok(4));
    });
}

#[test]
fn nodes_that_nobody_holds_go_back_to_the_host() {
    const FILES: usize = 3000;
    let site = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(site.path().join("d")).expect("made");
    (0..FILES).for_each(|file| std::fs::write(site.path().join(format!("d/{file}")), "").expect("written"));
    let host = Host::lends(site.path());
    with_volume(&host, |vfs, caller, root| {
        let held = vfs.open(caller, root, b"/data/here/d/7", O_RDONLY, 0).expect("there");
        for file in 0..FILES {
            let path = format!("/data/here/d/{file}");
            let node = vfs.open(caller, root, path.as_bytes(), O_RDONLY, 0).expect("there");
            vfs.release(node);
        }
        assert!(host.server.borrow().handles() < FILES / 2, "{}", host.server.borrow().handles());
        assert_eq!(vfs.path_of(root, held), b"/data/here/d/7");
        assert_eq!(vfs.read(held, 0, &mut [0; 4]), Ok(0));
    });
}

/// Requests that `act` takes.
fn requests(host: &Host, act: impl FnOnce()) -> usize {
    let before = host.server.borrow().asked().len();
    act();
    host.server.borrow().asked().len() - before
}

/// What a call knows of a path: its number, names and bytes.
fn status(vfs: &mut Vfs, caller: &Caller<'_>, path: &[u8]) -> Result<(u64, u32, u64), Errno> {
    vfs.in_one_call(|vfs| {
        let node = vfs.resolve(caller, caller.root, path, LastLink::Keep)?;
        let known = vfs.attributes(caller, node)?;
        Ok((known.number, known.links, known.size))
    })
}

#[test]
fn a_name_that_is_known_is_asked_about_once_a_call() {
    let site = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(site.path().join("d")).expect("made");
    std::fs::write(site.path().join("d/f"), "text").expect("written");
    let host = Host::lends(site.path());
    with_volume(&host, |vfs, caller, root| {
        let path = b"/data/here/d/f";
        let known = |vfs: &mut Vfs| status(vfs, caller, path).map(|(_, links, len)| (links, len));
        assert_eq!(requests(&host, || assert_eq!(known(vfs), Ok((1, 4)))), 4, "each is walked to at first");
        assert_eq!(requests(&host, || _ = status(vfs, caller, path)), 2, "a directory and a file");
        let user = Credentials { user: 1000, group: 1000, groups: Vec::new() };
        let user = Caller { credentials: &user, ..Caller::first(&user, root, FileTime::default()) };
        assert_eq!(requests(&host, || _ = status(vfs, &user, path)), 3, "it may go through what is lent");
        let mut text = [0; 64];
        let used = requests(&host, || {
            let file = vfs.in_one_call(|vfs| vfs.open(&user, root, path, O_RDONLY, 0)).expect("there");
            assert_eq!(vfs.read(file, 0, &mut text), Ok(4));
            vfs.release(file);
        });
        assert_eq!(used, 3 + 2 + 1 + 1, "a look-up, to open it, to read it, to close it");
        let changed = vfs.in_one_call(|vfs| {
            let file = vfs.open(caller, root, path, O_RDWR, 0).expect("there");
            vfs.truncate(file, 9, caller).expect("done");
            let len = vfs.size(file);
            vfs.release(file);
            len
        });
        assert_eq!(changed, Ok(9), "what a call has changed itself is asked for again");
    });
}

#[test]
fn what_the_host_changes_is_seen_by_the_next_call() {
    let site = tempfile::tempdir().expect("a directory");
    let at = |name: &str| site.path().join(name);
    std::fs::create_dir(at("d")).expect("made");
    std::fs::write(at("d/f"), "text").expect("written");
    std::fs::write(at("other"), "another").expect("written");
    let host = Host::lends(site.path());
    with_volume(&host, |vfs, caller, root| {
        let path = b"/data/here/d/f";
        let held = vfs.open(caller, root, path, O_RDWR, 0).expect("there");
        let (number, ..) = status(vfs, caller, path).expect("there");
        std::fs::write(at("d/f"), "longer text").expect("written");
        assert_eq!(status(vfs, caller, path), Ok((number, 1, 11)), "its contents");
        std::fs::rename(at("other"), at("d/f")).expect("replaced");
        let (other, links, len) = status(vfs, caller, path).expect("there");
        assert!(other != number && (links, len) == (1, 7), "another file");
        let known = vfs.attributes(caller, held).expect("it is open");
        assert_eq!((known.number, known.links), (number, 0), "who had it open has it, without a name");
        let new = vfs.open(caller, root, path, O_RDONLY, 0).expect("there");
        let (mut old_text, mut new_text) = ([0; 4], [0; 4]);
        assert_eq!([vfs.read(held, 0, &mut old_text), vfs.read(new, 0, &mut new_text)], [Ok(4), Ok(4)]);
        assert_eq!([&old_text, &new_text], [b"long", b"anot"]);
        std::fs::remove_file(at("d/f")).expect("removed");
        std::os::unix::fs::symlink("../g", at("d/f")).expect("made");
        std::fs::write(at("g"), "g").expect("written");
        let node = vfs.resolve(caller, root, path, LastLink::Follow).expect("there");
        assert_eq!(vfs.path_of(root, node), b"/data/here/g", "a link");
        std::fs::rename(at("d"), at("e")).expect("moved");
        assert_eq!(status(vfs, caller, path), Err(Errno::ENOENT));
        assert!(status(vfs, caller, b"/data/here/e/f").is_ok());
        std::fs::write(at("d"), "").expect("written");
        assert_eq!(status(vfs, caller, path), Err(Errno::ENOTDIR), "a file where a directory was");
    });
}

#[test]
fn what_has_lost_its_name_is_known_as_long_as_somebody_has_it() {
    let site = tempfile::tempdir().expect("a directory");
    let host = Host::lends(site.path());
    with_volume(&host, |vfs, caller, root| {
        let file = vfs.open(caller, root, b"/data/here/f", O_CREAT | O_RDWR, 0o600).expect("made");
        vfs.unlink(caller, root, b"/data/here/f").expect("removed");
        vfs.write(file, 3, b"text", caller).expect("written");
        let known = vfs.attributes(caller, file).expect("it is open");
        assert_eq!((known.links, known.size), (0, 7));
        // Older QEMUs, 7.2 among them, know nothing of such a file but what it reads and writes.
        host.server.borrow_mut().forget_nameless();
        let known = vfs.attributes(caller, file).expect("it is open");
        assert_eq!((known.links, known.size, known.permissions), (0, 7, 0o600));
        let made = vfs.open(caller, root, b"/data/here/f", O_CREAT | O_RDWR, 0o644).expect("made");
        let known = [file, made].map(|node| vfs.attributes(caller, node).expect("it is open"));
        assert_eq!(known.map(|known| known.size), [7, 0], "another of its name is another");
    });
}

#[test]
fn names_lead_where_they_were_moved() {
    let site = tempfile::tempdir().expect("a directory");
    let host = Host::lends(site.path());
    with_volume(&host, |vfs, caller, root| {
        vfs.make_directory(caller, root, b"/data/here/d", 0o755).expect("made");
        for name in [&b"/data/here/d/a"[..], b"/data/here/d/b"] {
            let file = vfs.open(caller, root, name, O_CREAT | O_RDWR, 0o644).expect("made");
            vfs.release(file);
        }
        let a = status(vfs, caller, b"/data/here/d/a").expect("there");
        let rename = |vfs: &mut Vfs, from: &[u8], to: &[u8]| {
            vfs.rename(caller, (root, from), (root, to), Replace::Yes)
        };
        rename(vfs, b"/data/here/d/a", b"/data/here/d/b").expect("replaced");
        assert_eq!(status(vfs, caller, b"/data/here/d/a"), Err(Errno::ENOENT));
        rename(vfs, b"/data/here/d", b"/data/here/e").expect("moved");
        assert_eq!(status(vfs, caller, b"/data/here/d/b"), Err(Errno::ENOENT));
        let used = requests(&host, || assert_eq!(status(vfs, caller, b"/data/here/e/b"), Ok(a)));
        assert_eq!(used, 2, "nothing is walked to again");
        std::fs::rename(site.path().join("e/b"), site.path().join("e/c")).expect("moved");
        assert_eq!(status(vfs, caller, b"/data/here/e/b"), Err(Errno::ENOENT));
        assert_eq!(status(vfs, caller, b"/data/here/e/c"), Ok(a));
    });
}
