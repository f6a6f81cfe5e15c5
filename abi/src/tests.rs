//! What crosses the border as a number, a bit or an address means one thing: each mistake in a table is one
//! that kernel and applications would share, so that no other test would see it.

extern crate std;

use super::*;
use crate::board::{ApplicationState, Board, ClockSource, DmaProtection, Hazards, Usage};
use crate::error::{decode, encode};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::boxed::Box;
use std::format;
use zerocopy::FromZeros;

fn board() -> Box<Board> {
    Box::new(Board::new_zeroed())
}

#[test]
fn codes_on_the_board_have_names() {
    assert_eq!(
        [0, 1, 2, 3, 4, 5].map(ClockSource::name),
        ["none", "kvmclock", "cpuid", "hpet", "pit", "none"]
    );
    let names = ["trusted", "virtio-iommu", "intel-iommu", "intel-iommu", "trusted"];
    assert_eq!([0, 1, 2, 3, 4].map(DmaProtection::name), names);
    let interrupts = ["trusted", "trusted", "remapped", "trusted"];
    assert_eq!([0, 1, 2, 3].map(DmaProtection::interrupts), interrupts);
    assert_eq!([0, 1, 2, 3, 4].map(ApplicationState::name), ["idle", "running", "exited", "faulted", "idle"]);
    let hazards = [0, 1, 2, 4, 5, 7, 8].map(|bits| format!("{}", Hazards(bits)));
    assert_eq!(hazards, ["", "meltdown", "mds", "spectre", "meltdown,spectre", "meltdown,mds,spectre", ""]);
}

#[test]
fn a_board_is_one_of_this_version_alone() {
    let board = board();
    assert!(!board.is_valid());
    board.header.magic.store(board::MAGIC, Relaxed);
    assert!(!board.is_valid(), "of no version");
    board.header.version.store(VERSION, Relaxed);
    assert!(board.is_valid());
    board.header.magic.store(board::MAGIC ^ 1, Relaxed);
    assert!(!board.is_valid(), "no board");
}

#[test]
fn time_is_reckoned_from_its_base_without_overflow() {
    let board = board();
    board.clock.tsc_base.store(1_000, Relaxed);
    board.clock.multiplier.store(3 << 31, Relaxed);
    assert_eq!([1_000, 1_001, 1_010].map(|tsc| board.clock.nanoseconds(tsc)), [0, 1, 15]);
    assert_eq!(board.clock.nanoseconds(1_000 + (1 << 62)), 3 << 61, "more than 64 bits in between");
}

#[test]
fn an_application_has_the_name_that_was_written() {
    let mut application = board::Application::new_zeroed();
    let name = *b"an application of thirty-two ch.";
    application.name = core::array::from_fn(|word| {
        AtomicU64::new(u64::from_le_bytes(*name[word * 8..].first_chunk().expect("four words")))
    });
    assert_eq!(application.name_bytes(), name);
}

#[test]
fn usage_lies_on_pages_of_its_own_behind_the_board() {
    let bytes = board::BOARD_BYTES as u64;
    assert_eq!(
        [0, 1, 3].map(|index| board::usage_address(1 << 40, index) - (1 << 40)),
        [bytes, bytes + 4096, bytes + 3 * 4096]
    );
    let Usage { cores, preemptions, frames, cycles, refused } = Usage::none();
    assert_eq!([cores, preemptions].map(AtomicU32::into_inner), [0; 2]);
    assert_eq!([frames, cycles, refused].map(AtomicU64::into_inner), [0; 3]);
}

#[test]
fn a_result_comes_back_as_it_went_into_registers() {
    assert_eq!([encode(Ok(7)), encode(Ok(0)), encode(Err(Error::NoCore))], [(0, 7), (0, 0), (14, 0)]);
    for value in [Ok(0), Ok(1), Ok(u64::MAX)] {
        let (rax, rdx) = encode(value);
        assert_eq!(decode(rax, rdx), value);
    }
    for (index, (error, text)) in Error::ALL.iter().enumerate() {
        assert_eq!((*error as usize, Error::from_code(index as u64 + 1)), (index + 1, Some(*error)));
        assert_eq!(decode(encode(Err(*error)).0, 5), Err(*error));
        assert!(!text.is_empty());
        assert_eq!(format!("{error}"), format!("{error:?}"));
    }
    let beyond = Error::ALL.len() as u64 + 1;
    assert_eq!((Error::from_code(0), Error::from_code(beyond)), (None, None));
    assert_eq!(decode(beyond, 1), Err(Error::InvalidArgument));
}

