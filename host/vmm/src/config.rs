//! What a machine is made of, independent of who runs it.

use crate::mmio;
use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::str::FromStr;

/// Most processors that a machine can have.
pub const CORES_MAX: u32 = 64;
/// Least and most memory, in bytes, that a machine can have.
pub const MEMORY_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=64 << 30;

/// A machine to start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MachineConfig {
    /// Chipset.
    pub kind: MachineKind,
    /// Who executes guest instructions.
    pub accelerator: Accelerator,
    /// Processors, 1 to [`CORES_MAX`].
    pub cores: u32,
    /// Memory.
    pub memory: Memory,
    /// When the machine takes it from this computer.
    pub allocation: Allocation,
    /// Bootable ELF file.
    pub image: PathBuf,
    /// The kernel's command line.
    pub command_line: String,
    /// DMA remapping unit.
    pub iommu: Iommu,
    /// What each network device is connected to; the guest finds the devices in this order. One TAP at most.
    pub networks: Vec<Network>,
    /// Directories of this computer that the machine may use; the guest finds their devices in this order.
    #[serde(default)]
    pub directories: Vec<LentDirectory>,
    /// File with the disk that the machine reads; it is found before those of `devices`.
    #[serde(default)]
    pub disk: Option<PathBuf>,
    /// More devices, each as QEMU's `-device` takes it.
    pub devices: Vec<String>,
    /// Number of empty PCIe slots, `hotplug0` on, for devices that are plugged in later.
    pub hotplug_slots: u32,
    /// Port of the loopback interface at which the machine waits for a debugger before its first instruction.
    pub debugger: Option<u16>,
    /// More arguments for the monitor, for measurements and experiments.
    pub extra_arguments: Vec<String>,
}

impl MachineConfig {
    /// An ordinary machine that boots `image`: one core, 64 MiB, emulated.
    pub fn new(image: PathBuf) -> MachineConfig {
        MachineConfig {
            kind: MachineKind::Q35,
            accelerator: Accelerator::Tcg,
            cores: 1,
            memory: Memory::DEFAULT,
            allocation: Allocation::OnDemand,
            image,
            command_line: String::new(),
            iommu: Iommu::None,
            networks: Vec::new(),
            directories: Vec::new(),
            disk: None,
            devices: Vec::new(),
            hotplug_slots: 0,
            debugger: None,
            extra_arguments: Vec::new(),
        }
    }

    /// Checks what the types cannot.
    ///
    /// # Errors
    /// Names the setting that is out of range, or the two that exclude each other.
    pub fn check(&self) -> Result<()> {
        if !(1..=CORES_MAX).contains(&self.cores) {
            bail!("{} processors: expected 1 to {CORES_MAX}", self.cores);
        }
        if self.networks.iter().filter_map(Network::namespace).count() > 1 {
            bail!("several TAP devices: expected one at most, since QEMU runs in its namespace");
        }
        if self.kind == MachineKind::Microvm && self.iommu != Iommu::None {
            bail!("a microvm has no IOMMU: use `--machine q35` with `--iommu {}`", self.iommu.name());
        }
        if self.mmio_devices() > mmio::DEVICES_MAX {
            let count = self.mmio_devices();
            bail!("{count} devices on virtio-mmio: a microvm has room for {} at most", mmio::DEVICES_MAX);
        }
        Ok(())
    }

    /// Devices that are on no bus but virtio-mmio, network devices among them.
    pub(crate) fn mmio_devices(&self) -> usize {
        match self.kind {
            MachineKind::Q35 => 0,
            MachineKind::Microvm => {
                self.networks.len() + self.devices.iter().filter(|device| mmio::is_mmio(device)).count()
            }
        }
    }
}

