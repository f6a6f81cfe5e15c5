//! `nom run`.

use crate::arguments::{LogLevel, NetworkChoice, Run};
use crate::attend::{self, Audience, Console};
use crate::debugger;
use crate::ports::{self, Forwards};
use crate::prices::{self, Prices};
use crate::store::{self, Record, Store};
use crate::watch::Watch;
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use nom_build::prices::PRICED;
use nom_build::{PriceFeed, Project};
use nom_image::Symbols;
use nom_image::manifest::{Application, BundleManifest};
use nom_vmm::accelerator::{self, Choice};
use nom_vmm::qemu::ProcessIdentity;
use nom_vmm::{Accelerator, Allocation, Forward, MachineConfig, Namespace, Network, Qemu, Vmm, namespace};
use std::io::Read;
use std::path::{Path, PathBuf};

/// PCI base and sub class of Ethernet controllers.
const NETWORK_CLASS: u32 = 0x02_0000;
/// SeaBIOS works in the last 400 KiB of memory before it starts the kernel, which is loaded by then.
const FIRMWARE_BYTES: u64 = 400 << 10;

/// What is to run: an image as it is, or a bundle that is still to be packed.
enum Subject {
    Image(Vec<u8>),
    Bundle(Box<(Project, BundleManifest)>),
}

/// What a machine boots.
#[derive(Default)]
struct Boot {
    elf: Vec<u8>,
    kernel: Option<PathBuf>,
    programs: Vec<(String, PathBuf)>,
}

/// Runs an application; returns the command's exit status.
pub fn run(options: &Run) -> Result<u8> {
    let subject = Subject::read(options)?;
    let prices = if prices::wanted(options, subject.bundle())? {
        // A schedule of prices begins with the machine, not with its build.
        subject.prepare_with_priced()?;
        Some(Prices::open(options)?)
    } else {
        None
    };
    let store = Store::open()?;
    let (name, directory) = store.create(options.name.as_deref(), &options.app)?;
    let _held = store::hold(&directory)?;
    let place = Place { store: &store, name: &name, directory: &directory };
    run_at(options, subject, prices.as_ref(), &place).inspect_err(|_| store::abandon(&directory))
}

/// Where a machine is written down.
struct Place<'s> {
    store: &'s Store,
    name: &'s str,
    directory: &'s Path,
}

fn run_at(options: &Run, subject: Subject, prices: Option<&Prices>, place: &Place<'_>) -> Result<u8> {
    let Place { store, name, directory } = *place;
    let namespace = private_network(options, name)?;
    let mut networks = networks(options, subject.bundle(), namespace.as_ref());
    let mut subject = subject;
    let earning = subject.earning();
    let server = subject.server();
    if let Some(prices) = prices {
        subject = subject.with_priced(&prices.feed(name, networks.len(), namespace.as_ref())?)?;
        networks.push(Network::default());
    }
    let boot = subject.pack()?;
    let accelerator = choose_accelerator(options, store)?;
    let image = directory.join("image");
    std::fs::write(&image, &boot.elf).with_context(|| format!("cannot write {}", image.display()))?;
    let mut config = MachineConfig { networks, ..configure(options, &boot, accelerator, image)? };
    // Until the machine has ended.
    let _meter = match (prices, server) {
        (Some(prices), Some(server)) => {
            prices.meter(name, &server, namespace.as_ref(), directory, &mut config)?
        }
        _ => None,
    };
    if let Some(port) = config.debugger {
        debugger::write_script(directory, name, port, boot.kernel.as_deref())?;
    }
    let provider = prices.map(Prices::url);
    let record = |process| Record {
        provider: provider.clone(),
        ..record(options, name, &config, process, boot.programs.clone())
    };
    if options.detach {
        let process = identify(Qemu.start_detached(&config, directory)?)?;
        let record = record(process);
        store::save(directory, &record)?;
        namespace.into_iter().for_each(Namespace::leave);
        announce(options, &record)?;
        return Ok(0);
    }
    let signal = attend::watch_signals()?;
    let machine = Qemu.start(&config, directory)?;
    let process = ProcessIdentity::of(machine.process_id());
    if let Some(process) = process {
        store::save(directory, &record(process))?;
    }
    let mut audience: Box<dyn Audience> = match prices {
        Some(prices) if options.watch => Box::new(Watch::new(name, earning, &prices.url())?),
        _ => Box::new(Console),
    };
    attend::attend(machine, name, directory, &signal, audience.as_mut())
}

