use super::kept::KeptFrames;
use super::*;
use core::cell::Cell;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::vec;

pub(crate) const START: u64 = 0x40_0000;
const PAGES: u64 = 24;
/// Pages of a large page.
const LARGE: u64 = 4;

/// A frame: in how many places it is, and what it holds.
type FakeFrame = (u32, Vec<u8>);

/// All frames.
#[derive(Clone, Default)]
struct FakeFrames {
    frames: Rc<RefCell<BTreeMap<u64, FakeFrame>>>,
    next: Rc<core::cell::Cell<u64>>,
    kept: Rc<RefCell<KeptFrames>>,
}

impl FakeFrames {
    /// Gives back what is kept and nobody else has.
    fn drop_unused(&self) {
        let mut frames = self.frames.borrow_mut();
        let unused = self.kept.borrow_mut().drop_unused(|frame| frames[&frame].0 > 1);
        unused.into_iter().flatten().for_each(|frame| drop(frames.remove(&frame)));
    }
}

/// Pages that keep what they are told, and see that nothing is done to what is not there.
#[derive(Default)]
pub(crate) struct FakePages {
    frames: FakeFrames,
    /// Frame of each, and what it may be used for.
    pages: RefCell<BTreeMap<u64, (u64, Protection)>>,
    /// Most pages at a time, and most in all.
    at_once: u64,
    most: usize,
    /// Where large pages are, and most of them in all.
    large: RefCell<BTreeSet<u64>>,
    large_most: usize,
    /// How many calls that show pages are left until there is no room for tables; no limit if nothing.
    shows: Cell<Option<usize>>,
}

impl FakePages {
    fn new_frames(&self, count: u64) -> u64 {
        let frame = self.frames.next.replace(self.frames.next.get() + count + 1);
        for page in 0..count {
            self.frames.frames.borrow_mut().insert(frame + page, (1, vec![0; PAGE as usize]));
        }
        frame
    }

    /// No large page is only partly among so many pages.
    fn assert_whole(&self, address: u64, count: u64) {
        for edge in [address, address + count * PAGE] {
            let block = edge - edge % (LARGE * PAGE);
            assert!(edge == block || !self.large.borrow().contains(&block), "{edge:#x} is in a large page");
        }
    }

    fn is_full(&self, count: u64) -> bool {
        self.frames.frames.borrow().len() + count as usize > self.most
    }
}

impl FrameKeeper for FakeFrames {
    fn keep(&self, frame: u64, count: u64) {
        for frame in frame..frame + count {
            self.frames.borrow_mut().get_mut(&frame).expect("somebody has it").0 += 1;
        }
    }

    fn leave(&self, frame: u64, count: u64) {
        for frame in frame..frame + count {
            let mut frames = self.frames.borrow_mut();
            let (holders, _) = frames.get_mut(&frame).expect("somebody has it");
            *holders -= 1;
            if *holders == 0 {
                frames.remove(&frame);
            }
        }
    }

    fn read(&self, frame: u64, start: u64, bytes: &mut [u8]) -> bool {
        let start = start as usize;
        bytes.copy_from_slice(&self.frames.borrow()[&frame].1[start..start + bytes.len()]);
        true
    }

    fn write(&self, frame: u64, start: u64, bytes: &[u8]) -> bool {
        let (mut frames, start) = (self.frames.borrow_mut(), start as usize);
        let (_, there) = frames.get_mut(&frame).expect("somebody has it");
        there[start..start + bytes.len()].copy_from_slice(bytes);
        true
    }
}

impl PageSource for FakePages {
    fn add(&self, address: u64, count: u64) -> Option<(u64, u64)> {
        let count = count.min(self.at_once);
        if self.is_full(count) {
            return None;
        }
        let frame = self.new_frames(count);
        for page in 0..count {
            let new = (frame + page, Protection::ReadWrite);
            let old = self.pages.borrow_mut().insert(address + page * PAGE, new);
            assert!(old.is_none(), "it is there already");
        }
        Some((frame, count))
    }

    fn large_bytes(&self) -> u64 {
        LARGE * PAGE
    }

    fn add_large(&self, address: u64) -> Option<u64> {
        if self.large.borrow().len() >= self.large_most || self.is_full(LARGE) {
            return None;
        }
        assert!(address.is_multiple_of(LARGE * PAGE));
        let frame = self.new_frames(LARGE);
        for page in 0..LARGE {
            let new = (frame + page, Protection::ReadWrite);
            let old = self.pages.borrow_mut().insert(address + page * PAGE, new);
            assert!(old.is_none(), "it is there already");
        }
        self.large.borrow_mut().insert(address);
        Some(frame)
    }

    fn cut(&self, address: u64) -> bool {
        let block = address - address % (LARGE * PAGE);
        if address != block {
            self.large.borrow_mut().remove(&block);
        }
        true
    }

    fn protect(&self, address: u64, count: u64, protection: Protection) {
        self.assert_whole(address, count);
        for page in 0..count {
            self.pages.borrow_mut().get_mut(&(address + page * PAGE)).expect("it is there").1 = protection;
        }
    }

    fn remove(&self, address: u64, pieces: &[(u64, u64)]) {
        let count: u64 = pieces.iter().map(|(_, count)| count).sum();
        self.assert_whole(address, count);
        self.large.borrow_mut().retain(|block| !(address..address + count * PAGE).contains(block));
        let frames = pieces.iter().flat_map(|(frame, count)| *frame..frame + count);
        for (frame, page) in frames.zip(0..) {
            let (own, ..) = self.pages.borrow_mut().remove(&(address + page * PAGE)).expect("it is there");
            assert_eq!(own, frame);
            self.frames.leave(own, 1);
        }
    }

    fn enter(&self) {}

    fn keeper(&self) -> Rc<dyn FrameKeeper> {
        Rc::new(self.frames.clone())
    }

