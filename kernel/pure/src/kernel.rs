//! The kernel's state, and every way in: boot, system call, fault, interrupt; and the one way out.
//!
//! One value, under one lock. Whatever happens on a core enters here, changes state, and ends with
//! [`Kernel::next`], which says what that core does now. Nothing in here blocks or waits.

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod wiring;

use crate::applications::Application;
use crate::bundle::BundleView;
use crate::console::Bucket;
use crate::contexts::Context;
use crate::cores::{Core, SLICE_NS};
use crate::devices::Devices;
use crate::frames::{Frames, Owner};
use crate::iommu::Iommu;
use crate::machine::{Frame, Level, Machine, PhysAddr};
use crate::pci::Pci;
use nom_abi::PageSize;
use nom_abi::board::{Board, Usage};
use nom_abi::layout::{APPLICATIONS_MAX, CHANNELS_MAX};

/// Vector of hot-plug events and of blocked DMA, both on core 0.
pub const PLATFORM_VECTOR: u8 = 0x30;
/// First vector that is bound to devices' interrupts.
pub const FIRST_DEVICE_VECTOR: u8 = 0x31;

/// Memory that `Kernel::new` is given, sized by [`Sizes`]. All of it lives as long as the kernel.
pub struct Parts<'m, M> {
    /// The machine.
    pub machine: M,
    /// All memory, with what firmware, boot image and kernel hold already taken out.
    pub frames: Frames<'m>,
    /// The board, zeroed.
    pub board: &'m Board,
    /// First frame of the board.
    pub board_frame: Frame,
    /// What each application of the bundle uses, and one that nobody uses; zeroed.
    pub usage: &'m [Usage],
    /// First frame of that.
    pub usage_frame: Frame,
    /// The bundle.
    pub bundle: BundleView<'m>,
    /// First frame of the bundle.
    pub bundle_frame: Frame,
    /// One for each application of the bundle.
    pub applications: &'m mut [Application],
    /// One for each core.
    pub cores: &'m mut [Core],
    /// One for each pair of core and application.
    pub contexts: &'m mut [Context],
    /// The functions that were found.
    pub pci: &'m mut Pci,
    /// The remapping unit.
    pub iommu: Iommu,
    /// The kernel's own root table.
    pub kernel_root: PhysAddr,
}

/// The kernel.
pub struct Kernel<'m, M> {
    pub(crate) machine: M,
    pub(crate) frames: Frames<'m>,
    pub(crate) board: &'m Board,
    pub(crate) board_frame: Frame,
    pub(crate) usage: &'m [Usage],
    pub(crate) usage_frame: Frame,
    pub(crate) bundle: BundleView<'m>,
    pub(crate) bundle_frame: Frame,
    pub(crate) applications: &'m mut [Application],
    pub(crate) cores: &'m mut [Core],
    pub(crate) contexts: &'m mut [Context],
    pub(crate) devices: Devices<'m>,
    pub(crate) channel_frames: [Frame; CHANNELS_MAX],
    pub(crate) kernel_root: PhysAddr,
    /// What each application may say, whether it runs or not.
    pub(crate) console: [Bucket; APPLICATIONS_MAX],
    /// [`SLICE_NS`] in cycles.
    pub(crate) slice: u64,
    /// Status with which the machine ends, once that is decided.
    pub(crate) ending: Option<u8>,
    /// Applications that ended and have something yet, one bit each.
    pub(crate) leaving: u64,
}

/// What a core does when it leaves the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Runs an application with the registers it was given; if `after_syscall`, RCX and R11 may be lost.
    Run {
        /// Whether the registers are those of the system call being answered.
        after_syscall: bool,
    },
    /// Gives the lock away, and halts until an interrupt unless [`Kernel::takes_back`].
    Halt,
    /// Ends the machine.
    End {
        /// The machine's status.
        status: u8,
    },
}

impl<'m, M: Machine> Kernel<'m, M> {
    /// Puts the parts together, fills the board and allocates the channels. No application runs yet.
    ///
    /// # Panics
    /// If the parts' sizes do not fit the bundle, or there is no memory for the channels.
    pub fn new(parts: Parts<'m, M>) -> Kernel<'m, M> {
        let applications = parts.bundle.applications().len();
        assert!((1..=APPLICATIONS_MAX).contains(&applications) && parts.applications.len() == applications);
        assert!(parts.usage.len() == applications + 1);
        assert!(parts.contexts.len() == parts.cores.len() * applications);
        let slice = parts.machine.span_cycles(SLICE_NS);
        let mut kernel = Kernel {
            machine: parts.machine,
            frames: parts.frames,
            board: parts.board,
            board_frame: parts.board_frame,
            usage: parts.usage,
            usage_frame: parts.usage_frame,
            bundle: parts.bundle,
            bundle_frame: parts.bundle_frame,
            applications: parts.applications,
            cores: parts.cores,
            contexts: parts.contexts,
            devices: Devices::new(parts.pci, parts.iommu),
            channel_frames: [Frame::default(); CHANNELS_MAX],
            kernel_root: parts.kernel_root,
            console: [Bucket::default(); APPLICATIONS_MAX],
            slice,
            ending: None,
            leaving: 0,
        };
        kernel.allocate_channels();
        kernel.start_platform_interrupts();
        kernel.publish_everything();
        kernel
    }

    fn allocate_channels(&mut self) {
        for (index, channel) in self.bundle.channels().enumerate() {
            let count = channel.bytes / PageSize::Small.bytes();
            let frame = self.frames.allocate(Owner::channel(index), PageSize::Small, count, None);
            let frame = frame.expect("memory for the channels between applications");
            self.machine.zero_frames(frame, count);
            self.channel_frames[index] = frame;
        }
    }

    /// Starts every application that the bundle says to start at boot.
    pub fn start_applications(&mut self) {
        let autostart = nom_abi::image::flag::AUTOSTART;
        let bundle = self.bundle;
        for (app, record) in
            self.all_applications().zip(bundle.applications()).filter(|(_, it)| it.flags & autostart != 0)
        {
            if let Err(error) = self.start(app) {
                let name = crate::bundle::name(&record);
                self.machine.log(Level::Error, format_args!("{name} cannot start: {}", error.name()));
                self.ending = Some(crate::applications::CANNOT_START_STATUS);
            }
        }
        self.end_if_idle();
    }

    /// The machine, for what happens outside of the kernel's state.
    pub fn machine(&mut self) -> &mut M {
        &mut self.machine
    }

    /// The board.
    pub fn board(&self) -> &'m Board {
        self.board
    }
}
