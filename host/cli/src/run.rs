//! `nom run`.

use crate::arguments::{LogLevel, NetworkChoice, Run};
use crate::debugger;
use crate::store::{self, Record, Store};
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use nom_build::Project;
use nom_image::Symbols;
use nom_image::manifest::{Application, BundleManifest, Port, Protocol};
use nom_vmm::accelerator::{self, Choice};
use nom_vmm::qemu::ProcessIdentity;
use nom_vmm::{
    Accelerator, Ending, Event, Exit, Forward, Machine, MachineConfig, Namespace, Network, Qemu, Vmm,
    namespace,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// PCI base and sub class of Ethernet controllers.
const NETWORK_CLASS: u32 = 0x02_0000;
/// How long a machine may take to end after a signal.
const STOP_PATIENCE: Duration = Duration::from_secs(2);
/// How often a signal is looked for.
pub const SIGNAL_POLL: Duration = Duration::from_millis(50);
/// Signals that end the machine.
const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// SeaBIOS works in the last 400 KiB of memory before it starts the kernel, which is loaded by then.
const FIRMWARE_BYTES: u64 = 400 << 10;

/// What a machine boots.
struct Boot {
    elf: Vec<u8>,
    manifest: Option<BundleManifest>,
    kernel: Option<PathBuf>,
    programs: Vec<(String, PathBuf)>,
}

/// Runs an application; returns the command's exit status.
pub fn run(options: &Run) -> Result<u8> {
    let boot = prepare(options)?;
    let store = Store::open()?;
    let accelerator = choose_accelerator(options, &store)?;
    let (name, directory) = store.create(options.name.as_deref(), &options.app)?;
    let image = directory.join("image");
    std::fs::write(&image, &boot.elf).with_context(|| format!("cannot write {}", image.display()))?;
    let mut config = configure(options, &boot, accelerator, image)?;
    let namespace = private_network(options, &name)?;
    if let Some(namespace) = &namespace {
        config.networks = vec![namespace.network()];
    }
    if let Some(port) = config.debugger {
        debugger::write_script(&directory, &name, port, boot.kernel.as_deref())?;
    }
    let record = |process| record(options, &name, &config, process, boot.programs.clone());
    if options.detach {
        let process = identify(Qemu.start_detached(&config, &directory)?)?;
        let record = record(process);
        store::save(&directory, &record)?;
        namespace.into_iter().for_each(Namespace::leave);
        announce(options, &record)?;
        return Ok(0);
    }
    let machine = Qemu.start(&config, &directory)?;
    let process = ProcessIdentity::of(machine.process_id());
    if let Some(process) = process {
        store::save(&directory, &record(process))?;
    }
    attend(machine, &name, &directory)
}

/// Builds what is to run, or reads it if it is an image already.
fn prepare(options: &Run) -> Result<Boot> {
    let path = Path::new(&options.app);
    if path.is_file() && is_elf(path)? {
        if !options.arguments.is_empty() {
            bail!("{} is an image: its arguments were given when it was built", options.app);
        }
        let elf = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        return Ok(Boot { elf, manifest: None, kernel: None, programs: Vec::new() });
    }
    let project = Project::find()?;
    let arguments = (!options.arguments.is_empty()).then_some(options.arguments.as_slice());
    let built = project.image(&project.manifest_path(&options.app)?, arguments, Symbols::Keep)?;
    Ok(Boot {
        elf: built.image.elf,
        manifest: Some(built.manifest),
        kernel: Some(built.kernel),
        programs: built.programs,
    })
}

fn is_elf(path: &Path) -> Result<bool> {
    let mut magic = Vec::new();
    let file = std::fs::File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    file.take(4).read_to_end(&mut magic)?;
    Ok(magic == b"\x7fELF")
}

fn choose_accelerator(options: &Run, store: &Store) -> Result<Accelerator> {
    let choice = match options.accel.fixed() {
        Some(accelerator) => Choice { accelerator, reason: "asked for".to_owned() },
        None => accelerator::choose(store.root()),
    };
    eprintln!("{choice}");
    Ok(choice.accelerator)
}

fn configure(options: &Run, boot: &Boot, accelerator: Accelerator, image: PathBuf) -> Result<MachineConfig> {
    let debugger = options.gdb.then(debugger::free_port).transpose()?;
    let config = MachineConfig {
        kind: options.machine,
        accelerator,
        cores: options.cpus,
        memory: options.memory,
        command_line: format!("log={}", level_name(options.log)),
        iommu: options.iommu,
        networks: network(&options.publish, boot.manifest.as_ref()).into_iter().collect(),
        devices: options.devices.clone(),
        debugger,
        ..MachineConfig::new(image)
    };
    config.check()?;
    let needed = nom_image::image_end(&config.image, &boot.elf)? + FIRMWARE_BYTES;
    if config.memory.bytes() < needed {
        let kibibytes = needed >> 10;
        bail!("--memory {}: image and firmware alone need {kibibytes} KiB", config.memory);
    }
    Ok(config)
}

fn level_name(level: LogLevel) -> String {
    level.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Whether an application's manifest asks for a network device.
pub fn wants_network(application: &Application) -> bool {
    application.devices.iter().any(|device| device.class == NETWORK_CLASS)
}

/// A network device, if a port is published or an application may have one.
fn network(published: &[Port], manifest: Option<&BundleManifest>) -> Option<Network> {
    let applications = || manifest.iter().flat_map(|manifest| &manifest.applications);
    let wanted = applications().any(wants_network);
    let ports = applications().flat_map(|app| &app.ports).chain(published);
    let forwards: Vec<Forward> = ports.map(forward).collect();
    (wanted || !forwards.is_empty()).then_some(Network::User { forwards })
}

/// A network of the machine's own, if one is asked for; says how to get there.
fn private_network(options: &Run, name: &str) -> Result<Option<Namespace>> {
    if options.network == NetworkChoice::User {
        return Ok(None);
    }
    if let Some(port) = options.publish.first() {
        bail!("-p {port}: with --network tap no port is published; expected --network user");
    }
    // One pair of queues for each core, as the driver wants them.
    let made = Namespace::create(name, options.cpus).context("--network tap")?;
    eprintln!("network: {} from `ip netns exec {} COMMAND`", namespace::GUEST, made.name());
    Ok(Some(made))
}

fn forward(port: &Port) -> Forward {
    Forward { address: port.address, host: port.host, guest: port.guest, udp: port.protocol == Protocol::Udp }
}

fn identify(process: u32) -> Result<ProcessIdentity> {
    ProcessIdentity::of(process).with_context(|| format!("QEMU (process {process}) ended at once"))
}

fn record(
    options: &Run,
    name: &str,
    config: &MachineConfig,
    process: ProcessIdentity,
    programs: Vec<(String, PathBuf)>,
) -> Record {
    let ports = config.networks.iter().flat_map(Network::forwards).map(Forward::to_string).collect();
    Record {
        name: name.to_owned(),
        app: options.app.clone(),
        process,
        created_ms: store::now_ms(),
        cpus: config.cores,
        memory: config.memory,
        machine: config.kind,
        accelerator: config.accelerator,
        ports,
        detached: options.detach,
        programs,
    }
}

fn announce(options: &Run, record: &Record) -> Result<()> {
    if options.json {
        println!("{}", serde_json::to_string_pretty(record)?);
    } else {
        println!("{}", record.name);
    }
    Ok(())
}

/// From now on a signal does not end this process, but is what the result holds; 0 until then.
///
/// # Errors
/// If Linux does not allow it.
pub fn watch_signals() -> Result<Arc<AtomicUsize>> {
    let signal = Arc::new(AtomicUsize::new(0));
    for number in SIGNALS {
        signal_hook::flag::register_usize(number, signal.clone(), number as usize)?;
    }
    Ok(signal)
}

/// Prints what the machine writes until it ends or a signal ends it; returns the exit status.
fn attend(mut machine: Box<dyn Machine>, name: &str, directory: &Path) -> Result<u8> {
    let signal = watch_signals()?;
    let mut control = Vec::new();
    let mut deadline = None;
    let exit = loop {
        match machine.next_event(SIGNAL_POLL)? {
            Some(Event::Serial(bytes)) => print(&bytes, machine.as_mut())?,
            Some(Event::Control(line)) => control.push(line),
            Some(Event::Ended(exit)) => break exit,
            None => {}
        }
        let signalled = signal.load(Ordering::Relaxed) != 0;
        match deadline {
            None if signalled => {
                machine.stop()?;
                deadline = Some(Instant::now() + STOP_PATIENCE);
            }
            Some(deadline) if Instant::now() > deadline => machine.kill(),
            _ => {}
        }
    };
    let ending = Ending::of(&with_request(exit, directory), &control);
    Ok(conclude(&ending, name, signal.load(Ordering::Relaxed)))
}

/// Passes output on; if nobody reads it any more, the machine has no purpose left.
fn print(bytes: &[u8], machine: &mut dyn Machine) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(_) => machine.stop(),
        Ok(()) => Ok(()),
    }
}

