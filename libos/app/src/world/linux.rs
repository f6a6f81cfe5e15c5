//! In a Linux process.

pub use nom_linux_host::start::{Termination, args, var, vars};
pub use nom_linux_host::{exit, main, print, println, sync, time};

pub(crate) use nom_linux_host::stack::ThreadStack;

/// The world behind `nom-port`'s traits, and the traits.
pub mod port {
    pub use nom_linux_host::port::{Clock, Entropy, Idle};
    pub use nom_port::{buffer, nic, world};
}

/// Bytes of memory that the program may have: as much as it takes for buffers.
pub(crate) fn memory_max() -> u64 {
    net::Options::default().memory_bytes as u64
}

/// The program's own network interface: a TAP device.
pub mod net {
    use crate::serve::Core;
    use alloc::sync::Arc;
    use alloc::vec::Vec;
    use core::fmt;
    use nom_linux_host::port::{Doorbells, Idle};
    use nom_port::world::Doorbell;

    pub use nom_linux_host::pool::PoolBuffer as DmaBuffer;
    pub use nom_linux_host::tap::{Counters, Options, TapError, TapNic as QueuePair};

    /// Name of the TAP device, unless the environment's `tap` says another.
    const DEVICE: &str = "tap0";

    /// Why there is no interface.
    #[derive(Debug)]
    pub enum NoInterface {
        /// The TAP device cannot be used.
        Tap(TapError),
        /// The process cannot have a doorbell.
        Doorbell(nom_linux_host::port::DoorbellError),
    }

    impl fmt::Display for NoInterface {
        fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self {
                NoInterface::Tap(error) => error.fmt(out),
                NoInterface::Doorbell(error) => write!(out, "no eventfd: {error}"),
            }
        }
    }

    /// The interface, before it is served.
    pub(crate) struct Network {
        pair: QueuePair,
        doorbells: Arc<Doorbells>,
    }

    /// The running core with the interface.
    ///
    /// # Errors
    /// As [`Network::open`].
    pub(crate) fn core() -> Result<Core, NoInterface> {
        let Network { pair, doorbells } = Network::open(1)?;
        let idle = Idle::new(0, doorbells.clone(), Some(pair.file()));
        Ok(Core { index: 0, pair, idle, doorbell: doorbells })
    }

    impl Network {
        /// The TAP device with the running core: it has one queue, so further ones would have nothing to do.
        ///
        /// # Errors
        /// If the process may not use the TAP device, or there is something else in the way.
        pub fn open(_: usize) -> Result<Network, NoInterface> {
            let name = crate::var("tap").unwrap_or(DEVICE);
            let pair = QueuePair::open(name, &Options::default()).map_err(NoInterface::Tap)?;
            let doorbells = Arc::new(Doorbells::new(1).map_err(NoInterface::Doorbell)?);
            Ok(Network { pair, doorbells })
        }

        /// Cores that will serve.
        pub fn cores(&self) -> usize {
            1
        }

        /// How they wake each other, by their numbers from 0 on.
        pub fn doorbell(&self) -> Arc<dyn Doorbell> {
            self.doorbells.clone()
        }

        /// Runs `work` with the first of `seeds`; returns what it returns.
        ///
        /// # Errors
        /// None.
        pub fn run<T>(
            self,
            seeds: Vec<T>,
            work: impl Fn(T, QueuePair, Idle) -> u8,
        ) -> Result<u8, NoInterface> {
            let idle = Idle::new(0, self.doorbells, Some(self.pair.file()));
            let seed = seeds.into_iter().next().expect("there is a seed for each core");
            Ok(work(seed, self.pair, idle))
        }
    }
}

/// What a server that earns needs to know: a process has no bulletin board, and nobody to report to.
pub(crate) mod market {
    use nom_earn::{Audience, Held, PriceBoard, PriceList, Report};
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
        fn report(&mut self, _: &Report) {}
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