macro_rules! named {
    ($(#[$meta:meta])* $type:ident { $($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "lowercase")]
        pub enum $type { $($(#[doc = $doc])+ $variant,)+ }

        impl $type {
            /// Every value, in the order of the documentation.
            pub const ALL: &'static [$type] = &[$($type::$variant,)+];

            /// The name that people type.
            pub const fn name(self) -> &'static str {
                match self { $($type::$variant => $name,)+ }
            }
        }

        impl FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<$type, String> {
                let found = $type::ALL.iter().find(|value| value.name() == text);
                found.copied().ok_or_else(|| format!("expected one of: {}", [$($name,)+].join(", ")))
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(self.name())
            }
        }
    };
}

named! {
    /// Chipset of a machine.
    MachineKind {
        /// A PC with PCIe.
        Q35 = "q35",
        /// QEMU's minimal machine: virtio-mmio for its networks, and a PCIe bus for devices that need one.
        Microvm = "microvm",
    }
}

named! {
    /// Who executes guest instructions.
    Accelerator {
        /// The processor itself, by Linux's KVM.
        Kvm = "kvm",
        /// QEMU's translator.
        Tcg = "tcg",
    }
}

named! {
    /// DMA remapping unit of a machine.
    Iommu {
        /// None: every device reaches all memory.
        None = "none",
        /// A virtio-iommu.
        Virtio = "virtio",
        /// An Intel VT-d unit.
        Intel = "intel",
    }
}

/// When a machine takes its memory from this computer. The names are libvirt's (`<allocation mode=..>`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Allocation {
    /// Page by page, when the guest first touches it: what is never touched is never taken, so a machine may
    /// be given more than this computer has. The guest stands still while Linux clears a page, for
    /// milliseconds if it is a huge one and this computer is itself virtual.
    #[default]
    OnDemand,
    /// All before the first instruction, so that the guest never waits for it. The start takes the longer.
    Immediate,
}

/// What a machine is lent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lent {
    /// A directory, by its absolute path.
    Directory(PathBuf),
    /// What a disk has: a file with an ext4 in it, by its absolute path.
    Disk(PathBuf),
    /// A file alone, by its absolute path: a directory that has nothing else, under the name [`LENT_FILE`].
    File(PathBuf),
}

/// What a file that is lent alone is called in its directory.
pub const LENT_FILE: &str = "file";

impl Lent {
    /// Where QEMU finds it, from the machine's directory, in which QEMU runs.
    pub fn place(&self, number: usize) -> PathBuf {
        match self {
            Lent::Directory(path) => path.clone(),
            Lent::Disk(_) | Lent::File(_) => format!("volume{number}").into(),
        }
    }
}

/// A directory of this computer that a machine uses by 9P.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LentDirectory {
    /// What it is.
    pub lent: Lent,
    /// What the machine may do with it.
    pub access: DirectoryAccess,
    /// Whose files are that the machine makes.
    pub owners: Owners,
}

/// What a machine may do with a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DirectoryAccess {
    /// Read it.
    ReadOnly,
    /// Read and write it.
    ReadWrite,
}

/// Whose files are that a machine makes in a directory; the words are QEMU's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Owners {
    /// Whose the machine says: QEMU runs as root.
    Passthrough,
    /// Whoever's QEMU runs as.
    None,
}

impl Owners {
    /// The choice of this process, as which QEMU runs.
    pub fn of_this_process() -> Owners {
        if rustix::process::geteuid().is_root() { Owners::Passthrough } else { Owners::None }
    }
}

/// What a machine's network device is connected to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// QEMU's user-mode network, which needs no rights: the machine reaches what this process reaches.
    User {
        /// Ports of the host that lead into the machine.
        forwards: Vec<Forward>,
    },
    /// A TAP device in a network namespace, see [`crate::Namespace`].
    Tap {
        /// Name of the namespace.
        namespace: String,
        /// Pairs of queues, at least 1.
        queues: u32,
    },
    /// A TAP device on the computer's bridge, see [`crate::bridge`].
    Bridge {
        /// Name of the TAP device.
        device: String,
        /// Address that the machine is to use.
        address: Ipv4Addr,
        /// Pairs of queues, at least 1.
        queues: u32,
    },
}

impl Default for Network {
    /// User mode without a forwarded port.
    fn default() -> Network {
        Network::User { forwards: Vec::new() }
    }
}

impl Network {
    /// Ports of the host that lead into the machine.
    pub fn forwards(&self) -> &[Forward] {
        match self {
            Network::User { forwards } => forwards,
            Network::Tap { .. } | Network::Bridge { .. } => &[],
        }
    }

    /// The network namespace that QEMU must run in, if it must.
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Network::User { .. } | Network::Bridge { .. } => None,
            Network::Tap { namespace, .. } => Some(namespace),
        }
    }
}

/// A port of the host that leads to one of the machine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forward {
    /// Address to listen at; `None` is every IPv4 address.
    pub address: Option<IpAddr>,
    /// Port of the host.
    pub host: u16,
    /// Port of the machine.
    pub guest: u16,
    /// UDP rather than TCP.
    pub udp: bool,
}

