//! Which secrets a processor betrays by what it does ahead of time and takes back.
//!
//! The kernel has no page tables of its own for ring 3 (KPTI) and flushes no buffers: it says where that
//! would be needed. Source: Intel SDM volume 4, IA32_ARCH_CAPABILITIES; AMD and Hygon have neither flaw.

use nom_abi::board::Hazards;

/// What is not mitigated on a processor with this vendor (EBX, EDX and ECX of CPUID leaf 0) and these
/// capabilities, 0 if it has no such register.
pub fn hazards(vendor: [u32; 3], capabilities: u64) -> Hazards {
    const NO_MELTDOWN: u64 = 1;
    const NO_MDS: u64 = 1 << 5;
    let vendor: [[u8; 4]; 3] = vendor.map(u32::to_le_bytes);
    let is_free =
        [b"AuthenticAMD", b"HygonGenuine"].map(<[u8; 12]>::as_slice).contains(&vendor.as_flattened());
    let has = |absent: u64, hazard: u32| if is_free || capabilities & absent != 0 { 0 } else { hazard };
    Hazards(has(NO_MELTDOWN, Hazards::MELTDOWN) + has(NO_MDS, Hazards::MDS) + Hazards::SPECTRE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    fn named(vendor: &[u8; 12], capabilities: u64) -> std::string::String {
        let words = [0, 4, 8].map(|at| u32::from_le_bytes(vendor[at..at + 4].try_into().unwrap()));
        hazards(words, capabilities).to_string()
    }

    #[test]
    fn what_a_processor_does_not_deny_is_said() {
        assert_eq!(named(b"GenuineIntel", 0), "meltdown,mds,spectre");
        assert_eq!(named(b"GenuineIntel", 1), "mds,spectre");
        assert_eq!(named(b"GenuineIntel", 1 << 5), "meltdown,spectre");
        assert_eq!(named(b"GenuineIntel", 1 | 1 << 5), "spectre");
        assert_eq!(named(b"AuthenticAMD", 0), "spectre");
        assert_eq!(named(b"HygonGenuine", 0), "spectre");
        assert_eq!(named(b"CentaurHauls", 0), "meltdown,mds,spectre");
    }
}
