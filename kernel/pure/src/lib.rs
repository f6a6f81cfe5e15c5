//! Every decision of nom's kernel that needs no machine.
//!
//! Frame allocation, page-table arithmetic, core scheduling, device enumeration, DMA remapping, system
//! calls: all of it is ordinary safe Rust over the traits of [`machine`], so it is tested on the host, by
//! property tests and under Miri. `kernel/x86` supplies the machine.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod acpi;
pub mod bars;
pub mod bundle;
pub mod clock;
pub mod frames;
pub mod hotplug;
pub mod iommu;
pub mod list;
pub mod machine;
pub mod msix;
pub mod paging;
pub mod pci;
pub mod space;
pub mod symbols;
pub mod wfq;
pub mod applications;
mod channels;
pub mod contexts;
pub mod cores;
pub mod devices;
pub mod events;
pub mod kernel;
mod publish;
mod report;
mod syscalls;
