//! The cores of a server, given back to the kernel and taken again while it runs.

use super::net::{Doorbells, INTERRUPT_BIT, Interrupt, NetDevice, PairSetup};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{Acquire, Release};
use nom_sys::cores::{self, Core};
use nom_sys::sync::Mutex;

/// The cores that serve, each with a queue pair of one device.
pub(super) struct LentCores {
    /// How many are to serve, the first ones.
    wanted: AtomicUsize,
    /// Those of the queue pairs, by their cores.
    interrupts: Vec<Interrupt>,
    doorbells: Arc<Doorbells>,
    command: Mutex<Command>,
}

/// What the first core commands.
struct Command {
    device: NetDevice,
    /// The further cores, from core 1 on.
    others: Vec<Core>,
}

impl LentCores {
    /// Of as many cores as there are `pairs` of `device`, all of which serve.
    pub fn new(device: NetDevice, pairs: &[PairSetup], doorbells: Arc<Doorbells>) -> LentCores {
        let interrupts = pairs.iter().map(PairSetup::interrupt).collect();
        let command = Mutex::new(Command { device, others: Vec::new() });
        LentCores { wanted: AtomicUsize::new(pairs.len()), interrupts, doorbells, command }
    }

    /// Lets the first core command the further ones.
    pub fn lead(&self, others: Vec<Core>) {
        self.command.lock().others = others;
    }
}

impl nom_elastic::CorePool for LentCores {
    fn resize(&self, cores: usize) -> usize {
        let Command { device, others } = &mut *self.command.lock();
        let (before, wanted) = (self.wanted.load(Acquire), cores.clamp(1, 1 + others.len()));
        if wanted == before || device.set_pairs(wanted as u16).is_err() {
            return before;
        }
        // Those that are about to leave see it, or are resumed.
        self.wanted.store(wanted, Release);
        let come = others[..wanted - 1].iter_mut().map_while(|core| core.resume().ok());
        let come = 1 + come.count();
        if come < wanted {
            self.wanted.store(come, Release);
            // A device that refuses goes on with pairs at which nobody looks: what is sent there is lost, and
            // clients send it again until it is somewhere else.
            let _ = device.set_pairs(come as u16);
        }
        come
    }

    fn leave(&self, index: usize) {
        // A core may be called back before it has left, and that be taken back, too.
        while self.wanted.load(Acquire) <= index {
            cores::pause().expect("a further core of the server, in its event loop");
        }
        self.doorbells.belongs_here(index);
        if let Err(error) = self.interrupts[index].clone().bind(INTERRUPT_BIT) {
            // Nothing would wake the core, and its clients would wait for ever.
            crate::println!("error: queue pair {index} on another processor: {error}");
            crate::exit(1);
        }
    }
}
