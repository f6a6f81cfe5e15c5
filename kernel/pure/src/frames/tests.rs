mod model;

use super::*;
use crate::testing::{Metadata, app, cases, effort};
use PageSize::{Huge, Large, Small};
use model::Model;
use proptest::prelude::*;

const A: Owner = Owner::grants(app(0));
const B: Owner = Owner::tables(app(63));

/// Runs `test` on memory whose frames in `free` are free.
fn with_memory<T>(free: Range<u64>, test: impl FnOnce(&mut Frames<'_>) -> T) -> T {
    let mut metadata = Metadata::new(free.end);
    let mut frames = metadata.frames();
    assert_eq!(frames.add_free(free.clone()), free.end - free.start);
    test(&mut frames)
}

#[test]
fn metadata_takes_four_bytes_a_frame_and_sixteen_a_block() {}

#[test]
fn every_owner_is_somebody_else() {
    let mut all = vec![Owner::RESERVED, Owner::FREE, Owner::KERNEL];
    for index in 0..64 {
        let owners = [
            Owner::grants(app(index)),
            Owner::program(app(index)),
            Owner::tables(app(index)),
            Owner::dma(app(index)),
            Owner::channel(index),
        ];
        all.extend(owners);
    }
    let unique: std::collections::HashSet<Owner> = all.iter().copied().collect();
    assert_eq!((unique.len(), all.len()), (Owner::COUNT, Owner::COUNT));
}

#[test]
fn what_metadata_contained_before_does_not_matter() {
    let mut blocks = [BlockInfo(Block::Unit { is_huge: true, owner: A, maps: 7 }); 2];
    let mut infos = [FrameInfo::new(B, 9); 1024];
    let mut frames = Frames::new(&mut blocks, &mut infos);
    assert_eq!(frames.add_free(10..1000), 990);
    assert_eq!((frames.free(), frames.total(), frames.held(A), frames.held(B)), (990, 990, 0, 0));
    assert_eq!(frames.unit(9).owner, Owner::RESERVED);
    assert_eq!(frames.unit(10), Unit { owner: Owner::FREE, frame: 10, size: Small, maps: 0 });
}

#[test]
fn whole_blocks_are_added_without_touching_their_frames() {
    let mut blocks = [BlockInfo::RESERVED; 2];
    let mut infos = [FrameInfo::new(B, 9); 1024];
    let mut frames = Frames::new(&mut blocks, &mut infos);
    assert_eq!(frames.add_free(0..1024), 1024);
    assert!(frames.frames.iter().all(|info| info.maps() == 9));
}

#[test]
fn adding_memory_twice_adds_it_once() {
    let mut metadata = Metadata::new(2048);
    let mut frames = metadata.frames();
    assert_eq!(frames.add_free(100..700), 600);
    assert_eq!(frames.add_free(0..1024), 424);
    assert_eq!(frames.add_free(0..u64::MAX), 1024);
    assert_eq!((frames.free(), frames.total()), (2048, 2048));
    assert_eq!(frames.allocate(A, Large, 4, None), Ok(Frame::new(0)));
}

#[test]
fn single_frames_fill_split_blocks_before_free_ones() {
    with_memory(0..2048, |frames| {
        frames.claim(A, Frame::new(700), 1).unwrap();
        for expected in (512..700).chain(701..1024) {
            assert_eq!(frames.allocate(A, Small, 1, None), Ok(Frame::new(expected)));
        }
        assert_eq!(frames.allocate(A, Small, 1, None), Ok(Frame::new(0)));
        assert_eq!(frames.allocate(A, Large, 2, None), Ok(Frame::new(1024)));
    });
}

#[test]
fn a_frame_given_back_is_found_again() {
    with_memory(0..1024, |frames| {
        assert_eq!(frames.allocate(A, Small, 1024, None), Ok(Frame::new(0)));
        frames.release(A, Frame::new(1000), Small, 1).unwrap();
        frames.release(A, Frame::new(3), Small, 1).unwrap();
        assert_eq!(frames.allocate(B, Small, 1, None), Ok(Frame::new(3)));
        assert_eq!(frames.allocate(B, Small, 1, None), Ok(Frame::new(1000)));
        assert_eq!(frames.allocate(B, Small, 1, None), Err(Error::OutOfMemory));
    });
}

#[test]
fn what_is_given_back_below_a_full_part_is_found_again() {
    with_memory(0..2048, |frames| {
        (0..1024).for_each(|frame| assert_eq!(frames.allocate(A, Small, 1, None), Ok(Frame::new(frame))));
        frames.allocate(A, Large, 2, None).unwrap();
        assert_eq!(frames.allocate(A, Small, 1, None), Err(Error::OutOfMemory));
        frames.release(A, Frame::new(7), Small, 1).unwrap();
        assert_eq!(frames.allocate(A, Small, 1, None), Ok(Frame::new(7)));
        frames.release(A, Frame::new(8), Small, 600).unwrap();
        assert_eq!(frames.allocate(A, Large, 1, None), Err(Error::OutOfMemory));
        frames.release(A, Frame::new(1024), Large, 1).unwrap();
        assert_eq!(frames.allocate(A, Large, 1, None), Ok(Frame::new(1024)));
    });
}

#[test]
fn a_huge_unit_starts_at_its_own_size() {
    let huge = Huge.frames();
    with_memory(512..3 * huge, |frames| {
        frames.claim(B, Frame::new(huge + 5), 1).unwrap();
        assert_eq!(frames.allocate(A, Huge, 2, None), Err(Error::OutOfMemory));
        assert_eq!(frames.allocate(A, Huge, 1, None), Ok(Frame::new(2 * huge)));
        assert_eq!(frames.unit(3 * huge - 1), Unit { owner: A, frame: 2 * huge, size: Huge, maps: 0 });
        assert_eq!(frames.release(A, Frame::new(2 * huge), Large, 512), Err(Error::NotGranted));
        assert_eq!(frames.release_all(A), huge);
    });
}

#[test]
fn a_block_is_whole_again_when_its_last_frame_comes_back() {
    with_memory(0..512, |frames| {
        let first = frames.allocate(A, Small, 1, None).unwrap();
        assert_eq!(frames.allocate(A, Large, 1, None), Err(Error::OutOfMemory));
        frames.release(A, first, Small, 1).unwrap();
        assert_eq!(frames.allocate(A, Large, 1, None), Ok(Frame::new(0)));
    });
}

#[test]
fn a_run_may_cross_blocks_when_it_must() {
    with_memory(0..1024, |frames| {
        frames.claim(B, Frame::new(0), 300).unwrap();
        frames.claim(B, Frame::new(900), 100).unwrap();
        assert_eq!(frames.allocate(A, Small, 600, None), Ok(Frame::new(300)));
        assert_eq!(frames.allocate(A, Small, 25, None), Err(Error::OutOfMemory));
        assert_eq!(frames.allocate(A, Small, 24, None), Ok(Frame::new(1000)));
    });
}

#[test]
fn colours_are_exhausted_one_by_one() {
    with_memory(100..1024, |frames| {
        let colour = Some(Colour { index: 5, count: 16 });
        for frame in (101..1024).step_by(16) {
            assert_eq!(frames.allocate(A, Small, 1, colour), Ok(Frame::new(frame)));
        }
        assert_eq!(frames.allocate(A, Small, 1, colour), Err(Error::OutOfMemory));
        assert_eq!(frames.allocate(A, Small, 1, Some(Colour { index: 6, count: 16 })), Ok(Frame::new(102)));
        frames.release(A, Frame::new(117), Small, 1).unwrap();
        assert_eq!(frames.allocate(A, Small, 1, colour), Ok(Frame::new(117)));
    });
}

#[test]
fn a_colour_is_one_of_those_there_are_and_for_one_frame() {
    with_memory(0..1024, |frames| {
        let colour = |index, count| Some(Colour { index, count });
        for (size, count, colour) in [
            (Small, 2, colour(0, 4)),
            (Large, 1, colour(0, 4)),
            (Small, 1, colour(4, 4)),
            (Small, 1, colour(0, 0)),
            (Small, 0, None),
        ] {
            assert_eq!(frames.allocate(A, size, count, colour), Err(Error::InvalidArgument));
        }
        assert_eq!(frames.allocate(A, Small, 1, colour(u64::MAX - 1, u64::MAX)), Err(Error::OutOfMemory));
        assert_eq!(frames.allocate(A, Huge, u64::MAX, None), Err(Error::OutOfMemory));
        assert_eq!(frames.free(), 1024);
    });
}

/// Allocates from split blocks, four of them at a time: the answer, and how often there was none yet.
fn in_pieces(frames: &mut Frames<'_>, count: u64, colour: Option<Colour>) -> (Result<Frame>, usize) {
    let mut search = Search::new(Small, count, colour).unwrap();
    let mut again = 0;
    loop {
        match frames.allocate_piece(A, &mut search, 4 * BLOCK_FRAMES) {
            Ok(None) => again += 1,
            result => return (result.map(|found| found.expect("it is not none")), again),
        }
    }
}

#[test]
fn a_search_in_fragmented_memory_looks_at_so_much_at_a_time() {
    const END: u64 = 40 * BLOCK_FRAMES;
    with_memory(0..END, |frames| {
        (0..END).step_by(2).for_each(|frame| frames.claim(B, Frame::new(frame), 1).unwrap());
        for (count, colour) in [(2, None), (512, None), (1, Some(Colour { index: 0, count: 16 }))] {
            let (result, again) = in_pieces(frames, count, colour);
            assert_eq!(result, Err(Error::OutOfMemory));
            assert!((9..20).contains(&again), "{count} frames are looked for in {again} pieces");
        }
        assert_eq!((frames.free(), frames.held(A)), (END / 2, 0));
        frames.release(B, Frame::new(END - 4), Small, 1).unwrap();
        assert_eq!(in_pieces(frames, 3, None).0, Ok(Frame::new(END - 5)));
    });
}

/// A run that one piece of a search has seen the beginning of, and the next one the end.
#[test]
fn what_is_taken_between_two_pieces_of_a_search_is_not_found() {
    let middle = 4 * BLOCK_FRAMES;
    for is_taken in [false, true] {
        with_memory(0..2 * middle, |frames| {
            frames.claim(B, Frame::new(0), middle - 1).unwrap();
            frames.claim(B, Frame::new(middle + 1), middle - 1).unwrap();
            let mut search = Search::new(Small, 2, None).unwrap();
            // One block with something free, not two.
            assert_eq!(frames.allocate_piece(A, &mut search, BLOCK_FRAMES + 100), Ok(None));
            if is_taken {
                frames.claim(B, Frame::new(middle - 1), 1).unwrap();
            }
            let expected = if is_taken { Err(Error::OutOfMemory) } else { Ok(Some(Frame::new(middle - 1))) };
            assert_eq!(frames.allocate_piece(A, &mut search, u64::MAX), expected);
        });
    }
}

#[test]
fn a_unit_is_given_back_as_it_was_given() {
    with_memory(0..1536, |frames| {
        assert_eq!(frames.allocate(A, Large, 1, None), Ok(Frame::new(0)));
        assert_eq!(frames.allocate(A, Small, 512, None), Ok(Frame::new(512)));
        assert_eq!(frames.release(A, Frame::new(0), Small, 1), Err(Error::NotGranted));
        assert_eq!(frames.release(A, Frame::new(512), Large, 1), Err(Error::NotGranted));
        assert_eq!(frames.release(B, Frame::new(0), Large, 1), Err(Error::NotGranted));
        assert_eq!(frames.release(A, Frame::new(1023), Small, 2), Err(Error::NotGranted));
        assert_eq!(frames.release(A, Frame::new(1), Large, 1), Err(Error::Misaligned));
        assert_eq!(frames.release(A, Frame::new(0), Small, 0), Err(Error::InvalidArgument));
        assert_eq!(frames.release(A, Frame::new(1), Small, u64::MAX), Err(Error::Overflow));
        assert_eq!(frames.release(A, Frame::new(0), Huge, u64::MAX), Err(Error::Overflow));
        assert_eq!(frames.held(A), 1024);
    });
}

#[test]
fn pages_count_on_the_unit_that_they_lie_on() {
    with_memory(0..1024, |frames| {
        frames.allocate(A, Large, 1, None).unwrap();
        frames.reference(A, Frame::new(0), Large, 1).unwrap();
        frames.reference(A, Frame::new(100), Small, 3).unwrap();
        assert_eq!(frames.unit(511), Unit { owner: A, frame: 0, size: Large, maps: 4 });
        frames.dereference(Frame::new(0), Large, 1);
        assert_eq!(frames.release(A, Frame::new(0), Large, 1), Err(Error::StillMapped));
        frames.dereference(Frame::new(100), Small, 3);
        assert_eq!(frames.release(A, Frame::new(0), Large, 1), Ok(()));
    });
}

#[test]
fn a_large_page_needs_a_large_unit() {
    with_memory(0..1024, |frames| {
        assert_eq!(frames.allocate(A, Small, 512, None), Ok(Frame::new(0)));
        assert_eq!(frames.reference(A, Frame::new(0), Large, 1), Err(Error::NotGranted));
        assert_eq!(frames.reference(A, Frame::new(0), Small, 512), Ok(()));
        assert_eq!(frames.reference(A, Frame::new(0), Small, 513), Err(Error::NotGranted));
        assert_eq!(frames.unit(0).maps, 1);
    });
}

#[test]
fn a_frame_cannot_be_mapped_more_often_than_can_be_counted() {
    with_memory(0..512, |frames| {
        frames.allocate(A, Small, 2, None).unwrap();
        frames.frames[1] = FrameInfo::new(A, FrameInfo::MAPS_MAX);
        assert_eq!(frames.reference(A, Frame::new(0), Small, 2), Err(Error::TableFull));
        assert_eq!((frames.unit(0).maps, frames.unit(1).maps), (0, FrameInfo::MAPS_MAX));
        frames.dereference(Frame::new(1), Small, 1);
        assert_eq!(frames.reference(A, Frame::new(0), Small, 2), Ok(()));
        assert_eq!(frames.unit(1).owner, A);
    });
}

#[test]
fn device_registers_count_nothing() {
    with_memory(512..1024, |frames| {
        frames.dereference(Frame::new(0), Large, 1);
        frames.dereference(Frame::new(1 << 30), Small, 7);
        assert_eq!(frames.reference(A, Frame::new(0), Large, 1), Err(Error::NotGranted));
    });
}

#[test]
#[should_panic(expected = "counted as mapped")]
fn unmapping_what_was_never_mapped_is_a_bug() {
    with_memory(0..512, |frames| {
        let frame = frames.allocate(A, Small, 1, None).unwrap();
        frames.dereference(frame, Small, 1);
    });
}

#[test]
fn what_is_passed_on_is_what_was_held_and_no_more() {
    with_memory(0..4096, |frames| {
        for (size, count) in [(Small, 3), (Large, 2)] {
            let frame = frames.allocate(A, size, count, None).unwrap();
            let free = frames.free();
            assert_eq!(frames.pass_on(A, B, Pages { frame, size, count }), Ok(()));
            let passed = count * size.frames();
            assert_eq!((frames.held(A), frames.held(B), frames.free()), (0, passed, free));
            assert_eq!(frames.release(B, frame, size, count), Ok(()));
        }
    });
}

#[test]
fn large_units_of_others_outlive_a_dead_application() {
    let huge = Huge.frames();
    with_memory(0..4 * huge, |frames| {
        let units = [(B, Large), (A, Large), (B, Huge), (A, Huge)];
        let at = units.map(|(owner, size)| frames.allocate(owner, size, 1, None).unwrap());
        // What is dead lies behind what lives, too.
        assert!(at[0] < at[1] && at[2] < at[3]);
        assert_eq!(frames.release_all(A), huge + Large.frames());
        assert_eq!((frames.held(A), frames.held(B)), (0, huge + Large.frames()));
        assert_eq!([at[0], at[2]].map(|frame| frames.unit(frame.number()).owner), [B; 2]);
    });
}

#[test]
fn a_dead_application_loses_everything_and_nobody_else_does() {
    with_memory(0..4096, |frames| {
        frames.allocate(A, Small, 3, None).unwrap();
        frames.allocate(B, Small, 3, None).unwrap();
        frames.allocate(A, Large, 2, None).unwrap();
        frames.reference(A, Frame::new(0), Small, 3).unwrap();
        assert_eq!(frames.release_all(A), 3 + 1024);
        assert_eq!((frames.held(A), frames.held(B), frames.free()), (0, 3, 4093));
        assert_eq!(frames.release_all(A), 0);
        assert_eq!(runs(frames, B, 512), [(3, 3)]);
    });
}

/// Whole blocks, and what comes before the first block that a hint knows nothing of.
#[test]
fn blocks_are_searched_in_pieces() {
    const BLOCKS: u64 = 64;
    let search = |frames: &mut Frames<'_>, size, count| {
        let (mut search, mut pieces) = (Search::new(size, count, None).unwrap(), 1);
        loop {
            match frames.allocate_piece(A, &mut search, 8).transpose() {
                None => pieces += 1,
                Some(result) => return (result, pieces),
            }
        }
    };
    with_memory(0..BLOCKS * 512, |frames| {
        frames.allocate(B, Large, BLOCKS, None).unwrap();
        (0..BLOCKS)
            .step_by(2)
            .for_each(|block| frames.release(B, Frame::new(block * 512), Large, 1).unwrap());
        let (result, pieces) = search(frames, Large, 2);
        assert_eq!(result, Err(Error::OutOfMemory));
        assert!(pieces >= 4, "{pieces} of 8 blocks each");
        frames.release(B, Frame::new(61 * 512), Large, 1).unwrap();
        assert_eq!(search(frames, Large, 2).0, Ok(Frame::new(60 * 512)));
        frames.release(A, Frame::new(60 * 512), Large, 2).unwrap();
        for block in (0..62).step_by(2) {
            assert_eq!(search(frames, Large, 1).0, Ok(Frame::new(block * 512)));
        }
    });
    with_memory(0..BLOCKS * 512, |frames| {
        frames.allocate(B, Large, BLOCKS, None).unwrap();
        frames.release(B, Frame::new(63 * 512), Large, 1).unwrap();
        let (result, pieces) = search(frames, Small, 1);
        assert_eq!(result, Ok(Frame::new(63 * 512)));
        assert!(pieces >= 8, "{pieces}");
        assert_eq!(search(frames, Small, 1), (Ok(Frame::new(63 * 512 + 1)), 1), "now the hint helps");
    });
}