    fn another(&self) -> Option<Rc<dyn PageSource>> {
        let (frames, large_most) = (self.frames.clone(), self.large_most);
        let (at_once, most) = (self.at_once, self.most);
        Some(Rc::new(FakePages { frames, at_once, most, large_most, ..FakePages::default() }))
    }

    fn show(&self, address: u64, count: u64, frame: u64, protection: Protection) -> bool {
        let left = self.shows.get();
        if left == Some(0) {
            return false;
        }
        self.shows.set(left.map(|left| left - 1));
        for page in 0..count {
            let shown = self.pages.borrow_mut().insert(address + page * PAGE, (frame + page, protection));
            assert!(shown.is_none(), "it is there already");
            self.frames.frames.borrow_mut().get_mut(&(frame + page)).expect("somebody has it").0 += 1;
        }
        true
    }

    fn alone(&self, frame: u64, count: u64) -> u64 {
        let frames = self.frames.frames.borrow();
        (frame..frame + count).take_while(|frame| frames[frame].0 == 1).count() as u64
    }

    fn separate(&self, address: u64, frame: u64) -> Option<u64> {
        self.assert_whole(address, 1);
        let (own, protection) = self.pages.borrow()[&address];
        assert_eq!((own, protection != Protection::None), (frame, true));
        let (holders, bytes) = self.frames.frames.borrow()[&frame].clone();
        let mut new = frame;
        if holders > 1 {
            if self.is_full(1) {
                return None;
            }
            new = self.new_frames(1);
            self.frames.frames.borrow_mut().insert(new, (1, bytes));
            self.frames.leave(frame, 1);
        }
        self.pages.borrow_mut().insert(address, (new, Protection::ReadWrite));
        Some(new)
    }

    fn kept(&self, name: u64, count: u64) -> Option<(u64, u64)> {
        self.frames.kept.borrow().find(name, count)
    }

    fn keep(&self, name: u64, count: u64, frame: u64) {
        let mut frames = self.frames.frames.borrow_mut();
        let kept = self.frames.kept.borrow_mut().keep(name, count, frame);
        for frame in kept.into_iter().flatten() {
            frames.get_mut(&frame).expect("somebody has it").0 += 1;
        }
    }

    fn read(&self, address: u64, bytes: &mut [u8]) {
        assert!(!bytes.is_empty(), "no bytes may be at any address");
        for (index, byte) in bytes.iter_mut().enumerate() {
            let at = address + index as u64;
            let (frame, protection) = *self.pages.borrow().get(&(at - at % PAGE)).expect("it is there");
            assert_ne!(protection, Protection::None);
            *byte = self.frames.frames.borrow()[&frame].1[(at % PAGE) as usize];
        }
    }

    fn write(&self, address: u64, bytes: &[u8]) {
        assert!(!bytes.is_empty(), "no bytes may be at any address");
        for (index, byte) in bytes.iter().enumerate() {
            let at = address + index as u64;
            let (frame, protection) = *self.pages.borrow().get(&(at - at % PAGE)).expect("it is there");
            assert!(protection.writable());
            let mut frames = self.frames.frames.borrow_mut();
            frames.get_mut(&frame).expect("somebody has it").1[(at % PAGE) as usize] = *byte;
        }
    }
}

/// Pages of a file, of which some lie still.
const FILE_PAGES: u64 = 64;

#[repr(C, align(4096))]
struct Still([u8; (FILE_PAGES * PAGE) as usize]);

static STILL: Still = {
    let mut bytes = [0; (FILE_PAGES * PAGE) as usize];
    let mut page = 0;
    // Their sixth byte is the one that is looked at.
    while page < FILE_PAGES {
        bytes[(page * PAGE) as usize + 5] = 1 + page as u8;
        page += 1;
    }
    Still(bytes)
};

/// A file whose bytes say where they are, and whether it lies still.
struct FakeFile(u64, bool);

impl Contents for FakeFile {
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<usize, Errno> {
        let count = self.0.saturating_sub(offset).min(bytes.len() as u64) as usize;
        for (index, byte) in bytes[..count].iter_mut().enumerate() {
            *byte = byte_of(offset + index as u64);
        }
        Ok(count)
    }

    fn len(&self) -> u64 {
        self.0
    }

    fn unchanging(&self) -> Option<&'static [u8]> {
        self.1.then_some(&STILL.0[..(self.0.min(FILE_PAGES * PAGE)) as usize])
    }
}

fn byte_of(offset: u64) -> u8 {
    1 + (offset / PAGE) as u8
}

pub(crate) fn memory(at_once: u64, most: usize) -> (Rc<FakePages>, ProcessMemory) {
    memory_with_large(at_once, most, 0)
}

/// With so many large pages at most.
fn memory_with_large(at_once: u64, most: usize, large_most: usize) -> (Rc<FakePages>, ProcessMemory) {
    let pages = Rc::new(FakePages { at_once, most, large_most, ..FakePages::default() });
    (pages.clone(), ProcessMemory::new(pages, START..START + PAGES * PAGE))
}

fn file(pages: u64, offset: u64, bytes: u64, rights: Rights) -> MappedRegion {
    of_file(FakeFile(pages * PAGE, false), offset, bytes, rights)
}

fn of_file(contents: FakeFile, offset: u64, bytes: u64, rights: Rights) -> MappedRegion {
    let contents = Rc::new(contents);
    let backing = Backing::File(FilePart { contents, offset: offset * PAGE, bytes });
    MappedRegion { backing, ..MappedRegion::zeros(rights) }
}

#[derive(Clone, Debug)]
enum Step {
    Map(u64, u64, u32, Option<u64>),
    Unmap(u64, u64),
    Protect(u64, u64, u32),
    Forget(u64, u64),
    Write(u64, u8),
    Remap(u64, u64, u64),
    UseLarge(u64, u64, LargeUse),
}

