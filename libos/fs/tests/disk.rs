//! A root on a disk, as `nom-image` writes it: what is read of it, and what becomes of one that is damaged.

use linux_raw_sys::general::{O_CREAT, O_RDONLY, O_RDWR};
use nom_fs::{Caller, Credentials, Errno, FileTime, MemoryRoom, NodeId, Vfs};
use nom_image::Root;
use nom_port::disk::{Disk, SECTOR_BYTES, Unreadable};
use nom_port::root_disk::{BLOCK_BYTES, RootHeader};
use proptest::prelude::*;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::LazyLock;

const LARGE: usize = 1_000_000;
const OTHER: usize = 200_000;

/// A disk in memory, which counts what is read and may have a sector that cannot be.
#[derive(Clone)]
struct Drive {
    bytes: Vec<u8>,
    bad: Option<u64>,
    read: Rc<Cell<u64>>,
}

impl Disk for Drive {
    fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&mut self, offset: u64, target: &mut [u8]) -> Result<(), Unreadable> {
        let range = offset..offset + target.len() as u64;
        assert!(offset.is_multiple_of(SECTOR_BYTES) && (target.len() as u64).is_multiple_of(SECTOR_BYTES));
        self.read.set(self.read.get() + target.len() as u64);
        let source = self.bytes.get(range.start as usize..range.end as usize).ok_or(Unreadable)?;
        target.copy_from_slice(source);
        if self.bad.is_some_and(|bad| range.contains(&bad)) { Err(Unreadable) } else { Ok(()) }
    }
}

fn byte(at: usize) -> u8 {
    (at / 11) as u8 ^ (at >> 12) as u8
}

fn contents(bytes: usize) -> Vec<u8> {
    (0..bytes).map(byte).collect()
}

fn drive() -> Drive {
    static BYTES: LazyLock<Vec<u8>> = LazyLock::new(disk);
    Drive { bytes: BYTES.clone(), bad: None, read: Rc::default() }
}

/// What `nom-image` writes.
fn disk() -> Vec<u8> {
    let directory = tempfile::tempdir().expect("a directory");
    let mut root = Root::new();
    root.write("usr/large", &contents(LARGE));
    root.write("usr/other", &contents(OTHER));
    root.write("usr/small", b"small");
    let path = directory.path().join("disk");
    root.write_disk(&path).expect("written");
    std::fs::read(path).expect("read")
}

fn data_at(drive: &Drive) -> usize {
    let header = RootHeader::decode(drive.bytes.first_chunk().expect("a sector")).expect("a header");
    header.data_at().expect("few bytes") as usize
}

