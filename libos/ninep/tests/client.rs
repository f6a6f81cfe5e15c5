//! The client against a server over a directory, and against one that says anything.

use nom_ninep::{Change, Client, Error, NinepChannel, NoAnswer};
use nom_ninep_fake::FakeServer;
use proptest::prelude::*;
use std::cell::RefCell;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;

/// `ENOENT`, `EEXIST`, `ENAMETOOLONG`.
const ABSENT: Error = Error::Refused(2);
const THERE: Error = Error::Refused(17);
const LONG: Error = Error::Refused(36);
const O_RDWR: u32 = 2;

/// A server that the test looks at, too.
#[derive(Clone)]
struct Shared(Rc<RefCell<FakeServer>>);

impl NinepChannel for Shared {
    fn exchange(&mut self, request: &[u8], answer: &mut [u8]) -> Result<usize, NoAnswer> {
        self.0.borrow_mut().exchange(request, answer)
    }
}

fn names(client: &mut Client, directory: nom_ninep::Fid) -> Vec<String> {
    let (mut names, mut position) = (Vec::new(), Some(0));
    while let Some(from) = position {
        let mut see = |entry: nom_ninep::LentEntry<'_>| {
            names.push(String::from_utf8_lossy(entry.name).into_owned());
            Some(())
        };
        position = client.list(directory, from, &mut see).expect("listed");
    }
    names.sort();
    names
}

#[test]
fn what_a_client_asks_for_is_done() {
    let site = tempfile::tempdir().expect("a directory");
    let server = Shared(Rc::new(RefCell::new(FakeServer::new(site.path()))));
    let (mut client, root) = Client::new(Box::new(server.clone())).expect("attached");
    let group = site.path().metadata().expect("there").gid();
    client.make_directory(root, b"d", 0o755, group).expect("made");
    assert_eq!(client.make_directory(root, b"d", 0o755, group), Err(THERE));
    let directory = client.walk(root, Some(b"d")).expect("there");
    assert_eq!(client.walk(root, Some(b"absent")), Err(ABSENT));
    assert_eq!(client.walk(root, Some(&[b'n'; 70_000])), Err(LONG));
    let file = client.walk(directory, None).expect("another handle");
    client.create(file, b"f", O_RDWR, 0o640, group).expect("made");
    let text: Vec<u8> = (0..200_000_u32).map(|index| (index / 7) as u8).collect();
    let mut done = 0;
    while done < text.len() {
        done += client.write_at(file, done as u64, &text[done..]).expect("written");
    }
    client.sync(file, 1).expect("durable");
    assert_eq!(std::fs::read(site.path().join("d/f")).expect("read"), text);
    let (mut bytes, mut done) = (vec![0; text.len() + 10], 0);
    loop {
        match client.read(file, done as u64, &mut bytes[done..]).expect("read") {
            0 => break,
            count => done += count,
        }
    }
    assert_eq!(bytes[..done], text);
    let there = client.walk(directory, Some(b"f")).expect("there");
    client.change(there, &Change { mode: Some(0o600), size: Some(5), ..Change::default() }).expect("changed");
    let known = client.attributes(there).expect("known");
    assert_eq!((known.mode, known.size, known.links), (0o100_600, 5, 1));
    client.link(root, there, b"hard").expect("linked");
    client.make_link(root, b"soft", b"hard", group).expect("linked");
    let soft = client.walk(root, Some(b"soft")).expect("there");
    assert_eq!(client.read_link(soft).expect("read"), b"hard");
    client.rename((root, b"hard"), (directory, b"moved")).expect("renamed");
    client.unlink(directory, b"f", 0).expect("unlinked");
    let opened = client.walk(directory, None).expect("another handle");
    client.open(opened, 0).expect("opened");
    assert_eq!(names(&mut client, opened), [".", "..", "moved"]);
    assert!(client.space(root).expect("known").blocks > 0);
    let before = server.0.borrow().handles();
    [opened, soft, there, file].into_iter().for_each(|fid| client.clunk(fid));
    assert_eq!(server.0.borrow().handles(), before - 4);
}

/// One that answers with bytes that are all wrong, but for the head of some.
struct Liar {
    answers: Vec<Vec<u8>>,
    is_headed: bool,
}

impl NinepChannel for Liar {
    fn exchange(&mut self, request: &[u8], answer: &mut [u8]) -> Result<usize, NoAnswer> {
        let mut bytes = self.answers.pop().ok_or(NoAnswer)?;
        if self.is_headed && bytes.len() >= 7 {
            let length = (bytes.len() as u32).to_le_bytes();
            bytes[..4].copy_from_slice(&length);
            bytes[4] = request[4] + 1;
            bytes[5..7].copy_from_slice(&request[5..7]);
        }
        answer[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }
}

proptest! {
    /// Whatever a server says: an answer or an error, and no more bytes than there is room for.
    #[test]
    fn no_answer_is_believed_that_is_none(
        answers in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..12),
        is_headed: bool,
    ) {
        let version = [&[21, 0, 0, 0, 101, 255, 255, 0, 0, 1, 0, 8, 0][..], b"9P2000.L"].concat();
        let attached = [&[20, 0, 0, 0, 105, 1, 0][..], &[0; 13]].concat();
        let mut all = answers;
        all.extend([attached, version]);
        let Ok((mut client, root)) = Client::new(Box::new(Liar { answers: all, is_headed })) else {
            return Err(TestCaseError::fail("the first two answers are right"));
        };
        let mut bytes = [0; 50];
        let mut see = |_: nom_ninep::LentEntry<'_>| Some(());
        let _ = client.attributes(root);
        prop_assert!(client.read(root, 0, &mut bytes).is_ok_and(|count| count <= 50) || bytes == [0; 50]);
        prop_assert!(client.write_at(root, 0, &bytes).map_or(true, |count| count <= 50));
        let _ = client.list(root, 0, &mut see);
        let _ = (client.read_link(root), client.space(root), client.walk(root, Some(b"a")));
        let _ = (client.open(root, 0), client.sync(root, 0));
    }
}