#[test]
fn a_search_for_what_somebody_holds_looks_at_so_much_at_a_time() {
    with_memory(0..4 * 512, |frames| {
        frames.allocate(B, Small, 1, None).unwrap();
        frames.allocate(A, Small, 600, None).unwrap();
        frames.allocate(B, Small, 1, None).unwrap();
        let run = |frame, count| Some(Pages { frame, size: Small, count });
        assert_eq!(frames.next_units(B, 0, 512), run(Frame::new(0), 1));
        let Pages { frame: first, size, count } = frames.next_units(B, 1, 512).expect("there are more");
        assert_eq!((first, size, count), (Frame::new(513), Small, 0));
        assert_eq!(frames.next_units(B, first.number(), 512), run(Frame::new(601), 1));
        assert_eq!(frames.next_units(B, 602, 512), None);
    });
}

/// A step of a random life; places are chosen among what there is when it is taken.
#[derive(Clone, Debug)]
enum Step {
    Allocate(Owner, PageSize, u64, Option<Colour>),
    Claim(Owner, u64, u64),
    Release(Owner, usize, u64),
    ReleaseAnything(Owner, u64, PageSize, u64),
    Reference(Owner, usize, PageSize, u64),
    Dereference(usize),
    ReleaseAll(Owner),
}

