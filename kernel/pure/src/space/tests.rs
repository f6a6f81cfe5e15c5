use super::*;
use crate::frames::Owner;
use crate::paging::KERNEL_HALF;
use crate::paging::{ROOT_LEVEL, entry_bytes, leaf_level};
use crate::testing::{FakeMemory, Metadata, app, cases, effort, user};
use PageSize::{Huge, Large, Small};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const OWNER: Owner = Owner::tables(app(1));
const KERNEL_ROOT: PhysAddr = PhysAddr::of_frame(Frame::new(0x10_0000));

/// An address space on a machine of its own.
struct Machine<'m> {
    memory: FakeMemory,
    frames: Frames<'m>,
    space: Space,
}

impl Machine<'_> {
    /// The number of tables that it took.
    fn map(&mut self, mapping: &Mapping) -> Result<u64> {
        self.map_within(mapping, u64::MAX)
    }

    fn map_within(&mut self, mapping: &Mapping, at_most: u64) -> Result<u64> {
        let before = self.frames.held(OWNER);
        let Machine { memory, frames, space } = self;
        let by = &mut Means { machine: memory, frames, owner: OWNER, at_most };
        space.map(by, Bounds::APPLICATION, mapping)?;
        Ok(self.frames.held(OWNER) - before)
    }

    fn protect(&mut self, address: u64, length: u64, protection: Protection) -> Result<()> {
        self.space.protect(&mut self.memory, Bounds::APPLICATION.bytes(address, length)?, protection)
    }

    fn unmap(&mut self, address: u64, length: u64) -> Result<Vec<Leaf>> {
        let mut leaves = Vec::new();
        let Machine { memory, frames, space } = self;
        let by = &mut Means { machine: memory, frames, owner: OWNER, at_most: 0 };
        space.unmap(by, Bounds::APPLICATION.bytes(address, length)?, |_, leaf| leaves.push(leaf))?;
        Ok(leaves)
    }

    fn translate(&self, address: u64) -> Option<Leaf> {
        self.space.translate(&self.memory, user(address))
    }

    /// Page tables but for the root.
    fn tables(&self) -> u64 {
        self.frames.held(OWNER) - 1
    }
}

