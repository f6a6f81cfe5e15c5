//! From a [`MachineConfig`] to QEMU's command line.

use crate::config::{
    Accelerator, Allocation, DirectoryAccess, Forward, Iommu, Lent, LentDirectory, MachineConfig,
    MachineKind, Network, Owners,
};
use crate::{bridge, mmio, namespace};

/// Where a machine's two byte streams go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    /// To the process that started it, and to the logs.
    Attached,
    /// To the logs alone; QEMU becomes a daemon once the machine is set up.
    Detached,
}

/// Names of the files in a machine's directory. QEMU runs there, so that socket paths stay short.
pub mod file {
    /// All that the machine wrote to its serial line.
    pub const SERIAL_LOG: &str = "serial.log";
    /// All lines of its control channel.
    pub const CONTROL_LOG: &str = "control.log";
    /// Socket of QEMU's monitor.
    pub const MONITOR: &str = "qmp.sock";
    /// Process id of a detached QEMU.
    pub const PID: &str = "qemu.pid";
}

/// QEMU's arguments for a machine.
pub fn arguments(config: &MachineConfig, streams: Streams) -> Vec<String> {
    let mut line = CommandLine::default();
    line.words("-display none -nodefaults -no-user-config -no-reboot");
    // Names QEMU's threads, by which a meter knows those that are virtual processors.
    line.words("-name nom,debug-threads=on");
    line.option("-machine", format!("{},memory-backend=memory", machine(config)));
    line.option("-cpu", if config.accelerator == Accelerator::Kvm { "host" } else { "max" });
    line.option("-smp", processors(config.cores));
    let kilobytes = config.memory.bytes() / 1024;
    line.option("-m", format!("{kilobytes}k"));
    let allocation = allocation(config.allocation);
    line.option("-object", format!("memory-backend-ram,id=memory,size={kilobytes}k,{allocation}"));
    line.option("-kernel", escape(&config.image.display().to_string()));
    line.option("-append", command_line(config));
    line.option("-qmp", format!("unix:{},server=on,wait=off", file::MONITOR));
    line.option("-device", "isa-debug-exit,iobase=0xf4,iosize=0x04");
    streams_arguments(&mut line, streams);
    device_arguments(&mut line, config);
    if let Some(port) = config.debugger {
        line.words("-S");
        line.option("-gdb", format!("tcp:127.0.0.1:{port}"));
    }
    line.0.extend(config.extra_arguments.iter().cloned());
    line.0
}

/// The kernel's command line; it names the devices that no bus does.
fn command_line(config: &MachineConfig) -> String {
    let devices = mmio::command_line(config.mmio_devices());
    [config.command_line.as_str(), &devices].join(" ").trim().to_owned()
}

#[derive(Default)]
struct CommandLine(Vec<String>);

impl CommandLine {
    fn words(&mut self, words: &str) {
        self.0.extend(words.split_whitespace().map(str::to_owned));
    }

    fn option(&mut self, name: &str, value: impl Into<String>) {
        self.0.extend([name.to_owned(), value.into()]);
    }
}

/// A comma ends a value in most of QEMU's options; it is doubled to be part of one.
fn escape(value: &str) -> String {
    value.replace(',', ",,")
}

fn machine(config: &MachineConfig) -> String {
    let accelerator = config.accelerator;
    match config.kind {
        // Remapping of interrupts, which comes with the IOMMU, needs KVM to leave the IOAPIC to QEMU.
        MachineKind::Q35 if config.iommu == Iommu::Intel && accelerator == Accelerator::Kvm => {
            format!("q35,accel={accelerator},kernel-irqchip=split")
        }
        MachineKind::Q35 => format!("q35,accel={accelerator}"),
        MachineKind::Microvm => format!(
            "microvm,accel={accelerator},pcie=on,acpi=on,isa-serial=on,rtc=on,pit=on,pic=on,\
             auto-kernel-cmdline=off"
        ),
    }
}

/// A machine that can never have a second processor makes QEMU's translator drop memory barriers, so one
/// that has a single processor is given room for another.
fn processors(cores: u32) -> String {
    if cores == 1 { "1,maxcpus=2".to_owned() } else { cores.to_string() }
}

/// Memory that is touched on demand is not reserved: a machine may be given more than this computer has.
/// QEMU refuses to touch at once what it may not reserve.
fn allocation(allocation: Allocation) -> &'static str {
    match allocation {
        Allocation::OnDemand => "reserve=off",
        Allocation::Immediate => "reserve=on,prealloc=on",
    }
}