fn step(end: u64) -> impl Strategy<Value = Step> {
    let owner = || prop_oneof![Just(A), Just(B), Just(Owner::program(app(0))), Just(Owner::KERNEL)];
    let size = || prop_oneof![8 => Just(Small), 3 => Just(Large), 1 => Just(Huge)];
    let count = || prop_oneof![4 => 1..3_u64, 2 => 1..40_u64, 1 => 1..1200_u64];
    let colour = (0..17_u64, 1..17_u64).prop_map(|(index, count)| Colour { index, count });
    prop_oneof![
        6 => (owner(), size(), count()).prop_map(|(o, s, n)| Step::Allocate(o, s, n, None)),
        2 => (owner(), colour).prop_map(|(o, colour)| Step::Allocate(o, Small, 1, Some(colour))),
        1 => (owner(), 0..end, count()).prop_map(|(o, f, n)| Step::Claim(o, f, n)),
        4 => (owner(), any::<usize>(), count()).prop_map(|(o, at, n)| Step::Release(o, at, n)),
        1 => (owner(), 0..end, size(), count()).prop_map(|(o, f, s, n)| Step::ReleaseAnything(o, f, s, n)),
        4 => (owner(), any::<usize>(), size(), count())
            .prop_map(|(owner, at, size, count)| Step::Reference(owner, at, size, count)),
        3 => any::<usize>().prop_map(Step::Dereference),
        1 => owner().prop_map(Step::ReleaseAll),
    ]
}