/// An exit that `nom stop` asked for in another process.
fn with_request(exit: Exit, directory: &Path) -> Exit {
    Exit { requested: exit.requested || store::was_stopped(directory), ..exit }
}

/// Says how it ended, if that is not plain; returns the exit status.
fn conclude(ending: &Ending, name: &str, signal: usize) -> u8 {
    match ending {
        Ending::Halted(status) => *status,
        // A shell's status for a process that a signal ended.
        Ending::Stopped if signal != 0 => 128 + signal as u8,
        Ending::Stopped => 128 + SIGTERM as u8,
        other => {
            eprintln!("nom: {name}: {other}");
            other.status()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_the_applications_or_a_shells() {
        assert_eq!(conclude(&Ending::Halted(3), "x", 0), 3);
        assert_eq!(conclude(&Ending::Stopped, "x", SIGINT as usize), 130);
        assert_eq!(conclude(&Ending::Stopped, "x", 0), 143);
        assert_eq!(conclude(&Ending::Panicked, "x", 0), 125);
    }

    #[test]
    fn a_published_port_brings_a_network() {
        assert_eq!(network(&[], None), None);
        let port = "8080:80/udp".parse().expect("a port");
        let network = network(&[port], None).expect("a network");
        assert_eq!(network.forwards(), [Forward { address: None, host: 8080, guest: 80, udp: true }]);
    }
}
