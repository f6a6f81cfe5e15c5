//! In a Linux process.

pub use nom_linux_host::start::{Termination, args, var, vars};
pub use nom_linux_host::{exit, main, print, println, shutdown, sync, time};

pub(crate) use nom_linux_host::stack::ThreadStack;
pub(crate) use nom_linux_host::start::archive;

/// The world behind `nom-port`'s traits, and the traits.
pub mod port {
    pub use nom_linux_host::port::{Clock, Entropy, Idle};
    pub use nom_port::{buffer, nic, world};
}

/// What interrupts threads that compute: nothing. A Linux process is interrupted by the Linux kernel, and
/// here its cores' threads run until they block.
pub(crate) fn preemption() -> Option<&'static dyn nom_port::world::Preemption> {
    None
}

/// Keeps panics of a loop's tasks within them.
pub(crate) fn contain(handle: &nom_rt::Handle, stack_bytes: usize) {
    handle.contain(&nom_linux_host::port::Unwinding, move || ThreadStack::new(stack_bytes).ok());
}

/// Bytes of memory that the program may still take: Linux sets no bound that it would tell.
pub fn memory_free() -> u64 {
    u64::MAX
}

/// Bytes of memory that the program's heap has taken and nobody uses: never asked for, as there is no bound.
pub(crate) fn memory_idle() -> u64 {
    0
}

/// Bytes of memory that the program may have: as much as it takes for buffers.
pub(crate) fn memory_max() -> u64 {
    net::Options::default().memory_bytes as u64
}

/// The program's own network interface: a TAP device, or one that is used by XDP.
pub mod net {
    use crate::serve::Core;
    use alloc::sync::Arc;
    use alloc::vec::Vec;
    use core::fmt;
    use nom_elastic::CorePool;
    use nom_linux_host::port::{Doorbells, Idle};
    use nom_port::world::Doorbell;

    pub use nom_linux_host::nic::{NicError, Options, Queue, QueuePair};
    pub use nom_linux_host::pool::PoolBuffer as DmaBuffer;

    /// Name of the TAP device, unless the environment's `tap` says another, or its `xdp` an interface of
    /// another kind.
    const DEVICE: &str = "tap0";

    /// Why there is no interface.
    #[derive(Debug)]
    pub enum NoInterface {
        /// The interface cannot be used.
        Nic(NicError),
        /// The process cannot have a doorbell.
        Doorbell(nom_linux_host::port::DoorbellError),
        /// The environment's `cores` is no number.
        Cores(&'static str),
    }

    impl fmt::Display for NoInterface {
        fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self {
                NoInterface::Nic(error) => error.fmt(out),
                NoInterface::Doorbell(error) => write!(out, "no eventfd: {error}"),
                NoInterface::Cores(text) => {
                    write!(out, "the environment's `cores` is `{text}`: expected a number of cores")
                }
            }
        }
    }

    /// The interface with a core for each of its queues, before they start.
    pub(crate) struct Network {
        /// One for each core, the running one's first.
        queues: Vec<Queue>,
        doorbells: Arc<Doorbells>,
    }

    /// The running core with the interface.
    ///
    /// # Errors
    /// As [`Network::open`].
    pub(crate) fn core() -> Result<Core, NoInterface> {
        let Network { mut queues, doorbells } = Network::open(1)?;
        let (pair, idle) = start(0, queues.remove(0), 1, doorbells.clone()).map_err(NoInterface::Nic)?;
        Ok(Core { index: 0, pair, idle, doorbell: doorbells })
    }

    /// Makes a queue core `index`'s, one of `cores`, which share the memory for buffers.
    fn start(
        index: usize,
        queue: Queue,
        cores: usize,
        doorbells: Arc<Doorbells>,
    ) -> Result<(QueuePair, Idle), NicError> {
        let memory_bytes = Options::default().memory_bytes / cores;
        let pair = queue.start(&Options { memory_bytes })?;
        let idle = Idle::new(index, doorbells, Some(pair.file()));
        Ok((pair, idle))
    }