/// The unit number `at` of all there are, wrapping around.
fn nth_unit(model: &Model, at: usize) -> Option<Unit> {
    model.units.values().nth(at.checked_rem(model.units.len())?).copied()
}

fn take(step: Step, frames: &mut Frames<'_>, model: &mut Model) {
    match step {
        Step::Allocate(owner, size, count, colour) => allocate(frames, model, owner, size, count, colour),
        Step::Claim(owner, frame, count) => {
            let is_free = model.is_free(frame..frame + count);
            let expected = if is_free { Ok(()) } else { Err(Error::NotGranted) };
            assert_eq!(frames.claim(owner, Frame::new(frame), count), expected);
            model.add(owner, frame, Small, if is_free { count } else { 0 });
        }
        Step::Release(owner, at, count) => {
            let Some(unit) = nth_unit(model, at) else { return };
            let expected = model.release(owner, unit.frame, unit.size, count);
            assert_eq!(frames.release(owner, Frame::new(unit.frame), unit.size, count), expected);
        }
        Step::ReleaseAnything(owner, frame, size, count) => {
            let expected = model.release(owner, frame, size, count);
            assert_eq!(frames.release(owner, Frame::new(frame), size, count), expected);
        }
        Step::Reference(owner, at, size, count) => {
            let Some(unit) = nth_unit(model, at) else { return };
            let expected = model.reference(owner, unit.frame, size, count);
            assert_eq!(frames.reference(owner, Frame::new(unit.frame), size, count), expected);
        }
        Step::Dereference(at) => {
            let Some(at) = at.checked_rem(model.mappings.len()) else { return };
            let (frame, size, count) = model.mappings.swap_remove(at);
            model.dereference((frame, size, count));
            frames.dereference(Frame::new(frame), size, count);
        }
        Step::ReleaseAll(owner) => assert_eq!(frames.release_all(owner), model.release_all(owner)),
    }
}