impl Subject {
    /// Reads what is asked for.
    fn read(options: &Run) -> Result<Subject> {
        let path = Path::new(&options.app);
        if path.is_file() && is_elf(path)? {
            if !options.arguments.is_empty() {
                bail!("{} is an image: its arguments were given when it was built", options.app);
            }
            let elf = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
            return Ok(Subject::Image(elf));
        }
        let project = Project::find()?;
        let arguments = (!options.arguments.is_empty()).then_some(options.arguments.as_slice());
        let bundle = project.bundle(&project.manifest_path(&options.app)?, arguments)?;
        Ok(Subject::Bundle(Box::new((project, bundle))))
    }

    /// Its applications, if they are known.
    fn bundle(&self) -> Option<&BundleManifest> {
        match self {
            Subject::Image(_) => None,
            Subject::Bundle(bundle) => Some(&bundle.1),
        }
    }

    /// The application that the first network device is for.
    fn server(&self) -> Option<String> {
        let mut applications = self.bundle().into_iter().flat_map(|bundle| &bundle.applications);
        applications
            .find(|application| wants_network(application))
            .map(|application| application.name.clone())
    }

    /// Names of the applications that earn.
    fn earning(&self) -> Vec<String> {
        let applications = self.bundle().into_iter().flat_map(|bundle| &bundle.applications);
        let earning = applications.filter(|application| application.utility.is_some());
        earning.map(|application| application.name.clone()).collect()
    }

    /// Builds what is to be packed, with `priced`.
    fn prepare_with_priced(&self) -> Result<()> {
        match self {
            Subject::Image(_) => Ok(()),
            Subject::Bundle(bundle) => {
                let (project, bundle) = bundle.as_ref();
                project.prepare(bundle)?;
                project.prepare(&project.bundle(&project.manifest_path(PRICED)?, None)?)
            }
        }
    }

    fn with_priced(self, feed: &PriceFeed) -> Result<Subject> {
        match self {
            Subject::Image(_) => Ok(self),
            Subject::Bundle(bundle) => {
                let (project, bundle) = *bundle;
                let bundle = project.with_priced(bundle, feed)?;
                Ok(Subject::Bundle(Box::new((project, bundle))))
            }
        }
    }

    /// Builds what is to boot.
    fn pack(self) -> Result<Boot> {
        match self {
            Subject::Image(elf) => Ok(Boot { elf, ..Boot::default() }),
            Subject::Bundle(bundle) => {
                let (project, bundle) = *bundle;
                let built = project.pack(bundle, Symbols::Keep)?;
                Ok(Boot { elf: built.image.elf, kernel: Some(built.kernel), programs: built.programs })
            }
        }
    }
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
        allocation: if options.preallocate { Allocation::Immediate } else { Allocation::OnDemand },
        command_line: format!("log={}", level_name(options.log)),
        iommu: options.iommu,
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

/// The network devices that the applications ask for. Says where their ports are to be found.
fn networks(options: &Run, bundle: Option<&BundleManifest>, namespace: Option<&Namespace>) -> Vec<Network> {
    if let Some(namespace) = namespace {
        return vec![namespace.network()];
    }
    let Forwards { forwards, notes } = ports::forwards(&options.publish, bundle, ports::is_taken);
    notes.iter().for_each(|note| eprintln!("{note}"));
    user_network(forwards, bundle).into_iter().collect()
}

/// A network device, if a port is forwarded or an application may have one.
fn user_network(forwards: Vec<Forward>, bundle: Option<&BundleManifest>) -> Option<Network> {
    let wanted = bundle.iter().flat_map(|bundle| &bundle.applications).any(wants_network);
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
        provider: None,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forwarded_port_brings_a_network() {
        assert_eq!(user_network(Vec::new(), None), None);
        let forward = Forward { address: None, host: 8080, guest: 80, udp: true };
        let network = user_network(vec![forward], None).expect("a network");
        assert_eq!(network.forwards(), [forward]);
    }
}
