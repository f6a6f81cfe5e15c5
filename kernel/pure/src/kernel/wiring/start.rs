//! What an application finds where it begins, and what it may do there.

use super::*;
use nom_abi::Protection;
use nom_abi::board::{BOARD_BYTES, PRICES_OFFSET};
use nom_abi::image::flag;
use nom_abi::layout::CHANNEL_STRIDE;

/// The page at an address of who runs on a core: its frame, and what may be done there.
fn page(world: &World, core: usize, address: u64) -> Option<(u64, Protection)> {
    let kernel = &world.kernel;
    let space = kernel.space_of(on(core), kernel.cores[core].current()?).ok()?;
    let leaf = space.translate(&kernel.machine, user(address))?;
    Some((leaf.frame.number(), leaf.protection))
}

fn start_page(world: &World, core: usize) -> Start {
    let (kernel, mut start) = (&world.kernel, Start::new_zeroed());
    let space = kernel.space_of(on(core), kernel.cores[core].current().unwrap()).unwrap();
    space.read_user(&kernel.machine, user(world.borders[core].rdi), start.as_mut_bytes()).unwrap();
    start
}

/// One application writes prices, and nothing else of the board; another writes nothing there.
#[test]
fn only_the_publisher_writes_prices_and_nobody_the_board() {
    let flags = flag::AUTOSTART | flag::PUBLISHES_PRICES;
    let world =
        World::boot(2, &[Program { flags, ..Program::named("priced") }, Program::named("reader")], &[]);
    for core in 0..2 {
        let board = start_page(&world, core).board;
        let publishes = world.kernel.cores[core].current() == Some(app(0));
        for offset in (0..BOARD_BYTES).step_by(4096) {
            let may_write = publishes && offset >= PRICES_OFFSET;
            let allowed = if may_write { Protection::ReadWrite } else { Protection::Read };
            let frame = world.kernel.board_frame.number() + offset as u64 / 4096;
            assert_eq!(page(&world, core, board + offset as u64), Some((frame, allowed)), "{offset:#x}");
        }
    }
}

/// Code, data, the stack between pages where nothing is, and the start page, each as what it is for.
#[test]
fn an_application_begins_with_what_its_record_says() {
    let world =
        World::boot(1, &[Program::named("a"), Program { flags: 0, ..Program::named("b") }], &[[0, 1]]);
    let (start, begin) = (start_page(&world, 0), world.borders[0]);
    let may = |address| page(&world, 0, address).map(|(_, protection)| protection);
    assert_eq!((start.application, start.image_bytes, start.stack_bytes), (0, 0x4000, 0x8000));
    assert_eq!((begin.rip, begin.rsp), (start.image_base + 0x10, start.stack_base + start.stack_bytes));
    assert_eq!(may(start.image_base), Some(Protection::ReadExecute));
    let data = (1..4).map(|page| may(start.image_base + page * 4096));
    assert!(data.eq([Some(Protection::ReadWrite); 3]));
    let stack = (0..start.stack_bytes / 4096).map(|page| may(start.stack_base + page * 4096));
    assert!(stack.eq([Some(Protection::ReadWrite); 8]));
    for outside in [start.stack_base - 4096, begin.rsp, start.image_base - 4096, start.image_base + 0x4000] {
        assert_eq!(may(outside), None, "{outside:#x}");
    }
    assert_eq!(may(begin.rdi), Some(Protection::Read), "the start page");
    assert_eq!(start.channels, 1);
    let channel = start.channel[0];
    assert_eq!((channel.bytes, channel.peer, channel.end), (8192, 1, 0));
    let first = world.kernel.channel_frames[0].number();
    for (offset, frame) in [(0, first), (4096, first + 1)] {
        assert_eq!(page(&world, 0, channel.address + offset), Some((frame, Protection::ReadWrite)));
    }
    assert_eq!(may(channel.address + 8192), None);
    assert_eq!(may(channel.address + CHANNEL_STRIDE), None);
}