fn allocate(
    frames: &mut Frames<'_>,
    model: &mut Model,
    owner: Owner,
    size: PageSize,
    count: u64,
    colour: Option<Colour>,
) {
    match frames.allocate(owner, size, count, colour) {
        Ok(frame) => {
            let frame = frame.number();
            assert!(frame.is_multiple_of(size.frames()));
            assert!(model.is_free(frame..frame + count * size.frames()));
            assert!(colour.is_none_or(|colour| frame % colour.count == colour.index));
            if (size, count, colour) == (Small, 1, None) && model.has_free_frame_in_split_block() {
                assert!(model.is_in_split_block(frame), "frame {frame} broke up a free block");
            }
            model.add(owner, frame, size, count);
        }
        Err(Error::InvalidArgument) => assert!(colour.is_some_and(|colour| colour.index >= colour.count)),
        Err(error) => {
            assert_eq!(error, Error::OutOfMemory);
            assert!(!model.can_allocate(size, count, colour));
        }
    }
}

/// All that somebody holds as (first frame, frames), found so many units at a time at most.
fn runs(frames: &Frames<'_>, owner: Owner, most: usize) -> Vec<(u64, u64)> {
    let (mut runs, mut next): (Vec<(u64, u64)>, u64) = (Vec::new(), 0);
    while let Some(Pages { frame, size, count }) = frames.next_units(owner, next, most) {
        let frame = frame.number();
        assert!(frame >= next && count <= most as u64);
        assert!(count > 0 || frame > next, "it goes on");
        next = frame + count * size.frames();
        match runs.last_mut() {
            Some((start, length)) if *start + *length == frame => *length += next - frame,
            _ if count > 0 => runs.push((frame, next - frame)),
            _ => {}
        }
    }
    runs
}