impl fmt::Display for Forward {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(address) = self.address {
            write!(out, "{address}:")?;
        }
        write!(out, "{}:{}{}", self.host, self.guest, if self.udp { "/udp" } else { "" })
    }
}

/// Bytes of memory, in [`MEMORY_BYTES`] and a multiple of 8192.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Memory(u64);

impl Memory {
    /// 64 MiB.
    pub const DEFAULT: Memory = Memory(64 << 20);

    /// That many bytes.
    ///
    /// # Errors
    /// If a machine cannot have so much or so little, or it is no whole number of pages.
    pub fn from_bytes(bytes: u64) -> Result<Memory, String> {
        if !MEMORY_BYTES.contains(&bytes) {
            return Err("expected between 1M and 64G of memory".to_owned());
        }
        if !bytes.is_multiple_of(8192) {
            return Err("expected a multiple of 8K".to_owned());
        }
        Ok(Memory(bytes))
    }

    /// The number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for Memory {
    type Err = String;

    /// Reads `64M`, `64MiB`, `2g`, `4096k` or a number of bytes. Units are powers of 1024, as in Docker.
    fn from_str(text: &str) -> Result<Memory, String> {
        let expected = "expected a size such as 64M or 2G (units: K, M, G)";
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            _ => return Err(expected.to_owned()),
        };
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(expected.to_owned());
        }
        let number: u64 = digits.parse().map_err(|_| expected.to_owned())?;
        Memory::from_bytes(number.checked_mul(1 << unit).ok_or("more than 64G")?)
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shift, unit) = [(30, "G"), (20, "M"), (10, "K")]
            .into_iter()
            .find(|(shift, _)| self.0.is_multiple_of(1 << shift))
            .unwrap_or((0, ""));
        write!(out, "{}{unit}", self.0 >> shift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn memory_reads_the_sizes_people_write() {
        for (text, bytes) in [("64M", 64 << 20), ("2g", 2 << 30), ("2MiB", 2 << 20), ("4096k", 4 << 20)] {
            assert_eq!(text.parse::<Memory>().map(Memory::bytes), Ok(bytes), "{text}");
        }
        for text in
            ["", "M", "-1M", "+1M", "64X", "1K", "65G", "1048577", "99999999999999999999G", "6 4M", "6é"]
        {
            assert!(text.parse::<Memory>().is_err(), "{text} is not a size");
        }
    }

    #[test]
    fn names_read_back() {
        assert_eq!("microvm".parse(), Ok(MachineKind::Microvm));
        assert_eq!("pc".parse::<MachineKind>(), Err("expected one of: q35, microvm".to_owned()));
    }

    #[test]
    fn a_microvm_with_an_iommu_is_refused() {
        let mut config = MachineConfig::new(PathBuf::from("image"));
        assert!(config.check().is_ok());
        config.kind = MachineKind::Microvm;
        config.iommu = Iommu::Virtio;
        assert!(config.check().expect_err("refused").to_string().contains("q35"));
    }

    #[test]
    fn a_microvm_has_room_for_few_devices() {
        let mut config = MachineConfig::new(PathBuf::from("image"));
        config.kind = MachineKind::Microvm;
        config.networks = vec![Network::default(); 3];
        assert!(config.check().is_ok());
        config.devices = vec!["virtio-rng-device".into()];
        assert!(config.check().expect_err("refused").to_string().contains("4 devices on virtio-mmio"));
        config.kind = MachineKind::Q35;
        assert!(config.check().is_ok());
    }

    #[test]
    fn a_machine_is_in_one_namespace() {
        let mut config = MachineConfig::new(PathBuf::from("image"));
        let tap = Network::Tap { namespace: "n".into(), queues: 1 };
        config.networks = vec![tap.clone(), Network::default()];
        assert!(config.check().is_ok());
        config.networks.push(tap);
        assert!(config.check().expect_err("refused").to_string().contains("TAP"));
    }

    proptest! {
        #[test]
        fn memory_prints_what_it_reads(pairs_of_pages in 128u64..(64 << 17)) {
            let memory = Memory::from_bytes(pairs_of_pages * 8192).expect("in range");
            prop_assert_eq!(memory.to_string().parse::<Memory>(), Ok(memory));
        }
    }
}