#[test]
fn pages_have_the_sizes_of_the_processor() {
    assert_eq!(PageSize::ALL.map(PageSize::frames), [1, 512, 512 * 512]);
    assert_eq!(PageSize::ALL.map(PageSize::bytes), [4 << 10, 2 << 20, 1 << 30]);
    for size in PageSize::ALL {
        assert_eq!(PageSize::from_code(size as u64), Ok(size));
    }
    assert_eq!(PageSize::from_code(3), Err(Error::InvalidArgument));
}

#[test]
fn no_protection_is_writable_and_executable() {
    let meant = [
        Ok((Protection::None, false, false)),
        Ok((Protection::Read, false, false)),
        Err(Error::InvalidArgument),
        Ok((Protection::ReadWrite, true, false)),
        Err(Error::InvalidArgument),
        Ok((Protection::ReadExecute, false, true)),
        Err(Error::WriteExecute),
        Err(Error::WriteExecute),
        Err(Error::InvalidArgument),
    ];
    for (code, meant) in meant.into_iter().enumerate() {
        let found = Protection::from_code(code as u64);
        assert_eq!(found.map(|found| (found, found.writable(), found.executable())), meant, "{code}");
    }
}

#[test]
fn each_upcall_is_a_bit_of_its_own() {
    for (bit, (upcall, text)) in Upcall::ALL.iter().enumerate() {
        assert_eq!((*upcall as usize, upcall.mask()), (bit, 1 << bit));
        assert!(!text.is_empty());
        assert_eq!(upcall.name(), format!("{upcall:?}"));
        let events = Events { pending: upcall.mask(), ..Events::default() };
        let told: std::vec::Vec<_> = Upcall::ALL.iter().filter(|(other, _)| events.has(*other)).collect();
        assert_eq!(told, [&(*upcall, *text)]);
        assert!(!Events { pending: !upcall.mask(), ..events }.has(*upcall));
    }
}

#[test]
fn numbers_of_segments_are_two() {
    let segments = [0, 1, 2].map(syscall::Segment::from_number);
    assert_eq!(segments, [Some(syscall::Segment::Thread), Some(syscall::Segment::Core), None]);
    assert_eq!(syscall::EXIT_BACKTRACE, 256, "beside the status, which is a byte");
}

/// The kernel's windows lie behind what applications manage, and all of it in user space; what spaces have
/// apart from each other is whole entries of the root table, which cover 512 GiB.
#[test]
fn windows_lie_one_behind_the_other() {
    use layout::*;
    let windows = [IMAGE_WINDOW, STACK_WINDOW, START_WINDOW, BOARD_WINDOW, CHANNEL_WINDOW, USER_END];
    assert_eq!(windows[0], APPLICATION_END);
    assert!(windows.windows(2).all(|pair| pair[0] + WINDOW_BYTES <= pair[1]));
    assert_eq!((WINDOW_BYTES, CHANNEL_STRIDE, PLACEMENT_ALIGN), (1 << 40, 1 << 30, 2 << 20));
    assert_eq!((USER_START, OWN_LOW.start, OWN_LOW.end), (64 << 10, USER_START, 1 << 40));
    assert_eq!((OWN_HIGH.start, OWN_HIGH.end), (96 << 40, APPLICATION_END));
    assert_eq!((KERNEL_SLOT, KERNEL_SLOTS), (2 << 20, 479));
}

#[test]
fn every_right_has_a_bit_and_no_bit_is_nobodys() {
    use image::flag::*;
    let rights = [AUTOSTART, ESSENTIAL, PUBLISHES_PRICES, MAKES_CODE, MONITORS];
    assert_eq!(rights, [1, 2, 4, 8, 16]);
    assert_eq!(ALL, 31);
}