fn compare(frames: &Frames<'_>, model: &Model) {
    assert_eq!(frames.free(), model.free());
    for owner in [A, B, Owner::program(app(0)), Owner::KERNEL, Owner::channel(3)] {
        assert_eq!(frames.held(owner), model.held(owner));
        for most in [1, 3, 512] {
            assert_eq!(runs(frames, owner, most), model.runs(owner));
        }
    }
    for unit in model.units.values() {
        assert_eq!(frames.unit(unit.frame + unit.size.frames() - 1), *unit);
    }
}

/// Memory with a hole, ragged ends and, but for Miri's sake, room for a unit of 1 GiB.
fn memory() -> Vec<Range<u64>> {
    let end = effort(2 * Huge.frames() + 1000, 4000);
    vec![3..600, 1024..2048, 2900..end]
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn any_life_agrees_with_the_model(steps in prop::collection::vec(step(5000), 1..effort(80, 8))) {
        let mut model = Model { memory: memory(), ..Model::default() };
        let mut metadata = Metadata::new(model.memory[2].end);
        let mut frames = metadata.frames();
        model.memory.iter().for_each(|range| { frames.add_free(range.clone()); });
        let total = frames.total();
        for step in steps {
            take(step, &mut frames, &mut model);
            compare(&frames, &model);
        }
        prop_assert_eq!(frames.total(), total);
    }
}
