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
        assert_eq!(
            vfs.access(&credentials, node, Access::WRITE),
            Err(Errno::EROFS),
            "access(2), of root, too"
        );
        assert_eq!(vfs.access(&credentials, node, Access::READ), Ok(()));
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
