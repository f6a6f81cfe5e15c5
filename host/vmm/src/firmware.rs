//! The firmware that brings a machine up.
//!
//! QEMU's own for a PC, SeaBIOS, looks for keyboards, disks and boot menus, and runs millions of
//! instructions before the kernel's first. qboot, which QEMU brings along for microvm, does what a machine
//! that is loaded by the monitor needs: memory map, ACPI tables, then the image's entry by PVH, or Linux's.

use crate::config::MachineKind;
use std::path::Path;

/// Where distributions put qboot: QEMU's own packages, one built from source, and Fedora's.
const PLACES: [&str; 3] =
    ["/usr/share/qemu/qboot.rom", "/usr/local/share/qemu/qboot.rom", "/usr/share/qboot/bios.bin"];

/// QEMU's arguments for the quickest firmware of this computer that such a machine can have; none if that is
/// QEMU's default.
pub fn arguments(kind: MachineKind) -> Vec<String> {
    let qboot = PLACES.into_iter().find(|place| Path::new(place).is_file());
    choose(kind, qboot)
}

fn choose(kind: MachineKind, qboot: Option<&str>) -> Vec<String> {
    match (kind, qboot) {
        (MachineKind::Q35, Some(path)) => vec!["-bios".to_owned(), path.to_owned()],
        // A microvm has it anyway; without it SeaBIOS does the same, more slowly.
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pc_has_the_small_firmware_where_there_is_one() {
        assert_eq!(choose(MachineKind::Q35, Some("/q.rom")), ["-bios", "/q.rom"]);
        assert!(choose(MachineKind::Q35, None).is_empty());
        assert!(choose(MachineKind::Microvm, Some("/q.rom")).is_empty());
    }
}