fn with_frames<T>(count: u64, test: impl FnOnce(&mut Machine<'_>) -> T) -> T {
    let mut metadata = Metadata::new(count);
    let mut frames = metadata.frames();
    frames.add_free(0..count);
    let mut memory = FakeMemory::new();
    let by = &mut Means { machine: &mut memory, frames: &mut frames, owner: OWNER, at_most: 1 };
    let space = Space::new(by, KERNEL_ROOT, |entry| *entry >= KERNEL_HALF).unwrap();
    test(&mut Machine { memory, frames, space })
}

/// Pages of ordinary memory that can be read and written.
fn pages(address: u64, frame: u64, size: PageSize, count: u64) -> Mapping {
    let (protection, caching) = (Protection::ReadWrite, Caching::WriteBack);
    Mapping { address, frame: Frame::new(frame), size, count, protection, caching }
}

#[test]
fn the_kernel_half_is_shared_and_the_user_half_empty() {
    with_frames(64, |machine| {
        for index in 0..ENTRIES {
            let entry = machine.memory.read(entry_address(machine.space.root(), index).word());
            let expected = match index {
                KERNEL_HALF.. => machine.memory.read(entry_address(KERNEL_ROOT, index).word()),
                _ => 0,
            };
            assert_eq!(entry, expected, "entry {index}");
        }
        assert_eq!(machine.frames.held(OWNER), 1);
    });
}

#[test]
fn ranges_are_checked_by_one_rule() {
    let (application, user) = (Bounds::APPLICATION, Bounds::USER);
    assert_eq!(application.bytes(USER_START, 4096), Ok(USER_START..USER_START + 4096));
    assert_eq!(application.pages(USER_START, Small, 0), Err(Error::InvalidArgument));
    assert_eq!(application.bytes(USER_START, 1), Err(Error::Misaligned));
    assert_eq!(application.bytes(USER_START + 8, 4096), Err(Error::Misaligned));
    assert_eq!(application.bytes(USER_START + 8, 8), Err(Error::Misaligned), "both by as much");
    assert_eq!(application.pages(Large.bytes() + 4096, Large, 1), Err(Error::Misaligned));
    assert_eq!(application.pages(USER_START, Small, u64::MAX), Err(Error::Overflow));
    assert_eq!(application.bytes(0_u64.wrapping_sub(4096), 8192), Err(Error::Overflow));
    assert_eq!(application.bytes(USER_START - 4096, 4096), Err(Error::OutsideUserSpace));
    assert_eq!(application.bytes(APPLICATION_END, 4096), Err(Error::OutsideUserSpace));
    assert_eq!(application.bytes(nom_abi::layout::DIRECT_MAP, 4096), Err(Error::OutsideUserSpace));
    assert_eq!(user.bytes(APPLICATION_END, 4096), Ok(APPLICATION_END..APPLICATION_END + 4096));
    assert_eq!(user.bytes(USER_END, 4096), Err(Error::OutsideUserSpace));
}

#[test]
fn frames_are_aligned_and_physical() {
    with_frames(64, |machine| {
        let map = |machine: &mut Machine<'_>, frame, size| machine.map(&pages(Huge.bytes(), frame, size, 1));
        assert_eq!(map(machine, 1, Large), Err(Error::Misaligned));
        assert_eq!(map(machine, FRAMES_END, Small), Err(Error::Overflow));
        assert_eq!(map(machine, u64::MAX, Small), Err(Error::Overflow));
        assert_eq!(map(machine, FRAMES_END - 1, Small), Ok(3));
        let uncached = Mapping { caching: Caching::Uncached, ..pages(1 << 40, FRAMES_END - 2, Small, 2) };
        assert_eq!(machine.map(&uncached), Ok(3));
        assert_eq!(machine.translate((1 << 40) + 4096).unwrap().caching, Caching::Uncached);
    });
}

#[test]
fn a_page_is_found_by_any_address_in_it() {
    with_frames(64, |machine| {
        assert_eq!(machine.map(&pages(Huge.bytes(), 1024, Large, 2)), Ok(2));
        let leaf = machine.translate(Huge.bytes() + Large.bytes() + 12345).unwrap();
        assert_eq!(
            (leaf.address, leaf.frame, leaf.size),
            (Huge.bytes() + Large.bytes(), Frame::new(1536), Large)
        );
        assert_eq!(machine.translate(Huge.bytes() - 1), None);
        assert_eq!(machine.translate(Huge.bytes() + 2 * Large.bytes()), None);
        assert_eq!(machine.translate(USER_END), None);
    });
}

#[test]
fn pages_are_never_split() {
    with_frames(64, |machine| {
        machine.map(&pages(Large.bytes(), 512, Large, 2)).unwrap();
        assert_eq!(machine.unmap(Large.bytes(), Large.bytes() + 4096), Err(Error::NotMapped));
        assert_eq!(machine.protect(Large.bytes() + 4096, 4096, Protection::Read), Err(Error::NotMapped));
        assert_eq!(machine.map(&pages(Large.bytes() + 4096, 0, Small, 1)), Err(Error::AlreadyMapped));
        assert_eq!(machine.unmap(Large.bytes(), 2 * Large.bytes()).map(|leaves| leaves.len()), Ok(2));
    });
}

#[test]
fn a_large_page_does_not_cover_small_ones() {
    with_frames(64, |machine| {
        machine.map(&pages(Huge.bytes(), 7, Small, 1)).unwrap();
        assert_eq!(machine.map(&pages(Huge.bytes(), 512, Large, 1)), Err(Error::AlreadyMapped));
        assert_eq!(machine.map(&pages(Huge.bytes(), 0, Huge, 1)), Err(Error::AlreadyMapped));
        machine.unmap(Huge.bytes(), 4096).unwrap();
        assert_eq!(machine.map(&pages(Huge.bytes(), 0, Huge, 1)), Ok(1));
    });
}

#[test]
fn nothing_is_mapped_when_tables_cannot_be_paid_for() {
    with_frames(8, |machine| {
        let wide = pages(Huge.bytes() - 4096, 0, Small, 2);
        assert_eq!(machine.map_within(&wide, 4), Err(Error::OverMemoryCap));
        assert_eq!(machine.tables(), 0);
        assert_eq!(machine.map_within(&wide, 5), Ok(5));
        assert_eq!(machine.unmap(wide.address, 8192).map(|leaves| leaves.len()), Ok(2));

        machine.frames.allocate(Owner::KERNEL, Small, 3, None).unwrap();
        assert_eq!((machine.frames.free(), machine.map(&wide)), (4, Err(Error::OutOfMemory)));
        assert_eq!((machine.tables(), machine.translate(Huge.bytes())), (0, None));
        machine.frames.allocate(Owner::KERNEL, Small, 1, None).unwrap();
        assert_eq!(machine.map(&pages(Huge.bytes(), 0, Small, 512)), Ok(3), "the last three frames");
    });
}

/// Tables that are there are not paid for again, those beside them are, wherever they are missing.
#[test]
fn each_table_that_is_missing_is_paid_for_and_no_other() {
    with_frames(64, |machine| {
        let full = pages(Huge.bytes(), 0, Small, 512);
        assert_eq!(machine.map_within(&full, 3), Ok(3), "it ends where its tables do");
        let behind = pages(Huge.bytes() + Large.bytes(), 0, Small, 1);
        let around = |at: u64| pages(at - 4096, 0, Small, 2);
        machine.unmap(Huge.bytes() + Large.bytes() - 4096, 4096).unwrap();
        let first_is_there = around(Huge.bytes() + Large.bytes());
        assert_eq!(machine.map_within(&first_is_there, 0), Err(Error::OverMemoryCap));
        assert_eq!(machine.map_within(&first_is_there, 1), Ok(1));
        machine.unmap(first_is_there.address, 8192).unwrap();
        machine.unmap(Huge.bytes(), 511 * 4096).unwrap();
        assert_eq!(machine.map_within(&behind, 3), Ok(3));
        machine.unmap(behind.address, 4096).unwrap();
        assert_eq!(machine.map(&pages(behind.address + 4096, 0, Small, 1)), Ok(3));
        assert_eq!(machine.map_within(&first_is_there, 0), Err(Error::OverMemoryCap), "the second is there");
        assert_eq!(machine.map_within(&first_is_there, 1), Ok(1));
    });
}

#[test]
fn a_call_concerns_so_many_pages_and_no_more() {
    with_frames(64, |machine| {
        machine.map(&pages(Huge.bytes(), 0, Small, PAGES_MAX + 1)).unwrap();
        let (most, more) = (PAGES_MAX * 4096, (PAGES_MAX + 1) * 4096);
        assert_eq!(machine.protect(Huge.bytes(), more, Protection::Read), Err(Error::InvalidArgument));
        assert_eq!(machine.unmap(Huge.bytes(), more), Err(Error::InvalidArgument));
        assert_eq!(machine.protect(Huge.bytes(), most, Protection::Read), Ok(()));
        assert_eq!(machine.unmap(Huge.bytes(), most).map(|leaves| leaves.len()), Ok(PAGES_MAX as usize));
    });
}

#[test]
fn an_address_space_ends_with_its_owner() {
    with_frames(64, |machine| {
        machine.map(&pages(USER_START, 0, Small, 2000)).unwrap();
        assert_eq!(machine.tables(), 6);
        assert_eq!(machine.frames.release_all(OWNER), 7);
        assert_eq!(machine.frames.free(), 64);
    });
}

#[test]
fn the_kernel_reads_and_writes_only_what_user_code_could() {
    with_frames(64, |machine| {
        let at = USER_START;
        for (page, protection) in
            [Protection::ReadWrite, Protection::Read, Protection::None].iter().enumerate()
        {
            let page = page as u64;
            let mapping =
                Mapping { protection: *protection, ..pages(at + page * 4096, 100 + page, Small, 1) };
            machine.map(&mapping).unwrap();
        }
        machine.memory.write_bytes(100 * 4096, &[7; 3 * 4096]);
        let Machine { space, memory, .. } = machine;
        let mut bytes = [0; 4096];
        assert_eq!(space.read_user(memory, user(at + 4096), &mut bytes), Ok(()));
        assert_eq!(bytes, [7; 4096]);
        assert_eq!(space.read_user(memory, user(at + 4097), &mut bytes), Err(Error::BadPointer));
        assert_eq!(space.write_user(memory, user(at + 1), &bytes), Err(Error::BadPointer));
        assert_eq!(memory.read(100 * 4096 + 8), u64::from_ne_bytes([7; 8]));
        assert_eq!(space.write_user(memory, user(at), &[9; 4096]), Ok(()));
        assert_eq!(memory.read(100 * 4096 + 8), u64::from_ne_bytes([9; 8]));
        assert_eq!(space.check_writable(memory, user(USER_END), 1), Err(Error::BadPointer));
        assert_eq!(space.check_writable(memory, user(USER_END - 1), 2), Err(Error::BadPointer));
        assert_eq!(space.write_user(memory, user(at + 4096), &[]), Ok(()));
    });
}

/// What one page begins, another continues, which lies elsewhere in memory.
#[test]
fn what_lies_on_several_pages_is_read_and_written_where_it_lies() {
    with_frames(64, |machine| {
        for (page, frame) in [(0, 100), (1, 300), (2, 200)] {
            machine.map(&pages(USER_START + page * 4096, frame, Small, 1)).unwrap();
        }
        let Machine { space, memory, .. } = machine;
        let written: Vec<u8> = (0..4096 + 16).map(|number| (number % 251) as u8).collect();
        let at = user(USER_START + 4096 - 8);
        assert_eq!(space.write_user(memory, at, &written), Ok(()));
        let mut read = vec![0; written.len()];
        assert_eq!(space.read_user(memory, at, &mut read), Ok(()));
        assert_eq!(read, written);
        for (physical, part) in [(101 * 4096 - 8, 0..8), (300 * 4096, 8..4104), (200 * 4096, 4104..4112)] {
            let mut there = vec![0; part.len()];
            memory.read_bytes(physical, &mut there);
            assert_eq!(there, written[part], "{physical:#x}");
        }
    });
}

#[test]
fn an_address_that_an_application_passes_is_none_of_the_kernels() {
    let outside = Err(Error::OutsideUserSpace);
    let word = |address: Result<UserAddr>| address.map(UserAddr::word);
    assert_eq!(word(UserAddr::pointer(USER_END)), Ok(USER_END));
    for behind in [USER_END + 1, nom_abi::layout::DIRECT_MAP, u64::MAX] {
        assert_eq!(word(UserAddr::pointer(behind)), Err(Error::BadPointer));
        assert_eq!(word(UserAddr::code(behind)), outside);
        assert_eq!(
            word(UserAddr::stack(behind & !15)),
            if behind == USER_END + 1 { Ok(USER_END) } else { outside }
        );
    }
    assert_eq!(
        [USER_START - 1, USER_START, USER_END - 1, USER_END].map(|at| word(UserAddr::code(at))),
        [outside, Ok(USER_START), Ok(USER_END - 1), outside]
    );
    let least = USER_START + 4096;
    assert_eq!(
        [least - 16, least, least + 8].map(|top| word(UserAddr::stack(top))),
        [outside, Ok(least), Err(Error::Misaligned)]
    );
}

#[test]
fn device_registers_are_not_user_memory() {
    with_frames(64, |machine| {
        let registers = Mapping { caching: Caching::Uncached, ..pages(USER_START, 100, Small, 1) };
        machine.map(&registers).unwrap();
        let read = machine.space.read_user(&machine.memory, user(USER_START), &mut [0; 4]);
        assert_eq!(read, Err(Error::BadPointer));
        let write = machine.space.check_writable(&machine.memory, user(USER_START), 4);
        assert_eq!(write, Err(Error::BadPointer));
    });
}

/// What an address space ought to be: its pages by address.
#[derive(Debug, Default)]
struct Model {
    pages: BTreeMap<u64, Leaf>,
}

impl Model {
    fn find(&self, address: u64) -> Option<Leaf> {
        let (_, leaf) = self.pages.range(..=address).next_back()?;
        (address - leaf.address < leaf.size.bytes()).then_some(*leaf)
    }

    fn map(&mut self, mapping: &Mapping) -> Result<()> {
        let range = mapping.range(Bounds::APPLICATION)?;
        let below = self.find(range.start);
        if below.is_some() || self.pages.range(range.clone()).next().is_some() {
            return Err(Error::AlreadyMapped);
        }
        let &Mapping { size, protection, caching, .. } = mapping;
        for address in range.clone().step_by(size.bytes() as usize) {
            let frame = mapping.frame + (address - range.start) / FRAME_BYTES;
            self.pages.insert(address, Leaf { address, frame, size, protection, caching });
        }
        Ok(())
    }

    /// The pages that make up a range. Errors: NotMapped.
    fn whole(&self, address: u64, length: u64) -> Result<Vec<Leaf>> {
        let mut range = Bounds::APPLICATION.bytes(address, length)?;
        let mut found = Vec::new();
        while !range.is_empty() {
            let leaf = self.pages.get(&range.start).ok_or(Error::NotMapped)?;
            range.start += leaf.size.bytes();
            found.push(*leaf);
        }
        if range.start == range.end { Ok(found) } else { Err(Error::NotMapped) }
    }

    fn protect(&mut self, address: u64, length: u64, protection: Protection) -> Result<()> {
        for leaf in self.whole(address, length)? {
            self.pages.insert(leaf.address, Leaf { protection, ..leaf });
        }
        Ok(())
    }

    fn unmap(&mut self, address: u64, length: u64) -> Result<Vec<Leaf>> {
        let leaves = self.whole(address, length)?;
        self.pages.retain(|_, leaf| !leaves.contains(leaf));
        Ok(leaves)
    }

    /// Tables below the root that these pages need: each is named by its level and what it covers.
    fn tables(&self) -> u64 {
        let tables = |leaf: &Leaf| {
            let address = leaf.address;
            (leaf_level(leaf.size)..ROOT_LEVEL).map(move |level| (level, address / entry_bytes(level + 1)))
        };
        self.pages.values().flat_map(tables).collect::<BTreeSet<_>>().len() as u64
    }

    /// Whether user code can access all of a range of memory.
    fn allows(&self, address: u64, length: u64, allows: impl Fn(Protection) -> bool) -> bool {
        (address..address + length).all(|address| {
            self.find(address)
                .is_some_and(|leaf| allows(leaf.protection) && leaf.caching == Caching::WriteBack)
        })
    }
}

/// A step of a random life.
#[derive(Clone, Debug)]
enum Step {
    Map(Mapping),
    Protect(u64, u64, Protection),
    Unmap(u64, u64),
    UnmapPage(usize),
    Write(u64, Vec<u8>),
}

/// Addresses around which tables of different levels meet.
fn address() -> impl Strategy<Value = u64> {
    let anchors = vec![USER_START, Huge.bytes(), 1 << 39, (1 << 39) + Large.bytes(), APPLICATION_END];
    let anchor = prop::sample::select(anchors);
    let size = prop_oneof![8 => Just(Small), 4 => Just(Large), 1 => Just(Huge)];
    (anchor, size, 0..5_u64).prop_map(|(anchor, size, pages)| {
        let before = anchor.saturating_sub(2 * size.bytes()).next_multiple_of(size.bytes());
        before + pages * size.bytes()
    })
}

fn protection() -> impl Strategy<Value = Protection> {
    prop::sample::select(vec![
        Protection::None,
        Protection::Read,
        Protection::ReadWrite,
        Protection::ReadExecute,
    ])
}

fn mapping() -> impl Strategy<Value = Mapping> {
    let size = prop_oneof![6 => Just(Small), 3 => Just(Large), 1 => Just(Huge)];
    let caching = prop_oneof![9 => Just(Caching::WriteBack), 1 => Just(Caching::Uncached)];
    (address(), 0..9_u64, size, 0..4_u64, protection(), caching).prop_map(
        |(address, unit, size, count, protection, caching)| {
            // One in three is not aligned as it has to be.
            let address = if unit % 3 == 0 { address } else { address / size.bytes() * size.bytes() };
            let frame = 0x4_0000 + unit * size.frames();
            Mapping { address, frame: Frame::new(frame), size, count, protection, caching }
        },
    )
}

fn length() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => (1..5_u64).prop_map(|pages| pages * Small.bytes()),
        3 => (1..3_u64).prop_map(|pages| pages * Large.bytes()),
        1 => Just(Huge.bytes()),
        1 => Just(0),
        1 => 1..8192_u64,
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => mapping().prop_map(Step::Map),
        2 => (address(), length(), protection()).prop_map(|(at, length, p)| Step::Protect(at, length, p)),
        2 => (address(), length()).prop_map(|(at, length)| Step::Unmap(at, length)),
        3 => any::<usize>().prop_map(Step::UnmapPage),
        2 => (address(), 0..4096_u64, prop::collection::vec(any::<u8>(), 1..200))
            .prop_map(|(page, offset, bytes)| Step::Write(page + offset, bytes)),
    ]
}