fn streams_arguments(line: &mut CommandLine, streams: Streams) {
    let (serial_log, control_log) = (file::SERIAL_LOG, file::CONTROL_LOG);
    match streams {
        Streams::Attached => {
            // A machine that is started again goes on with its log; what the kernel reports is of one life.
            let log = format!("logfile={serial_log},logappend=on");
            line.option("-chardev", format!("file,id=serial,path=/proc/self/fd/1,{log}"));
            line.option("-chardev", format!("socket,id=control,fd=0,logfile={control_log}"));
        }
        Streams::Detached => {
            line.words("-daemonize");
            line.option("-pidfile", file::PID);
            line.option("-chardev", format!("file,id=serial,path={serial_log}"));
            line.option("-chardev", format!("file,id=control,path={control_log}"));
        }
    }
    line.option("-serial", "chardev:serial");
    line.option("-device", "isa-debugcon,iobase=0xe9,chardev=control");
}

fn device_arguments(line: &mut CommandLine, config: &MachineConfig) {
    // An IOMMU must come before the devices that it is to guard.
    match config.iommu {
        Iommu::None => {}
        Iommu::Virtio => line.option("-device", "virtio-iommu-pci,disable-legacy=on"),
        Iommu::Intel => line.option("-device", "intel-iommu,intremap=on"),
    }
    if config.hotplug_slots > 0 && config.kind == MachineKind::Q35 {
        // Plugging by the slots' own registers, as PCIe says, rather than by ACPI's bytecode.
        line.option("-global", "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off");
    }
    for slot in 0..config.hotplug_slots {
        line.option("-device", format!("pcie-root-port,id=hotplug{slot},chassis={},slot={slot}", slot + 1));
    }
    let guarded = if config.iommu == Iommu::None { "" } else { ",iommu_platform=on" };
    if config.kind == MachineKind::Microvm {
        line.option("-global", "virtio-mmio.force-legacy=false");
    }
    // Each gets the next free slot of the bus, so that the guest finds them in this order.
    for (number, network) in config.networks.iter().enumerate() {
        let mac = ethernet_address(network);
        line.option("-netdev", backend(network, number));
        let device = match config.kind {
            MachineKind::Q35 => format!(
                "virtio-net-pci,netdev=network{number},romfile=,disable-legacy=on{guarded}{}{mac}",
                queues(network)
            ),
            MachineKind::Microvm => {
                format!("virtio-net-device,netdev=network{number}{}{mac}", mmio::bus(number))
            }
        };
        line.option("-device", device);
    }
    for (number, directory) in config.directories.iter().enumerate() {
        line.option("-fsdev", lender(directory, number));
        let name = format!("fsdev=volume{number},mount_tag=volume{number}");
        line.option("-device", format!("virtio-9p-pci,{name},disable-legacy=on{guarded}"));
    }
    if let Some(disk) = &config.disk {
        let path = escape(&disk.display().to_string());
        line.option("-drive", format!("if=none,id=root,format=raw,readonly=on,file={path}"));
        line.option("-device", format!("virtio-blk-pci,drive=root,disable-legacy=on{guarded}"));
    }
    let mut next = config.networks.len();
    for device in &config.devices {
        let is_mmio = config.kind == MachineKind::Microvm && mmio::is_mmio(device);
        let bus = if is_mmio { mmio::bus(next) } else { String::new() };
        next += usize::from(is_mmio);
        line.option("-device", format!("{device}{bus}"));
    }
}

/// Who reads and writes a directory for the machine. Files of other file systems below it get numbers of
/// their own, so that no two are taken for one.
fn lender(directory: &LentDirectory, number: usize) -> String {
    let path = escape(&directory.lent.place(number).display().to_string());
    let model = match directory.owners {
        Owners::Passthrough => "passthrough",
        Owners::None => "none",
    };
    let access = match directory.access {
        DirectoryAccess::ReadOnly => ",readonly=on",
        DirectoryAccess::ReadWrite => "",
    };
    // Numbers of files of several devices are made different, for which QEMU looks at each file of a
    // directory that is listed, and fails if one is damaged. A disk is one device.
    let devices = if matches!(directory.lent, Lent::Disk(_)) { "forbid" } else { "remap" };
    format!("local,id=volume{number},path={path},security_model={model},multidevs={devices}{access}")
}

fn backend(network: &Network, number: usize) -> String {
    match network {
        Network::User { forwards } => {
            format!("user,id=network{number}{}", forwards.iter().map(forward).collect::<String>())
        }
        Network::Tap { queues, .. } => tap(number, namespace::DEVICE, *queues),
        Network::Bridge { device, queues, .. } => tap(number, device, *queues),
    }
}