fn step() -> impl Strategy<Value = Step> {
    let range = || (0..PAGES, 1..6u64).prop_map(|(page, count)| (page, count.min(PAGES - page)));
    prop_oneof![
        (range(), 0..8u32, proptest::option::of(0..4u64))
            .prop_map(|((page, count), rights, file)| Step::Map(page, count, rights, file)),
        range().prop_map(|(page, count)| Step::Unmap(page, count)),
        (range(), 0..8u32).prop_map(|((page, count), rights)| Step::Protect(page, count, rights)),
        range().prop_map(|(page, count)| Step::Forget(page, count)),
        (0..PAGES, any::<u8>()).prop_map(|(page, byte)| Step::Write(page, byte)),
        (range(), 1..8u64).prop_map(|((page, count), new)| Step::Remap(page, count, new)),
        (range(), prop_oneof![Just(LargeUse::Everywhere), Just(LargeUse::Nowhere), Just(LargeUse::Filled)])
            .prop_map(|((page, count), large)| Step::UseLarge(page, count, large)),
    ]
}

/// What a page is: rights, what it has first, what it has.
type Model = BTreeMap<u64, (Rights, u8, u8)>;

fn play(memory: &ProcessMemory, model: &mut Model, step: &Step) {
    let at = |page: u64| START + page * PAGE;
    match *step {
        Step::Map(page, count, rights, from) => {
            let rights = Rights::from_bits(rights);
            let region = match from {
                None => MappedRegion::zeros(rights),
                Some(offset) => {
                    let contents = FakeFile(FILE_PAGES * PAGE, (page + offset).is_multiple_of(2));
                    of_file(contents, offset, u64::MAX, rights)
                }
            };
            memory.map(Where::At(at(page)), count * PAGE, region).expect("there is room");
            for index in 0..count {
                let first = from.map_or(0, |offset| byte_of((offset + index) * PAGE));
                model.insert(page + index, (rights, first, first));
            }
        }
        Step::Unmap(page, count) => {
            memory.unmap(at(page), count * PAGE).expect("it is a range");
            model.retain(|other, _| !(page..page + count).contains(other));
        }
        Step::Protect(page, count, rights) => {
            let is_all = (page..page + count).all(|page| model.contains_key(&page));
            let result = memory.protect(at(page), count * PAGE, Rights::from_bits(rights));
            assert_eq!(result.is_ok(), is_all);
            if is_all {
                let pages = model.range_mut(page..page + count);
                pages.for_each(|(_, page)| page.0 = Rights::from_bits(rights));
            }
        }
        Step::Forget(page, count) => {
            let is_all = (page..page + count).all(|page| model.contains_key(&page));
            assert_eq!(memory.forget(at(page), count * PAGE).is_ok(), is_all);
            model.range_mut(page..page + count).for_each(|(_, page)| page.2 = page.1);
        }
        Step::Write(page, byte) => {
            let allowed = model.get(&page).is_some_and(|(rights, ..)| rights.allow(Touch::Write));
            assert_eq!(memory.write(at(page) + 5, &[byte]).is_ok(), allowed);
            if allowed {
                model.get_mut(&page).expect("it is there").2 = byte;
            }
        }
        Step::Remap(page, old, new) => remap(memory, model, page, old, new),
        Step::UseLarge(page, count, large) => {
            let is_all = (page..page + count).all(|page| model.contains_key(&page));
            assert_eq!(memory.use_large(at(page), count * PAGE, large).is_ok(), is_all);
        }
    }
}

fn remap(memory: &ProcessMemory, model: &mut Model, page: u64, old: u64, new: u64) {
    let at = |page: u64| START + page * PAGE;
    // Behind the end of a file's bytes the model knows nothing.
    let Ok(there) = memory.remap(at(page), old * PAGE, new * PAGE, None) else { return };
    assert_eq!(there, at(page), "without leave it does not move");
    if new < old {
        model.retain(|other, _| !(page + new..page + old).contains(other));
    }
    for index in old..new {
        let (rights, first, _) = model[&page];
        let first = if first == 0 { 0 } else { first + index as u8 };
        model.insert(page + index, (rights, first, first));
    }
}

proptest! {
    /// Whatever is mapped, unmapped, protected, forgotten, written and grown: each page reads as a model of
    /// all pages says, what is not allowed is refused, no page that is there may be written and executed, and
    /// nothing is left.
    #[test]
    fn memory_is_what_a_model_of_its_pages_says(
        steps in proptest::collection::vec(step(), 0..40),
        at_once in 1..20u64,
        large in 0..6usize,
    ) {
        let (pages, memory) = memory_with_large(at_once, 1000, large);
        let mut model = Model::new();
        for step in &steps {
            play(&memory, &mut model, step);
            check(&memory, &model, step);
            let there: Vec<u64> = pages.pages.borrow().keys().copied().collect();
            let runs = memory.runs();
            let told = runs.iter().flat_map(|(range, ..)| range.clone().step_by(PAGE as usize));
            prop_assert_eq!(told.collect::<Vec<_>>(), there);
        }
        drop(memory);
        prop_assert!(pages.pages.borrow().is_empty());
        pages.frames.drop_unused();
        prop_assert!(pages.frames.frames.borrow().is_empty());
    }

    /// Parents and children, whatever each of them does from then on: each has what it had, and what it did.
    #[test]
    fn nobody_sees_what_another_does_behind_a_fork(
        steps in proptest::collection::vec((any::<u8>(), proptest::option::weighted(0.9, step())), 0..60),
        at_once in 1..20u64,
        large in 0..6usize,
    ) {
        let (pages, first) = memory_with_large(at_once, 10_000, large);
        let mut all = vec![(first, Model::new())];
        for (who, step) in &steps {
            let who = usize::from(*who) % all.len();
            let Some(step) = step else {
                let (memory, model) = &all[who];
                let child = (memory.duplicate().expect("there is memory"), model.clone());
                all.push(child);
                continue;
            };
            let (memory, model) = &mut all[who];
            play(memory, model, step);
            all.iter().for_each(|(memory, model)| check(memory, model, step));
        }
        // The last that has a page gives it back, whoever that is.
        while !all.is_empty() {
            all.swap_remove(all.len() / 2);
        }
        prop_assert!(pages.pages.borrow().is_empty());
        pages.frames.drop_unused();
        prop_assert!(pages.frames.frames.borrow().is_empty());
    }
}