fn take(step: Step, machine: &mut Machine<'_>, model: &mut Model) {
    match step {
        Step::Map(mapping) => {
            let before = machine.tables();
            let mapped = machine.map(&mapping);
            assert_eq!(mapped.map(drop), model.map(&mapping));
            assert_eq!(machine.tables(), before + mapped.unwrap_or(0));
        }
        Step::Protect(address, length, protection) => {
            let expected = model.protect(address, length, protection);
            assert_eq!(machine.protect(address, length, protection), expected);
        }
        Step::Unmap(address, length) => {
            assert_eq!(machine.unmap(address, length), model.unmap(address, length));
        }
        Step::UnmapPage(at) => {
            let Some(at) = at.checked_rem(model.pages.len()) else { return };
            let leaf = *model.pages.values().nth(at).expect("less than there are");
            let expected = model.unmap(leaf.address, leaf.size.bytes());
            assert_eq!(machine.unmap(leaf.address, leaf.size.bytes()), expected);
        }
        Step::Write(address, bytes) => write(machine, model, address, &bytes),
    }
}

fn write(machine: &mut Machine<'_>, model: &Model, address: u64, bytes: &[u8]) {
    let length = bytes.len() as u64;
    let place = UserAddr::pointer(address);
    let written = place.and_then(|place| machine.space.write_user(&mut machine.memory, place, bytes));
    let expected = model.allows(address, length, Protection::writable);
    assert_eq!(written, if expected { Ok(()) } else { Err(Error::BadPointer) });

    let mut read = vec![0; bytes.len()];
    let was_read = place.and_then(|place| machine.space.read_user(&machine.memory, place, &mut read));
    let expected = model.allows(address, length, |protection| protection != Protection::None);
    assert_eq!(was_read, if expected { Ok(()) } else { Err(Error::BadPointer) });
    if was_read.is_ok() && written.is_ok() {
        assert_eq!(read, bytes);
    }
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn any_life_agrees_with_the_model(steps in prop::collection::vec(step(), 1..effort(60, 8))) {
        let mut model = Model::default();
        with_frames(4096, |machine| {
            for step in steps {
                take(step, machine, &mut model);
                assert_eq!(machine.tables(), model.tables());
                for leaf in model.pages.values() {
                    assert_eq!(machine.translate(leaf.address), Some(*leaf));
                    let last = leaf.address + leaf.size.bytes() - 1;
                    assert_eq!(machine.translate(last), Some(*leaf));
                }
            }
        });
    }
}