/// Does something with a tree that has the files of a disk, of which two blocks are kept in memory.
fn with_disk<T>(drive: &Drive, act: impl FnOnce(&mut Vfs, &Caller<'_>) -> T) -> Result<T, String> {
    let mut vfs = Vfs::new(FileTime::default(), 1 << 20);
    let (credentials, root) = (Credentials::default(), vfs.root());
    let caller = Caller::first(&credentials, root, FileTime::default());
    vfs.unpack_disk(&caller, Box::new(drive.clone()), 2).map_err(|error| error.to_string())?;
    Ok(act(&mut vfs, &caller))
}

fn open(vfs: &mut Vfs, caller: &Caller<'_>, path: &[u8], flags: u32) -> NodeId {
    let root = vfs.root();
    vfs.open(caller, root, path, flags, 0).expect("it is there")
}

fn read(vfs: &Vfs, file: NodeId, offset: usize, bytes: usize) -> Result<Vec<u8>, Errno> {
    let mut target = vec![0; bytes];
    let count = vfs.read(file, offset as u64, &mut target)?;
    target.truncate(count);
    Ok(target)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    /// Against the bytes in memory.
    #[test]
    fn what_is_read_written_and_cut_is_what_a_file_in_memory_would_have(
        steps in proptest::collection::vec((0..4u8, 0..LARGE + 5000, 1..20_000usize), 1..30),
    ) {
        let drive = drive();
        let tried = with_disk(&drive, |vfs, caller| {
            let file = open(vfs, caller, b"/usr/large", O_RDWR);
            let mut model = contents(LARGE);
            for (step, at, bytes) in steps {
                match step {
                    0 => {
                        let new = vec![at as u8; bytes];
                        prop_assert_eq!(vfs.write(file, at as u64, &new, caller), Ok(bytes));
                        model.resize(model.len().max(at + bytes), 0);
                        model[at..at + bytes].copy_from_slice(&new);
                    }
                    1 if bytes % 8 == 0 => {
                        prop_assert_eq!(vfs.truncate(file, at as u64, caller), Ok(()));
                        model.resize(at, 0);
                    }
                    2 => {
                        prop_assert_eq!(vfs.punch(file, at as u64, bytes as u64, caller), Ok(()));
                        let end = model.len().min(at + bytes);
                        if at < end {
                            model[at..end].fill(0);
                        }
                    }
                    _ => {
                        let expected = &model[at.min(model.len())..model.len().min(at + bytes)];
                        prop_assert_eq!(read(vfs, file, at, bytes), Ok(expected.to_vec()));
                    }
                }
                prop_assert_eq!(vfs.size(file), Ok(model.len() as u64));
            }
            prop_assert_eq!(read(vfs, file, 0, model.len() + 1), Ok(model));
            Ok(())
        });
        tried.expect("the disk is good")?;
    }
}

#[test]
fn nothing_is_read_before_somebody_wants_it_and_a_block_that_is_kept_is_not_read_again() {
    let drive = drive();
    with_disk(&drive, |vfs, caller| {
        let index = drive.read.get();
        assert!(index < 8192, "{index} bytes");
        let [large, small] =
            [&b"/usr/large"[..], b"/usr/small"].map(|path| open(vfs, caller, path, O_RDONLY));
        assert_eq!(read(vfs, small, 0, 9).as_deref(), Ok(&b"small"[..]));
        assert_eq!((vfs.size(large), drive.read.get()), (Ok(LARGE as u64), index));
        for _ in 0..3 {
            assert_eq!(read(vfs, large, 70_000, 10).as_deref(), Ok(&contents(70_010)[70_000..]));
            assert_eq!(drive.read.get(), index + BLOCK_BYTES);
        }
        // What is looked at again and again stays, whatever else is read.
        for block in 2..10 {
            read(vfs, large, block << 16, 1).expect("it is good");
            read(vfs, large, 70_000, 1).expect("it is good");
        }
        assert_eq!(drive.read.get(), index + 9 * BLOCK_BYTES);
    })
    .expect("the disk is good");
}

/// So many bytes for files.
struct Room(Rc<Cell<u64>>);

impl MemoryRoom for Room {
    fn bytes(&self, _: u64) -> u64 {
        self.0.get()
    }
}

#[test]
fn blocks_go_back_when_files_need_their_memory_and_what_has_none_is_refused() {
    let drive = drive();
    with_disk(&drive, |vfs, caller| {
        let large = open(vfs, caller, b"/usr/large", O_RDONLY);
        read(vfs, large, 0, 2 << 16).expect("it is good");
        let before = drive.read.get();
        let room = Rc::new(Cell::new(3 * 4096));
        vfs.set_room(Box::new(Room(room.clone())));
        let new = open(vfs, caller, b"/new", O_RDWR | O_CREAT);
        assert_eq!(vfs.write(new, 0, &[1; 8192], caller), Ok(8192));
        read(vfs, large, 0, 2 << 16).expect("it is good");
        assert_eq!(drive.read.get(), before, "there was room");
        assert_eq!(vfs.write(new, 0, &[2; 1 << 20], caller), Ok(4096), "as far as the page that is there");
        read(vfs, large, 0, 2 << 16).expect("it is good");
        assert_eq!(drive.read.get(), before + 2 * BLOCK_BYTES, "they had gone");
        room.set(0);
        assert_eq!(vfs.write(new, 1 << 20, &[1], caller), Err(Errno::ENOMEM));
        let root = vfs.root();
        assert_eq!(vfs.open(caller, root, b"/newer", O_RDWR | O_CREAT, 0), Err(Errno::ENOMEM));
        assert_eq!(vfs.make_directory(caller, root, b"/newer", 0), Err(Errno::ENOMEM));
        assert_eq!(vfs.write(new, 4096, &[3; 10], caller), Ok(10), "what is there is written");
        assert_eq!(vfs.size(new), Ok(8192));
    })
    .expect("the disk is good");
}

#[test]
fn who_reads_what_is_damaged_or_unreadable_is_told_and_nobody_else() {
    let good = drive();
    // Of `/usr/other`, which lies behind the million bytes of `/usr/large`.
    let place = data_at(&good) + LARGE.next_multiple_of(4096) + 100_000;
    let mut damaged = good.clone();
    damaged.bytes[place] ^= 1;
    let unreadable = Drive { bad: Some(place as u64), ..good };
    for drive in [damaged, unreadable] {
        with_disk(&drive, |vfs, caller| {
            let [large, other] =
                [&b"/usr/large"[..], b"/usr/other"].map(|path| open(vfs, caller, path, O_RDWR));
            assert_eq!(read(vfs, other, 100_000, 100), Err(Errno::EIO));
            assert_eq!(vfs.write(other, 100_001, b"x", caller), Err(Errno::EIO));
            assert_eq!(vfs.punch(other, 100_001, 5, caller), Err(Errno::EIO));
            assert_eq!(read(vfs, other, 0, 100).as_deref(), Ok(&contents(100)[..]));
            assert_eq!(read(vfs, large, 0, LARGE), Ok(contents(LARGE)));
            assert_eq!(vfs.size(other), Ok(OTHER as u64), "nothing was changed");
        })
        .expect("its index is good");
    }
}

#[test]
fn a_disk_that_is_none_or_is_damaged_is_refused() {
    let good = drive();
    let refused = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut drive = good.clone();
        change(&mut drive.bytes);
        with_disk(&drive, |_, _| ()).expect_err("it is not good")
    };
    for (change, said) in [
        (&(|bytes: &mut Vec<u8>| bytes[0] = b'x') as &dyn Fn(&mut Vec<u8>), "no root of nom's"),
        (&|bytes| bytes[20] ^= 1, "damaged: its first sector does not add up"),
        (&|bytes| bytes[600] ^= 1, "damaged: its index does not add up"),
        (&|bytes| bytes.truncate(bytes.len() - 512), "cut: it has "),
        (&|bytes| bytes.truncate(512), "cut: it has 512 bytes"),
        (&|bytes| bytes.clear(), "unreadable where it begins"),
    ] {
        let error = refused(change);
        assert!(error.contains(said), "{error}, expected {said}");
    }
    let unreadable = Drive { bad: Some(1024), ..good };
    let error = with_disk(&unreadable, |_, _| ()).expect_err("it cannot be read");
    assert!(error.contains("unreadable in its index"), "{error}");
}