#[test]
fn what_a_fork_shares_is_writable_for_nobody_until_it_is_copied() {
    let (pages, parent) = memory(64, 100);
    let zeros = MappedRegion::zeros(Rights::READ_WRITE);
    parent.map(Where::At(START), 2 * PAGE, zeros).expect("there is room");
    parent.write(START, &[1]).expect("it is mapped");
    let is_writable = || pages.pages.borrow()[&START].1.writable();
    assert!(is_writable());
    let child = parent.duplicate().expect("there is memory");
    assert!(!is_writable(), "its parent would change what the child sees");
    parent.write(START, &[2]).expect("it is mapped");
    let mut byte = [0];
    child.read(START, &mut byte).expect("it is mapped");
    assert_eq!(byte, [1]);
    assert!(is_writable());
}

#[test]
fn a_child_gets_of_each_region_what_was_said() {
    let (_, parent) = memory(64, 100);
    let zeros = MappedRegion::zeros(Rights::READ_WRITE);
    parent.map(Where::At(START), 3 * PAGE, zeros).expect("there is room");
    for (page, on_fork) in [(0, OnFork::Keep), (1, OnFork::Wipe), (2, OnFork::Leave)] {
        let at = START + page * PAGE;
        parent.write(at, &[1]).expect("it is mapped");
        parent.set_on_fork(at, PAGE, on_fork).expect("it is mapped");
    }
    let child = parent.duplicate().expect("there is memory");
    let second = child.duplicate().expect("there is memory");
    for (memory, expected) in [(&parent, [Ok(1), Ok(1), Ok(1)]), (&child, [Ok(1), Ok(0), Err(Errno::EFAULT)])]
    {
        assert_eq!([0, 1, 2].map(|page| memory.read_value::<u8>(START + page * PAGE)), expected);
    }
    child.write(START + PAGE, &[2]).expect("it is mapped");
    assert_eq!(second.read_value::<u8>(START + PAGE), Ok(0));
    assert_eq!(child.duplicate().expect("there is memory").read_value::<u8>(START + PAGE), Ok(0));
    let shared = MappedRegion { sharing: Sharing::Shared, ..MappedRegion::zeros(Rights::READ_WRITE) };
    parent.map(Where::At(START), PAGE, shared).expect("there is room");
    assert_eq!(parent.set_on_fork(START, PAGE, OnFork::Wipe), Err(Errno::EINVAL));
}

#[test]
fn who_is_left_alone_has_all_around_what_it_writes() {
    let (pages, parent) = memory(64, 100);
    let zeros = || MappedRegion::zeros(Rights::READ_WRITE);
    parent.map(Where::At(START), LARGE * PAGE, zeros()).expect("there is room");
    parent.write(START, &[1]).expect("it is mapped");
    let child = parent.duplicate().expect("there is memory");
    child.write(START + PAGE, &[2]).expect("it is mapped");
    let is_writable = |page: &&(u64, Protection)| page.1.writable();
    let writable = || pages.pages.borrow().values().filter(is_writable).count();
    parent.write(START + 2 * PAGE, &[3]).expect("it is mapped");
    assert_eq!(writable(), 1, "the child has the others, too");
    parent.write(START + PAGE, &[5]).expect("it is mapped");
    assert_eq!(writable(), 2, "the child has the first, too");
    let second = parent.duplicate().expect("there is memory");
    drop((child, second));
    let faults = parent.faults();
    parent.write(START, &[4]).expect("it is mapped");
    // The third has a frame of its own since it was copied: it is in another piece.
    assert_eq!((writable(), parent.faults() - faults), (2, 1));
    let value = |page| parent.read_value::<u8>(START + page * PAGE).expect("it is mapped");
    let values = [0, 1, 2, 3].map(value);
    assert_eq!(values, [4, 5, 3, 0]);
}

#[test]
fn who_begins_later_has_the_same_pages_of_what_lies_still() {
    let (pages, first) = memory(64, 100);
    let region = |rights| of_file(FakeFile(8 * PAGE + 10, true), 1, 7 * PAGE + 10, rights);
    let map = |memory: &ProcessMemory, rights| memory.map(Where::At(START), 8 * PAGE, region(rights));
    let touch = |memory: &ProcessMemory| {
        let mut bytes = [0; 6];
        memory.read(START, &mut bytes).expect("it is mapped");
        bytes[5]
    };
    map(&first, Rights::READ_EXECUTE).expect("there is room");
    assert_eq!(touch(&first), 2);
    let frames = pages.frames.frames.borrow().len();
    let second = ProcessMemory::new(pages.another().expect("there is memory"), first.place());
    map(&second, Rights::READ).expect("there is room");
    assert_eq!(touch(&second), 2);
    assert_eq!(pages.frames.frames.borrow().len(), frames + 1, "the last page has no whole one of the file");
    // Who may write has pages of its own, at once or later.
    second.protect(START, PAGE, Rights::READ_WRITE).expect("it is mapped");
    second.write(START + 5, &[9]).expect("it may be written");
    assert_eq!((touch(&first), touch(&second)), (2, 9));
    let third = ProcessMemory::new(pages.another().expect("there is memory"), first.place());
    map(&third, Rights::READ_WRITE).expect("there is room");
    third.write(START + 5, &[7]).expect("it may be written");
    assert_eq!((touch(&first), touch(&second), touch(&third)), (2, 9, 7));
    drop((first, second, third));
    assert_eq!(pages.frames.frames.borrow().len(), 7, "what lies still stays");
    pages.frames.drop_unused();
    assert!(pages.frames.frames.borrow().is_empty());
}

