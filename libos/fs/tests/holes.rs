//! Files with far more holes than bytes.

use nom_fs::{Caller, Credentials, Errno, FileTime, NodeId, Seek, Vfs};
use proptest::prelude::*;

const PAGE: u64 = 4096;

fn with_file(act: impl FnOnce(&mut Vfs, &Caller<'_>, NodeId)) {
    let mut vfs = Vfs::new(FileTime::default(), 1 << 20);
    let (credentials, root) = (Credentials::default(), vfs.root());
    let first = Caller::first(&credentials, root, FileTime::default());
    let file = vfs.nameless(&first, 0o600);
    act(&mut vfs, &first, file);
    vfs.release(file);
}

#[test]
fn a_hole_is_made_of_a_file_however_long_that_is_by_the_pages_that_are_there() {
    const END: u64 = 1 << 62;
    with_file(|vfs, caller, file| {
        vfs.truncate(file, END, caller).expect("longer");
        for at in [0, PAGE + 1, END / 2 - 3, END - 5] {
            vfs.write(file, at, b"bytes", caller).expect("written");
        }
        vfs.punch(file, 3, END - 6, caller).expect("a hole");
        let mut first = [0; 5];
        vfs.read(file, 0, &mut first).expect("read");
        assert_eq!(&first, b"byt\0\0");
        assert_eq!(vfs.read(file, END - 5, &mut first), Ok(5));
        assert_eq!(&first, b"\0\0tes");
        assert_eq!(vfs.seek(file, PAGE, Seek::Data), Ok(END - PAGE), "the last page is the next");
        vfs.punch(file, 0, END, caller).expect("a hole");
        assert_eq!(vfs.seek(file, 0, Seek::Data), Err(Errno::ENXIO));
        assert_eq!((vfs.attributes(caller, file).expect("known").blocks, vfs.size(file)), (0, Ok(END)));
    });
}

proptest! {
    #[test]
    fn a_hole_is_zeros_and_nothing_else_is(
        writes in prop::collection::vec((0..5 * PAGE, 1..2 * PAGE), 0..6),
        holes in prop::collection::vec((0..6 * PAGE, 1..4 * PAGE), 1..4),
    ) {
        with_file(|vfs, caller, file| {
            let mut model = Vec::new();
            for (at, len) in writes {
                let (at, end) = (at as usize, (at + len) as usize);
                model.resize(model.len().max(end), 0);
                model[at..end].fill(7);
                vfs.write(file, at as u64, &model[at..end], caller).expect("written");
            }
            for (at, len) in holes {
                vfs.punch(file, at, len, caller).expect("a hole");
                let (at, end) = (at as usize, (at + len) as usize);
                let len = model.len();
                model[at.min(len)..end.min(len)].fill(0);
            }
            let mut found = vec![1; model.len()];
            assert_eq!(vfs.read(file, 0, &mut found), Ok(model.len()));
            assert_eq!(found, model);
            let pages = model.chunks(PAGE as usize).filter(|page| page.iter().any(|byte| *byte != 0)).count();
            let blocks = vfs.attributes(caller, file).expect("known").blocks;
            assert!(blocks >= pages as u64 * PAGE / 512, "{blocks} of {pages} pages");
        });
    }
}
