//! Starts, watches and stops virtual machines.
//!
//! ```text
//! MachineConfig --Vmm::start--> Machine --next_event--> Serial | Control | Ended --Ending::of--> Ending
//! ```
//!
//! [`Vmm`] and [`Machine`] are what the rest of nom sees; QEMU is behind them today. A machine reports in
//! two streams: its serial line, for people, and the control channel, one [`ControlLine`] for each
//! happening, for programs.
#![forbid(unsafe_code)]

pub mod accelerator;
pub mod bridge;
pub mod command;
pub mod config;
pub mod control;
mod directory;
pub mod disk;
mod firmware;
mod ip;
mod machine;
pub mod meminfo;
mod mmio;
pub mod namespace;
mod placement;
mod power_button;
pub mod probe_image;
pub mod qemu;
pub mod qmp;
mod relay;
mod session;

pub use config::{
    Accelerator, Allocation, DirectoryAccess, Forward, Iommu, LENT_FILE, Lent, LentDirectory, MachineConfig,
    MachineKind, Memory, Network, Owners,
};
pub use control::ControlLine;
pub use machine::{Ending, Event, Exit, Machine, PluggedDevice, STATUS_FAILED, STATUS_SHUT_DOWN, Vmm};
pub use namespace::Namespace;
pub use placement::Placement;
pub use qemu::Qemu;
pub use relay::{relay, relay_datagrams};
pub use session::{Outcome, Session};