#[test]
fn a_child_finds_text_that_is_kept_when_it_touches_it() {
    let (pages, parent) = memory(64, 100);
    let text = of_file(FakeFile(8 * PAGE, true), 0, 8 * PAGE, Rights::READ_EXECUTE);
    parent.map(Where::At(START), 8 * PAGE, text).unwrap();
    parent.map(Where::At(START + 16 * PAGE), PAGE, MappedRegion::zeros(Rights::READ_WRITE)).unwrap();
    parent.write(START + 16 * PAGE, b"own").unwrap();
    let first_byte = |memory: &ProcessMemory| {
        let mut bytes = [0];
        memory.read(START, &mut bytes).map(|()| bytes[0])
    };
    let text_byte = first_byte(&parent);
    let frames = pages.frames.frames.borrow().len();
    let child = parent.duplicate().unwrap();
    assert_eq!(child.bytes().1, PAGE, "what its parent could have changed, and no text");
    assert_eq!(first_byte(&child), text_byte);
    assert_eq!(pages.frames.frames.borrow().len(), frames, "it is the same text");
}

#[test]
fn a_place_that_was_read_lately_is_not_written_for_that() {
    let (_, memory) = memory(4, 100);
    memory.map(Where::At(START), PAGE, MappedRegion::zeros(Rights::READ)).unwrap();
    let mut bytes = [0; 4];
    for _ in 0..2 {
        assert_eq!(memory.read(START, &mut bytes), Ok(()));
        assert_eq!(memory.write(START, &bytes), Err(Errno::EFAULT));
        assert_eq!(memory.read(START + PAGE - 2, &mut bytes), Err(Errno::EFAULT));
    }
}

/// Each page reads as the model says.
fn check(memory: &ProcessMemory, model: &Model, step: &Step) {
    for page in 0..PAGES {
        let mut byte = [0];
        let read = memory.read(START + page * PAGE + 5, &mut byte);
        match model.get(&page) {
            Some((rights, _, now)) if rights.allow(Touch::Read) => {
                assert_eq!((read, byte[0]), (Ok(()), *now), "page {page} after {step:?}");
            }
            _ => assert_eq!(read, Err(Errno::EFAULT)),
        }
    }
}

#[test]
fn what_is_shared_both_see_and_neither_forgets() {
    let (pages, memory) = memory(4, 100);
    let region = MappedRegion { sharing: Sharing::Shared, ..MappedRegion::zeros(Rights::READ_WRITE) };
    memory.map(Where::At(START), 3 * PAGE, region).unwrap();
    memory.map(Where::At(START + 8 * PAGE), PAGE, MappedRegion::zeros(Rights::READ_WRITE)).unwrap();
    memory.write(START, b"before").unwrap();
    let child = memory.duplicate().unwrap();
    child.write(START + 2 * PAGE + 1, b"child").unwrap();
    memory.write(START, b"parent").unwrap();
    memory.forget(START, 3 * PAGE).unwrap();
    let read = |memory: &ProcessMemory, at: u64| {
        let mut bytes = [0; 6];
        memory.read(at, &mut bytes).map(|()| bytes)
    };
    assert_eq!(read(&memory, START + 2 * PAGE + 1), Ok(*b"child\0"));
    assert_eq!(read(&child, START), Ok(*b"parent"));
    let words = [&memory, &child].map(|memory| memory.shared_word(START + 2 * PAGE + 8));
    assert!(words[0].is_some() && words[0] == words[1], "{words:?}");
    assert_ne!(words[0], memory.shared_word(START + 2 * PAGE + 12));
    assert_eq!(memory.shared_word(START + 8 * PAGE), None);
    drop(memory);
    assert_eq!(read(&child, START), Ok(*b"parent"));
    drop(child);
    assert!(pages.frames.frames.borrow().is_empty(), "nobody has any of it");
}

/// A file that is written to.
#[derive(Default)]
struct Written(RefCell<Vec<u8>>);

