//! Says which processors an application holds, by the board, whenever that changes; its name is the argument.
//!
//! Between two looks it works, so that it is seen to have the processor that the other one has not.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::sync::atomic::Ordering::Relaxed;
use nom_app::alloc::vec::Vec;
use nom_app::{Error, applications, args, board, cores, events, println};

nom_app::main!(main);

/// Between two looks.
const PAUSE_NS: u64 = 2_000_000;

fn main() -> Result<(), Error> {
    let application = applications::find(args().next().ok_or(Error::InvalidArgument)?)?;
    let processors = board().machine.cores.load(Relaxed) as usize;
    let mut held = Vec::new();
    for change in 0_u64.. {
        let before = core::mem::take(&mut held);
        while held == before || held.is_empty() {
            events::sleep(PAUSE_NS);
            let holds = |core: &usize| board().cores[*core].holders.load(Relaxed) & 1 << application != 0;
            held = (0..processors).filter(holds).collect();
        }
        println!("change {change}: held {held:?}, seen from {}", cores::current());
    }
    Ok(())
}
