//! Boots machines and watches them, so that a system test reads as prose:
//!
//! ```no_run
//! use nom_system_tests::Guest;
//!
//! let mut vm = Guest::app("hello").cpus(2).memory("64M").boot();
//! vm.wait_for("hello");
//! vm.finish().expect_status(0);
//! ```
//!
//! Programs and images are built when they are needed, once for each test binary. Whatever fails, the
//! machine's console and control channel are printed with it.
#![forbid(unsafe_code)]

mod guest;
mod memcached;
mod network;
mod server;
mod tap;
mod vm;

pub use guest::Guest;
pub use memcached::MemcachedClient;
pub use network::Site;
pub use nom_vmm::{ControlLine, Ending, Iommu, MachineKind};
pub use server::Server;
pub use tap::tap_is_possible;
pub use vm::{Life, Vm};