impl Contents for Written {
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<usize, Errno> {
        let there = self.0.borrow();
        let part = there.get(offset as usize..).unwrap_or_default();
        let count = part.len().min(bytes.len());
        bytes[..count].copy_from_slice(&part[..count]);
        Ok(count)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.0.borrow_mut()[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn len(&self) -> u64 {
        self.0.borrow().len() as u64
    }
}

#[test]
fn what_is_written_to_a_file_mapped_shared_all_see_and_the_file_gets() {
    let (pages, memory) = memory(4, 100);
    let file = Rc::new(Written(RefCell::new(vec![b'.'; 3 * PAGE as usize - 7])));
    let shared = SharedPages::new(memory.keeper(), Some(file.clone()));
    let region = MappedRegion::zeros(Rights::READ_WRITE).shared(shared.clone());
    memory.map(Where::At(START), 4 * PAGE, region.clone()).unwrap();
    memory.map(Where::At(START + 8 * PAGE), PAGE, region.behind(2 * PAGE)).unwrap();
    let read = |memory: &ProcessMemory, at: u64| memory.read_value::<[u8; 2]>(at);
    assert_eq!(read(&memory, START + PAGE), Ok(*b".."));
    let child = memory.duplicate().unwrap();
    child.write(START + 2 * PAGE, b"ab").unwrap();
    assert_eq!(read(&memory, START + 8 * PAGE), Ok(*b"ab"), "where it is mapped twice, too");
    assert_eq!(memory.touch(START + 3 * PAGE, Touch::Read), Err(Bad::BehindFile));
    // Made writable at once, and written to only then.
    memory.protect(START, PAGE, Rights::READ).unwrap();
    assert_eq!(read(&memory, START), Ok(*b".."));
    memory.protect(START, PAGE, Rights::READ_WRITE).unwrap();
    memory.write(START, b"cd").unwrap();
    // Who reads the file finds it before it is there, and who writes the file is seen.
    let mut bytes = [0; 4];
    file.read_at(0, &mut bytes).unwrap();
    shared.overlay(0, &mut bytes);
    assert_eq!((bytes, file.0.borrow()[0]), (*b"cd..", b'.'));
    shared.put(PAGE - 1, b"ef");
    assert_eq!((read(&memory, START + PAGE), read(&child, START + PAGE - 1)), (Ok(*b"f."), Ok(*b"ef")));
    memory.write_back(START..START + PAGE).unwrap();
    assert_eq!(file.0.borrow()[..2], *b"cd");
    assert_eq!(memory.write_back(START..START + 5 * PAGE).unwrap_err(), Errno::ENOMEM);
    drop((memory, shared, child));
    assert!(file.0.borrow()[2 * PAGE as usize..].starts_with(b"ab."));
    // The region that was mapped has them still.
    drop(region);
    assert!(pages.frames.frames.borrow().is_empty(), "nobody has any of it");
}

#[test]
fn a_file_that_is_open_for_reading_is_not_made_writable_where_it_is_shared() {
    let (_, memory) = memory(4, 100);
    let pages = SharedPages::new(memory.keeper(), Some(Rc::new(FakeFile(PAGE, false))));
    let backing = Backing::Shared(SharedPart { pages, offset: 0, may_write: false });
    let region = MappedRegion { sharing: Sharing::Shared, backing, ..MappedRegion::zeros(Rights::READ) };
    memory.map(Where::At(START), PAGE, region).unwrap();
    assert_eq!(memory.protect(START, PAGE, Rights::READ_WRITE), Err(Errno::EACCES));
    memory.protect(START, PAGE, Rights::READ_EXECUTE).unwrap();
}

#[test]
fn who_writes_without_memory_for_a_copy_is_told_and_keeps_the_page() {
    let (_, memory) = memory(1, 1);
    memory.map(Where::At(START), PAGE, MappedRegion::zeros(Rights::READ_WRITE)).unwrap();
    memory.write(START, b"a").unwrap();
    let child = memory.duplicate().unwrap();
    assert_eq!(child.touch(START, Touch::Write), Err(Bad::NoMemory));
    assert_eq!(child.read_value(START), Ok(*b"a"));
    drop(memory);
    child.write(START, b"b").unwrap();
    assert_eq!(child.read_value(START), Ok(*b"b"), "nobody else has it now");
}

#[test]
fn what_may_be_written_and_executed_is_one_at_a_time() {
    let (pages, memory) = memory(8, 100);
    let at = memory.map(Where::Near(0), PAGE, MappedRegion::zeros(Rights::from_bits(7))).unwrap();
    let now = |memory: &ProcessMemory| memory.runs()[0].2;
    memory.touch(at, Touch::Write).unwrap();
    assert_eq!(now(&memory), Protection::ReadWrite);
    memory.touch(at, Touch::Execute).unwrap();
    assert_eq!(
        (now(&memory), pages.pages.borrow()[&at].1),
        (Protection::ReadExecute, Protection::ReadExecute)
    );
    memory.touch(at, Touch::Write).unwrap();
    assert_eq!(now(&memory), Protection::ReadWrite);
}

#[test]
fn touches_that_are_not_allowed_say_why() {
    let (_, memory) = memory(8, 100);
    memory.map(Where::At(START), PAGE, MappedRegion::zeros(Rights::READ)).unwrap();
    memory.map(Where::At(START + PAGE), 3 * PAGE, file(2, 0, u64::MAX, Rights::READ)).unwrap();
    assert_eq!(memory.touch(START - 1, Touch::Read), Err(Bad::NoRegion));
    assert_eq!(memory.touch(START, Touch::Write), Err(Bad::NotAllowed));
    assert_eq!(memory.touch(START, Touch::Execute), Err(Bad::NotAllowed));
    assert_eq!(memory.touch(START + 2 * PAGE, Touch::Read), Ok(()));
    assert_eq!(memory.touch(START + 3 * PAGE, Touch::Read), Err(Bad::BehindFile));
}

#[test]
fn a_program_has_zeros_behind_what_its_file_has() {
    let (_, memory) = memory(8, 100);
    memory.map(Where::At(START), 2 * PAGE, file(64, 1, 100, Rights::READ_WRITE)).unwrap();
    let mut bytes = [0; 200];
    memory.read(START, &mut bytes).unwrap();
    assert_eq!((&bytes[..100], &bytes[100..]), (&[2; 100][..], &[0; 100][..]));
}

#[test]
fn without_memory_for_those_around_it_a_page_comes_alone() {
    let (pages, memory) = memory(8, 1);
    memory.map(Where::At(START), 8 * PAGE, MappedRegion::zeros(Rights::READ_WRITE)).unwrap();
    assert_eq!(memory.touch(START + 3 * PAGE, Touch::Write), Ok(()));
    assert_eq!(pages.pages.borrow().len(), 1);
    assert_eq!(memory.touch(START, Touch::Read), Err(Bad::NoMemory));
}

#[test]
fn the_heap_grows_and_shrinks_by_what_is_asked() {
    let (_, memory) = memory(8, 100);
    memory.set_heap(START);
    assert_eq!(memory.set_heap_end(0), START, "which tells where it is");
    assert_eq!(memory.set_heap_end(START + 100), START + 100);
    memory.write(START + 4000, &[1]).unwrap();
    assert_eq!(memory.write(START + PAGE, &[1]), Err(Errno::EFAULT));
    assert_eq!(memory.set_heap_end(START + 3 * PAGE), START + 3 * PAGE);
    memory.map(Where::At(START + 3 * PAGE), PAGE, MappedRegion::zeros(Rights::READ)).unwrap();
    assert_eq!(memory.set_heap_end(START + 3 * PAGE + 1), START + 3 * PAGE, "something is in its way");
    assert_eq!(memory.set_heap_end(START + 1), START + 1);
    assert_eq!(memory.write(START + PAGE, &[1]), Err(Errno::EFAULT));
}

#[test]
fn a_mapping_that_moves_takes_along_what_is_in_it() {
    let (_, memory) = memory(4, 100);
    memory.map(Where::At(START), 2 * PAGE, MappedRegion::zeros(Rights::READ_WRITE)).unwrap();
    memory.map(Where::At(START + 2 * PAGE), PAGE, MappedRegion::zeros(Rights::READ)).unwrap();
    memory.write(START + PAGE, b"moved").unwrap();
    assert_eq!(memory.remap(START, 2 * PAGE, 4 * PAGE, None), Err(Errno::ENOMEM));
    let there = memory.remap(START, 2 * PAGE, 4 * PAGE, Some(Where::Near(0))).unwrap();
    let mut bytes = [0; 5];
    memory.read(there + PAGE, &mut bytes).unwrap();
    assert_eq!(&bytes, b"moved");
    assert_eq!(memory.read(START, &mut bytes), Err(Errno::EFAULT));
    memory.write(there + 3 * PAGE, b"grown").unwrap();
}

#[test]
fn a_mapping_that_finds_no_room_elsewhere_stays_whole() {
    let (pages, memory) = memory(1, 100);
    memory.map(Where::At(START), 3 * PAGE, MappedRegion::zeros(Rights::READ_WRITE)).unwrap();
    let values = [b"first", b"other", b"third"];
    for (page, value) in values.iter().enumerate() {
        memory.write(START + page as u64 * PAGE, *value).unwrap();
    }
    for room in 0..3 {
        pages.shows.set(Some(room));
        let moved = memory.remap(START, 3 * PAGE, 8 * PAGE, Some(Where::At(START + 10 * PAGE)));
        assert_eq!(moved, Err(Errno::ENOMEM), "there is room for {room}");
        assert_eq!(pages.pages.borrow().len(), 3);
        assert!(!memory.is_mapped(START + 10 * PAGE..START + 11 * PAGE));
        for (page, value) in values.iter().enumerate() {
            let mut bytes = [0; 5];
            memory.read(START + page as u64 * PAGE, &mut bytes).unwrap();
            assert_eq!(&bytes, *value);
        }
    }
}

#[test]
fn bad_pointers_are_refused() {
    let (_, memory) = memory(4, 100);
    memory.map(Where::At(START), PAGE, MappedRegion::zeros(Rights::READ_WRITE)).unwrap();
    let mut bytes = [0; 8];
    for address in [0, START - 1, START + PAGE - 7, START + PAGE, u64::MAX, u64::MAX - 7, 1 << 63] {
        assert_eq!(memory.read(address, &mut bytes), Err(Errno::EFAULT), "{address:#x}");
        assert_eq!(memory.write(address, &bytes), Err(Errno::EFAULT), "{address:#x}");
    }
    memory.write(START + PAGE - 3, b"abc").unwrap();
    assert_eq!(memory.read_string(START + PAGE - 3, 100), Err(Errno::EFAULT));
    assert_eq!(memory.read_string(START + PAGE - 3, 3), Err(Errno::ENAMETOOLONG));
    memory.write(START + PAGE - 1, &[0]).unwrap();
    assert_eq!(memory.read_string(START + PAGE - 3, 100), Ok(b"ab".to_vec()));
}

#[test]
fn no_bytes_are_read_and_written_at_any_address() {
    let memory =
        ProcessMemory::new(Rc::new(FakePages { at_once: 8, most: 8, ..FakePages::default() }), 0..START);
    for address in [0, START, u64::MAX] {
        assert_eq!(memory.read(address, &mut []), Ok(()));
        assert_eq!(memory.write(address, &[]), Ok(()));
    }
}

#[test]
fn what_is_received_goes_into_pieces_in_order_and_nowhere_if_one_is_bad() {
    let (_, memory) = memory(4, 100);
    memory.map(Where::At(START), PAGE, MappedRegion::zeros(Rights::READ_WRITE)).unwrap();
    let pieces = [(START, 3), (0, 0), (START + PAGE - 2, 2), (START + PAGE, 9)];
    let mut reached = memory.reached_pieces(&pieces, 0, 5, Touch::Write).unwrap();
    reached.put(b"ab");
    reached.put(b"cde");
    drop(reached);
    let mut bytes = [0; 3];
    memory.read(START, &mut bytes).unwrap();
    assert_eq!(&bytes, b"abc");
    memory.read(START + PAGE - 2, &mut bytes[..2]).unwrap();
    assert_eq!(&bytes[..2], b"de");
    assert_eq!(memory.reached_pieces(&pieces, 0, 6, Touch::Write).err(), Some(Errno::EFAULT));
    assert_eq!(memory.reached_pieces(&[(u64::MAX, 2)], 0, 2, Touch::Write).err(), Some(Errno::EFAULT));
}

#[test]
fn what_is_sent_comes_from_pieces_in_order_behind_those_that_have_gone() {
    let (_, memory) = memory(4, 100);
    memory.map(Where::At(START), PAGE, MappedRegion::zeros(Rights::READ_WRITE)).unwrap();
    memory.write(START, b"abc").unwrap();
    memory.write(START + PAGE - 2, b"de").unwrap();
    let pieces = [(START, 3), (0, 0), (START + PAGE - 2, 2), (START + PAGE, 9)];
    let text = |before: u64| {
        let mut reached = memory.reached_pieces(&pieces, before, 5 - before, Touch::Read).unwrap();
        let mut bytes = vec![0; (5 - before) as usize];
        let (first, second) = bytes.split_at_mut(1.min(5 - before as usize));
        reached.get(first);
        reached.get(second);
        bytes
    };
    for before in 0..=5 {
        assert_eq!(text(before), b"abcde"[before as usize..], "behind {before}");
    }
    assert_eq!(memory.reached_pieces(&pieces, 4, 2, Touch::Read).err(), Some(Errno::EFAULT));
    assert_eq!(memory.reached_pieces(&pieces, 5, 1, Touch::Read).err(), Some(Errno::EFAULT));
}

#[test]
fn pages_are_not_remembered_beyond_a_change_of_what_may_be_done_with_them() {
    let (_, memory) = memory(4, 100);
    memory.map(Where::At(START), 2 * PAGE, MappedRegion::zeros(Rights::READ_WRITE)).unwrap();
    for _ in 0..2 {
        memory.write(START, b"a").unwrap();
        memory.write(START + PAGE, b"b").unwrap();
    }
    memory.protect(START, PAGE, Rights::READ).unwrap();
    assert_eq!(memory.write(START, b"c"), Err(Errno::EFAULT));
    assert_eq!(memory.write(START + PAGE, b"c"), Ok(()));
    memory.unmap(START + PAGE, PAGE).unwrap();
    assert_eq!(memory.read(START + PAGE, &mut [0]), Err(Errno::EFAULT));
    assert_eq!(memory.read(START, &mut [0]), Ok(()));
}

#[test]
#[should_panic(expected = "no more than was asked for")]
fn more_than_is_there_is_put_nowhere() {
    let (_, memory) = memory(4, 100);
    memory.map(Where::At(START), PAGE, MappedRegion::zeros(Rights::READ_WRITE)).unwrap();
    memory.reached_pieces(&[(START, 9)], 0, 2, Touch::Write).unwrap().put(b"abc");
}

/// A file of which one page cannot be read.
struct Torn(u64);

impl Contents for Torn {
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<usize, Errno> {
        let torn = self.0 * PAGE..(self.0 + 1) * PAGE;
        if offset < torn.end && offset + bytes.len() as u64 > torn.start {
            return Err(Errno::EIO);
        }
        FakeFile(self.len(), false).read_at(offset, bytes)
    }

    fn len(&self) -> u64 {
        FILE_PAGES * PAGE
    }
}

#[test]
fn a_page_of_a_file_that_cannot_be_read_is_missing_to_who_touches_it_and_no_other_is() {
    let (pages, memory) = memory(8, 100);
    let torn = Rc::new(Torn(2));
    let shared = SharedPages::new(memory.keeper(), Some(torn.clone()));
    let backing = Backing::File(FilePart { contents: torn, offset: 0, bytes: u64::MAX });
    let own = MappedRegion { backing, ..MappedRegion::zeros(Rights::READ) };
    let all = MappedRegion::zeros(Rights::READ).shared(shared);
    for (at, region) in [(START, own), (START + 8 * PAGE, all)] {
        memory.map(Where::At(at), FILE_PAGES * PAGE, region).unwrap();
        for page in [2, 0, 1, 2, 3] {
            let touched = memory.touch(at + page * PAGE, Touch::Read);
            assert_eq!(touched, if page == 2 { Err(Bad::BehindFile) } else { Ok(()) }, "page {page}");
        }
        assert_eq!(memory.read_value::<u8>(at + 3 * PAGE), Ok(byte_of(3 * PAGE)));
        memory.unmap(at, FILE_PAGES * PAGE).unwrap();
    }
    drop(memory);
    assert!(pages.pages.borrow().is_empty(), "what was brought in vain is given back");
}

proptest! {
    /// Whoever remembers that no place above is free finds the place that who looks everywhere does.
    #[test]
    fn regions_are_placed_as_high_as_they_can_be(
        steps in proptest::collection::vec((1..6_u64, 0..12_usize, any::<bool>()), 1..60),
    ) {
        let memory = ProcessMemory::new(Rc::new(FakePages::default()), START..START + 64 * PAGE);
        let mut there: Vec<(u64, u64)> = Vec::new();
        for (pages, which, unmaps) in steps {
            if unmaps && which < there.len() {
                let (at, bytes) = there.remove(which);
                memory.unmap(at, bytes).expect("it is there");
                continue;
            }
            let (place, bytes) = (memory.place(), pages * PAGE);
            let slack = if pages.is_multiple_of(LARGE) { (LARGE - 1) * PAGE } else { 0 };
            let expected = memory.state.borrow().regions.place_below(place, bytes + slack, GAP);
            let align = slack + PAGE;
            let expected = expected.map(|at| (at + slack) / align * align);
            let found = memory.map(Where::Near(0), bytes, MappedRegion::zeros(Rights::READ));
            prop_assert_eq!(found.ok(), expected);
            there.extend(expected.map(|at| (at, bytes)));
        }
    }
}

/// A large page comes by one touch where the block beside it has been filled, or where it was asked for;
/// never where it would reach over its region's ends, or over what is there.
#[test]
fn who_fills_memory_in_order_gets_large_pages() {
    const BLOCK: u64 = LARGE * PAGE;
    let (pages, memory) = memory_with_large(64, 1000, 10);
    let zeros = || MappedRegion::zeros(Rights::READ_WRITE);
    let there = || pages.large.borrow().iter().map(|at| (at - START) / BLOCK).collect::<Vec<_>>();
    let touch = |block: u64| memory.write(START + block * BLOCK + 5, &[1]).expect("it is mapped");
    let wish = |block: u64, bytes| memory.use_large(START + block * BLOCK, bytes, LargeUse::Everywhere);
    memory.map(Where::At(START), 20 * BLOCK - PAGE, zeros()).expect("there is room");
    // Those around it come, four blocks.
    touch(0);
    touch(9);
    assert_eq!(there(), [], "nothing beside it was filled");
    touch(4);
    touch(7);
    assert_eq!(there(), [4, 7]);
    wish(14, BLOCK).expect("it is mapped");
    touch(14);
    assert_eq!(there(), [4, 7, 14]);
    wish(19, BLOCK - PAGE).expect("it is mapped");
    touch(19);
    assert_eq!(there(), [4, 7, 14], "its region ends within it");
    memory.unmap(START + 7 * BLOCK + PAGE, PAGE).expect("it is mapped");
    assert_eq!(there(), [4, 14], "a part of it is gone");
    memory.map(Where::At(START + 14 * BLOCK), BLOCK, zeros()).expect("there is room");
    wish(14, BLOCK).expect("it is mapped");
    memory.refuse_large();
    touch(14);
    assert_eq!(there(), [4], "it is to have none");
}
