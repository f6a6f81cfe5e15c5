//! Every decision of nom's kernel that needs no machine.
//!
//! Frame allocation, page-table arithmetic, core scheduling, device enumeration, DMA remapping, system
//! calls: all of it is ordinary safe Rust over the traits of [`machine`], so it is tested on the host, by
//! property tests and under Miri. `kernel/x86` supplies the machine.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod acpi;
pub mod applications;
pub mod bars;
pub mod bundle;
pub mod calendar;
mod channels;
pub mod clock;
pub mod console;
pub mod contexts;
pub mod cores;
pub mod devices;
#[cfg(test)]
mod fakes;
pub mod frames;
pub mod hazards;
pub mod hotplug;
pub mod ids;
pub mod ioapic;
pub mod iommu;
pub mod kernel;
pub mod list;
pub mod machine;
pub mod means;
pub mod mmio;
pub mod msix;
pub mod paging;
pub mod pci;
mod physical;
mod publish;
pub mod space;
pub mod symbols;
mod syscalls;
#[cfg(test)]
mod testing;
mod virtio_pci;
pub mod wfq;