fn tap(number: usize, device: &str, queues: u32) -> String {
    let several = if queues > 1 { format!(",queues={queues}") } else { String::new() };
    format!("tap,id=network{number},ifname={device},script=no,downscript=no{several}")
}

/// Where several machines are neighbours, each needs an Ethernet address of its own.
fn ethernet_address(network: &Network) -> String {
    match network {
        Network::Bridge { address, .. } => format!(",mac={}", bridge::ethernet_address(*address)),
        _ => String::new(),
    }
}

/// Properties of a device with several pairs of queues: an interrupt for each queue, and two for the control
/// queue and changes of configuration.
fn queues(network: &Network) -> String {
    match network {
        Network::Tap { queues: queues @ 2.., .. } | Network::Bridge { queues: queues @ 2.., .. } => {
            format!(",mq=on,vectors={}", 2 * queues + 2)
        }
        _ => String::new(),
    }
}

fn forward(forward: &Forward) -> String {
    let protocol = if forward.udp { "udp" } else { "tcp" };
    let address = forward.address.map(|address| address.to_string()).unwrap_or_default();
    format!(",hostfwd={protocol}:{address}:{}-:{}", forward.host, forward.guest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Lent;
    use std::path::PathBuf;

    fn line(change: impl FnOnce(&mut MachineConfig)) -> String {
        let mut config = MachineConfig::new(PathBuf::from("image"));
        change(&mut config);
        arguments(&config, Streams::Attached).join(" ")
    }

    fn on_microvm(networks: usize) -> (MachineKind, Vec<Network>) {
        (MachineKind::Microvm, vec![Network::default(); networks])
    }

    /// A page of registers has one owner.
    #[test]
    fn devices_of_a_microvm_have_a_page_each() {
        let line = line(|c| {
            (c.kind, c.networks) = on_microvm(2);
            c.command_line = "log=info".into();
            c.devices = vec!["virtio-rng-pci".into(), "virtio-rng-device".into()];
        });
        for expected in [
            "virtio-net-device,netdev=network1,bus=virtio-mmio-bus.9",
            "-device virtio-rng-pci -device virtio-rng-device,bus=virtio-mmio-bus.17",
            "-append log=info virtio_mmio.device=512@0xfeb00200:25 virtio_mmio.device=512@0xfeb01200:33 \
             virtio_mmio.device=512@0xfeb02200:41 -qmp",
        ] {
            assert!(line.contains(expected), "expected `{expected}` in `{line}`");
        }
    }

    /// A row for each setting: what is changed, and what QEMU must be told then.
    #[test]
    fn every_setting_reaches_qemu() {
        type Row = (fn(&mut MachineConfig), &'static str);
        let rows: &[Row] = &[
            (|_| {}, "-machine q35,accel=tcg,memory-backend=memory -cpu max -smp 1,maxcpus=2 -m 65536k"),
            (|_| {}, "-object memory-backend-ram,id=memory,size=65536k,reserve=off"),
            (
                |c| c.allocation = Allocation::Immediate,
                "-object memory-backend-ram,id=memory,size=65536k,reserve=on,prealloc=on",
            ),
            (|c| c.accelerator = Accelerator::Kvm, "-machine q35,accel=kvm,memory-backend=memory -cpu host"),
            (|c| c.cores = 4, "-smp 4"),
            (|c| c.kind = MachineKind::Microvm, "-machine microvm,accel=tcg,pcie=on"),
            (|c| c.command_line = "log=info".into(), "-append log=info"),
            (|c| c.image = "a,b".into(), "-kernel a,,b"),
            (
                |c| c.disk = Some("/a,b".into()),
                "-drive if=none,id=root,format=raw,readonly=on,file=/a,,b -device virtio-blk-pci,drive=root",
            ),
            (|c| c.iommu = Iommu::Intel, "-device intel-iommu"),
            (|c| c.iommu = Iommu::Virtio, "-device virtio-iommu-pci"),
            (|c| c.hotplug_slots = 1, "-device pcie-root-port,id=hotplug0,chassis=1,slot=0"),
            (|c| c.devices = vec!["virtio-rng-pci".into()], "-device virtio-rng-pci"),
            (|c| c.debugger = Some(1234), "-S -gdb tcp:127.0.0.1:1234"),
            (|c| c.extra_arguments = vec!["-icount".into(), "1".into()], "-icount 1"),
            (|c| c.networks = vec![Network::default()], "-netdev user,id=network0 -device virtio-net-pci"),
            (
                |c| (c.kind, c.networks) = on_microvm(1),
                "-device virtio-net-device,netdev=network0,bus=virtio-mmio-bus.1",
            ),
            (|c| (c.kind, c.networks) = on_microvm(1), "-global virtio-mmio.force-legacy=false"),
            (|c| (c.kind, c.networks) = on_microvm(1), "-append virtio_mmio.device=512@0xfeb00200:25 -qmp"),
        ];
        for (change, expected) in rows {
            let line = line(change);
            assert!(line.contains(expected), "expected `{expected}` in `{line}`");
        }
    }

    #[test]
    fn directories_are_lent_in_order() {
        let lent =
            |path: &str, access, owners| LentDirectory { lent: Lent::Directory(path.into()), access, owners };
        let line = line(|config| {
            config.directories = vec![
                lent("/srv/a,b", DirectoryAccess::ReadWrite, Owners::None),
                lent("/etc", DirectoryAccess::ReadOnly, Owners::Passthrough),
                LentDirectory {
                    lent: Lent::Disk("/srv/it.img".into()),
                    access: DirectoryAccess::ReadWrite,
                    owners: Owners::Passthrough,
                },
            ];
        });
        for expected in [
            "-fsdev local,id=volume0,path=/srv/a,,b,security_model=none,multidevs=remap -device",
            "-device virtio-9p-pci,fsdev=volume0,mount_tag=volume0,disable-legacy=on -fsdev",
            "-fsdev local,id=volume1,path=/etc,security_model=passthrough,multidevs=remap,readonly=on",
            "-device virtio-9p-pci,fsdev=volume1,mount_tag=volume1",
            "-fsdev local,id=volume2,path=volume2,security_model=passthrough,multidevs=forbid -device",
        ] {
            assert!(line.contains(expected), "expected `{expected}` in `{line}`");
        }
    }

    #[test]
    fn ports_become_forwards() {
        let tcp = Forward { address: None, host: 8080, guest: 80, udp: false };
        let udp = Forward { address: Some([127, 0, 0, 1].into()), host: 53, guest: 53, udp: true };
        assert_eq!(
            backend(&Network::User { forwards: vec![tcp, udp] }, 0),
            "user,id=network0,hostfwd=tcp::8080-:80,hostfwd=udp:127.0.0.1:53-:53"
        );
    }

    #[test]
    fn a_tap_has_as_many_queues_as_its_device() {
        let tap = |queues| line(|c| c.networks = vec![Network::Tap { namespace: "n".into(), queues }]);
        let one = tap(1);
        assert!(one.contains("-netdev tap,id=network0,ifname=tap0,script=no,downscript=no -device"), "{one}");
        assert!(!one.contains("mq=on"));
        let four = tap(4);
        assert!(four.contains("downscript=no,queues=4") && four.contains("mq=on,vectors=10"), "{four}");
    }

    #[test]
    fn a_machine_on_the_bridge_has_its_own_device_and_ethernet_address() {
        let address = [10, 110, 111, 2].into();
        let network = Network::Bridge { device: "nomtap3".into(), address, queues: 2 };
        let line = line(|c| c.networks = vec![network]);
        assert!(line.contains("tap,id=network0,ifname=nomtap3,script=no,downscript=no,queues=2"), "{line}");
        assert!(line.contains("mq=on,vectors=6,mac=02:6e:0a:6e:6f:02"), "{line}");
    }

    #[test]
    fn network_devices_are_in_order() {
        let line = line(|c| {
            c.networks = vec![Network::Tap { namespace: "n".into(), queues: 1 }, Network::default()];
        });
        let place = |text: &str| line.find(text).unwrap_or_else(|| panic!("no `{text}` in `{line}`"));
        assert!(place("netdev=network0,") < place("netdev=network1,"));
        assert!(line.contains("tap,id=network0") && line.contains("user,id=network1"));
    }

    #[test]
    fn an_iommu_comes_before_the_devices_it_guards() {
        let line = line(|config| {
            config.iommu = Iommu::Intel;
            config.networks = vec![Network::default()];
        });
        assert!(line.find("intel-iommu") < line.find("virtio-net-pci"));
        assert!(line.contains("iommu_platform=on"));
    }

    #[test]
    fn a_detached_machine_writes_to_its_logs_only() {
        let config = MachineConfig::new(PathBuf::from("image"));
        let line = arguments(&config, Streams::Detached).join(" ");
        assert!(line.contains("-daemonize") && line.contains("file,id=serial,path=serial.log"));
        assert!(!line.contains("fd=0"));
    }
}