    impl Network {
        /// The interface with up to `cores` cores: as many as the environment's `cores` says, which is one
        /// if it says nothing, and a TAP device has queues.
        ///
        /// # Errors
        /// If the process may not use the interface, or there is something else in the way.
        pub fn open(cores: usize) -> Result<Network, NoInterface> {
            let held = crate::var("cores").unwrap_or("1");
            let held: usize = held.parse().map_err(|_| NoInterface::Cores(held))?;
            let cores = cores.min(held).max(1);
            let queues = match crate::var("xdp") {
                Some(name) => Queue::of_xdp(name, cores),
                None => Queue::of_tap(crate::var("tap").unwrap_or(DEVICE), cores),
            };
            let queues = queues.map_err(NoInterface::Nic)?;
            let doorbells = Arc::new(Doorbells::new(queues.len()).map_err(NoInterface::Doorbell)?);
            nom_linux_host::shutdown::wake(doorbells.clone());
            Ok(Network { queues, doorbells })
        }

        /// Cores that will serve.
        pub fn cores(&self) -> usize {
            self.queues.len()
        }

        /// How they wake each other, by their numbers from 0 on.
        pub fn doorbell(&self) -> Arc<dyn Doorbell> {
            self.doorbells.clone()
        }

        /// Runs `work` on each core, with one of `seeds`, and no pool of cores: threads that have
        /// nothing to do cost nothing. Returns what it returns on the running one.
        ///
        /// # Errors
        /// If the running core has no memory for buffers. Where another has none, the program ends.
        pub fn run<T: Send + 'static>(
            mut self,
            seeds: Vec<T>,
            work: impl Fn(T, QueuePair, Idle, Option<Arc<dyn CorePool>>) -> u8 + Send + Sync + 'static,
        ) -> Result<u8, NoInterface> {
            let (work, cores) = (Arc::new(work), self.cores());
            let others = self.queues.split_off(1);
            let mut seeds = seeds.into_iter();
            let first = seeds.next().expect("there is a seed for each core");
            for (index, (queue, seed)) in (1..).zip(others.into_iter().zip(seeds)) {
                let (work, doorbells) = (work.clone(), self.doorbells.clone());
                nom_linux_host::cores::spawn(index, move || match start(index, queue, cores, doorbells) {
                    Ok((pair, idle)) => work(seed, pair, idle, None),
                    Err(error) => {
                        crate::println!("error: core {index}: {error}");
                        1
                    }
                });
            }
            let queue = self.queues.remove(0);
            let (pair, idle) = start(0, queue, cores, self.doorbells).map_err(NoInterface::Nic)?;
            Ok(work(first, pair, idle, None))
        }
    }
}

/// What a server that earns needs to know: a process has no bulletin board, and nobody to report to.
pub(crate) mod market {
    use nom_earn::{Audience, Held, PriceBoard, PriceList, Report, Solvency};
    use nom_rt::poller::{Poller, Progress};

    /// A board on which nothing is ever posted.
    #[derive(Clone, Copy)]
    pub(crate) struct Board;

    pub(crate) fn board() -> Board {
        Board
    }

    impl PriceBoard for Board {
        fn sequence(&self) -> u32 {
            0
        }

        fn read(&self) -> Option<PriceList> {
            Some(PriceList::default())
        }
    }

    pub(crate) fn held() -> Held {
        Held { cores: 1, memory_bytes: 0 }
    }

    pub(crate) struct Voice;

    impl Audience for Voice {
        fn report(&mut self, _: &Report, _: &Solvency) {}
    }

    /// There is none.
    pub(crate) enum Ear {}

    impl Poller for Ear {
        fn poll(&mut self, _: u64) -> Progress {
            match *self {}
        }

        fn arm(&mut self) -> bool {
            match *self {}
        }

        fn disarm(&mut self) {
            match *self {}
        }
    }

    pub(crate) fn priced() -> (Voice, Option<Ear>) {
        (Voice, None)
    }
}
