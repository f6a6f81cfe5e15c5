//! Keeping the bulletin board true.

use crate::ids::AppId;
use crate::kernel::Kernel;
use crate::machine::Machine;
use core::sync::atomic::Ordering::Relaxed;
use nom_abi::board::{ApplicationState, BOARD_BYTES, MAGIC, NOBODY};
use nom_abi::layout::DEVICES_MAX;

impl<M: Machine> Kernel<'_, M> {
    /// Fills the board at boot, but for the clock, which the machine sets.
    pub(crate) fn publish_everything(&mut self) {
        let board = self.board;
        board.header.version.store(nom_abi::VERSION, Relaxed);
        board.header.bytes.store(BOARD_BYTES as u32, Relaxed);
        board.header.magic.store(MAGIC, Relaxed);
        board.machine.sequence.write(|| {
            board.machine.cores.store(self.cores.len() as u32, Relaxed);
            board.machine.dma_protection.store(self.devices.iommu.protection() as u32, Relaxed);
            board.machine.frames_total.store(self.frames.total(), Relaxed);
        });
        board.cores.iter().for_each(|core| core.running.store(NOBODY, Relaxed));
        for core in self.all_cores() {
            board.cores[core].apic_id.store(self.machine.apic_id(core), Relaxed);
            board.cores[core].online.store(1, Relaxed);
        }
        for app in self.all_applications() {
            self.publish_manifest(app);
        }
        (0..DEVICES_MAX).for_each(|device| self.publish_device(device));
    }

    fn publish_manifest(&mut self, app: AppId) {
        let record = self.record(app);
        let entry = &self.board.applications[app];
        entry.sequence.write(|| {
            for (word, bytes) in entry.name.iter().zip(record.name.as_chunks::<8>().0) {
                word.store(u64::from_le_bytes(*bytes), Relaxed);
            }
            entry.weight.store(record.weight, Relaxed);
            entry.cores_max.store(record.cores_max, Relaxed);
            entry.frames_max.store(record.frames_max, Relaxed);
        });
        self.publish_memory(app);
    }

    pub(crate) fn publish_application(&mut self, app: AppId, state: ApplicationState, status: u8) {
        let entry = &self.board.applications[app];
        entry.sequence.write(|| {
            entry.state.store(state as u32, Relaxed);
            entry.status.store(status.into(), Relaxed);
        });
        self.publish_memory(app);
    }

    /// After memory changed hands.
    pub(crate) fn publish_memory(&mut self, app: AppId) {
        let machine = &self.board.machine;
        let frames = self.charged(app);
        self.usage[app].frames.store(frames, Relaxed);
        machine.sequence.write(|| {
            machine.frames_free.store(self.frames.free(), Relaxed);
            machine.frames_kernel.store(self.frames.held(crate::frames::Owner::KERNEL), Relaxed);
        });
    }

    /// After an application began or ended to hold a core.
    pub(crate) fn publish_cores(&mut self, app: AppId) {
        let held = self.applications[app].cores();
        self.usage[app].cores.store(held.count_ones(), Relaxed);
        for (core, entry) in self.all_cores().zip(&self.board.cores) {
            let others = entry.holders.load(Relaxed) & !app.bit();
            let its = if held & core.bit() == 0 { 0 } else { app.bit() };
            entry.holders.store(others | its, Relaxed);
        }
    }

    pub(crate) fn publish_device(&mut self, index: usize) {
        let entry = &self.board.devices[index];
        let owner = self.devices.owner(index).map_or(NOBODY, |owner| owner.index() as u32);
        entry.sequence.write(|| match self.devices.pci.device(index) {
            None => {
                entry.present.store(0, Relaxed);
                entry.owner.store(NOBODY, Relaxed);
            }
            Some(function) => {
                entry.address.store(u32::from(function.address.0).max(function.mmio), Relaxed);
                entry.vendor.store(function.vendor.into(), Relaxed);
                entry.device.store(function.device.into(), Relaxed);
                entry.class.store(function.class, Relaxed);
                entry.owner.store(owner, Relaxed);
                entry.vectors.store(function.msix.count.into(), Relaxed);
                for (bytes, bar) in entry.bar_bytes.iter().zip(&function.bars) {
                    bytes.store(bar.bytes, Relaxed);
                }
                entry.present.store(1, Relaxed);
            }
        });
    }
}
