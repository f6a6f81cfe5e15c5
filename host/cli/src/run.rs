//! `nom run`.

use crate::arguments::{LogLevel, NetworkChoice, Run};
use crate::attend::{self, Audience, Console};
use crate::background;
use crate::debugger;
use crate::launch::Launch;
use crate::linux;
use crate::metering::Device;
use crate::mounts::{given_files, lent_directories};
use crate::network::{self, Attachment};
use crate::port_holder;
use crate::ports;
use crate::prices;
use crate::store::{self, Record, Store};
use crate::strace::Traced;
use crate::supervise::{Supervised, Supervision};
use crate::supply::Supply;
use crate::times::Timed;
use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use nom_build::prices::PRICED;
use nom_build::{PriceFeed, Project};
use nom_image::Symbols;
use nom_image::manifest::BundleManifest;
use nom_vmm::accelerator::{self, Choice};
use nom_vmm::qemu::ProcessIdentity;
use nom_vmm::{Accelerator, Allocation, Forward, MachineConfig, Memory, Network};
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

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
    disk: Option<PathBuf>,
    kernel: Option<PathBuf>,
    programs: Vec<(String, PathBuf)>,
}

/// Runs an application; returns the command's exit status.
pub fn run(options: &Run) -> Result<u8> {
    ensure!(
        !options.interactive && !options.tty,
        "-i, -t: the console of a machine is no terminal that is typed at: give the program its input as \
         arguments or in a file, or run an SSH server in the machine (docs/linux.md)"
    );
    let store = Store::open()?;
    ports::check(&options.publish, |port| port_holder::holder(&store, port))?;
    if options.detach && !options.supervisor {
        let arguments = std::env::args_os().skip(2); // Behind `nom run`.
        return background::announce(background::spawn("run", arguments)?, options.json);
    }
    let subject = Subject::read(options)?;
    let priced = prices::wanted(options, subject.bundle())?;
    if priced {
        // A schedule of prices begins with the machine, not with its build.
        subject.prepare_with_priced()?;
    }
    let (name, directory) = store.create(chosen_name(options)?.as_deref(), options.label())?;
    let _held = store::hold(&directory)?;
    let place = Place { store: &store, name: &name, directory: &directory };
    let has_own_files = subject.bundle().is_some_and(|bundle| bundle.root().is_some());
    let status = run_at(options, subject, priced, &place);
    store::abandon(&directory);
    if options.remove {
        store::remove(&directory)?;
    }
    if has_own_files && matches!(status, Ok(COMMAND_NOT_FOUND)) {
        suggest_missing(options);
    }
    status
}

/// What a shell ends with that does not find a command (POSIX.1-2017, shell command language, 2.8.2).
const COMMAND_NOT_FOUND: u8 = 127;

/// A program whose files were gathered may have wanted one that this computer has.
fn suggest_missing(options: &Run) {
    let takes_all = options.linux.root.is_some() || options.linux.oci.is_some();
    let label = options.label();
    if !takes_all && options.trace.is_none() && Path::new(label).is_file() {
        eprintln!(
            "nom: {label}: a command was not found: `nom strace --missing {label}` says which files of this \
             computer it looked for, and --include takes them along"
        );
    }
}

/// The image of what is to run, before anybody tells it an address or prices, and behind it the first sector
/// of its disk, if it is to have one: that has a sum of all sums of what is on it.
///
/// # Errors
/// What is wrong with it, or does not build.
pub fn image(options: &Run) -> Result<Vec<u8>> {
    let subject = Subject::read(options)?;
    let header = subject.bundle().and_then(BundleManifest::disk).map(nom_image::manifest::Files::disk_header);
    let header = header.transpose()?;
    Ok([subject.pack(None)?.elf, header.unwrap_or_default()].concat())
}

/// The name that is asked for: the machine's keys may have it.
fn chosen_name(options: &Run) -> Result<Option<String>> {
    let known = options.credentials.given()?.map(|keys| keys.name);
    match (&options.name, known) {
        (Some(name), Some(known)) if *name != known => {
            bail!("--name {name}: the keys are of machine `{known}`, expected that name or none")
        }
        (name, known) => Ok(name.clone().or(known)),
    }
}

/// Where a machine is written down.
struct Place<'s> {
    store: &'s Store,
    name: &'s str,
    directory: &'s Path,
}

fn run_at(options: &Run, mut subject: Subject, priced: bool, place: &Place<'_>) -> Result<u8> {
    let Place { store, name, directory } = *place;
    let is_linux = subject.bundle().is_some_and(|bundle| bundle.root().is_some());
    let mut directories = lent_directories(if is_linux { &options.files } else { &[] })?;
    directories.extend(options.trace.iter().map(|trace| trace.lent()));
    if options.network != NetworkChoice::User {
        // What takes long is done before signals are only looked at now and then.
        subject.prepare()?;
    }
    // A signal must not leave a network behind.
    let signal = attend::watch_signals()?;
    // Until the machine has ended.
    let attachment = Attachment::make(options, name)?;
    subject.furnish(options, &attachment)?;
    let (mut networks, published) = attachment.networks(options, subject.bundle());
    let earning = subject.earning();
    let activity = subject.activity();
    let is_metered = !networks.is_empty();
    let mut supply = priced.then(|| Supply::open(options, name, directory)).transpose()?;
    if let Some(supply) = &supply {
        let feed = supply.prices.feed(&supply.keys, networks.len(), attachment.namespace())?;
        subject = subject.with_priced(&feed)?;
        networks.push(Network::default());
    }
    let memory = options.memory.unwrap_or_else(|| default_memory(subject.bundle()));
    let boot = subject.pack(Some(directory))?;
    let accelerator = choose_accelerator(options, store)?;
    let image = directory.join("image");
    write_private(&image, &boot.elf).with_context(|| format!("cannot write {}", image.display()))?;
    let mut config =
        MachineConfig { networks, directories, ..configure(options, memory, &boot, accelerator, image)? };
    // For the next start, which has no debugger and no meter of this process.
    Launch { config: MachineConfig { debugger: None, ..config.clone() }, published: published.clone() }
        .save(directory)?;
    let device = if is_metered { Device::Of(&attachment, directory) } else { Device::None };
    let metering = supply.as_mut().map(|supply| supply.meter(options, &activity, device, &mut config));
    let metering = metering.transpose()?;
    if let Some(port) = config.debugger {
        debugger::write_script(directory, name, port, boot.kernel.as_deref())?;
    }
    if let Some(cause) = attend::take_signal(&signal) {
        return Ok(cause.status());
    }
    let launch = Launch { config, published };
    attachment.publish(&launch.published)?;
    let provider = supply.as_ref().map(|supply| supply.prices.url());
    let record = Record { provider, ..record(options, name, &launch, boot.programs)? };
    let audience = audience(options, supply.as_ref(), name, earning)?;
    let supervision = Supervision {
        launch: &launch,
        directory,
        record,
        policy: options.restart,
        background: options.detach,
        begun: &|process| metering.iter().for_each(|metering| metering.begin(process)),
    };
    let Supervised { status, was_set_up } =
        supervision.run(&mut Timed::new(audience, directory)?, &signal)?;
    if let Some(metering) = metering {
        metering.conclude(|line| eprintln!("nom: {name}: {line}"));
    }
    if options.detach && !was_set_up {
        // Nobody was told of it, and there is nothing to see.
        store::remove(directory)?;
    }
    Ok(status)
}

/// How much memory a machine gets that nobody says anything of.
fn default_memory(bundle: Option<&BundleManifest>) -> Memory {
    let bytes = bundle.map(BundleManifest::machine_memory);
    bytes.and_then(|bytes| Memory::from_bytes(bytes).ok()).unwrap_or(Memory::DEFAULT)
}

/// Who sees what the machine says.
fn audience(
    options: &Run,
    supply: Option<&Supply>,
    name: &str,
    earning: Vec<String>,
) -> Result<Box<dyn Audience>> {
    let audience: Box<dyn Audience> = match supply {
        Some(supply) if options.watch => Box::new(supply.watch(name, earning)?),
        _ => Box::new(Console),
    };
    Ok(match &options.trace {
        Some(trace) => Box::new(Traced::new(audience, trace)?),
        None => audience,
    })
}

/// A file for its owner alone: keys are in the environment of `priced`.
fn write_private(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)?.write_all(bytes)
}

impl Subject {
    /// Reads what is asked for.
    fn read(options: &Run) -> Result<Subject> {
        let path = Path::new(options.label());
        let project = Project::find()?;
        let sources = (&options.linux, &options.contract);
        if let Some(bundle) = linux::subject(&project, options.app.as_deref(), &options.arguments, sources)? {
            let bundle = bundle.with_large_root_on_disk();
            let mut bundle = linux::with_volumes(bundle, &options.files);
            if let Some(trace) = &options.trace {
                trace.tell(&mut bundle, options.files.len())?;
            }
            return Ok(Subject::Bundle(Box::new((project, bundle))));
        }
        if path.is_file() && is_elf(path)? {
            if !options.arguments.is_empty() || !options.variables.is_empty() || options.ip.is_some() {
                bail!(
                    "{} is an image: its arguments and environment were given when it was built",
                    options.label()
                );
            }
            if let Some(given) = options.files.first() {
                bail!("-v {given}: {} is an image: its files were given when it was built", options.label());
            }
            options.contract.refuse(options.label())?;
            let elf = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
            return Ok(Subject::Image(elf));
        }
        ensure!(options.trace.is_none(), "{}: expected the path of a Linux program", options.label());
        let arguments = (!options.arguments.is_empty()).then_some(options.arguments.as_slice());
        let bundle = options.contract.bundle(&project.manifest_path(options.label())?, arguments)?;
        let bundle = given_files(bundle, &options.files)?;
        Ok(Subject::Bundle(Box::new((project, bundle))))
    }

    /// Gives the applications what this run has for them.
    fn furnish(&mut self, options: &Run, attachment: &Attachment) -> Result<()> {
        match (self, attachment) {
            (Subject::Bundle(bundle), _) => {
                let bundle = &mut bundle.1;
                attachment.address(bundle);
                let given = options.variables.all(|name| std::env::var(name).ok())?.into_iter();
                let given: Vec<_> = given.map(|(name, value)| (bundle.variable_name(&name), value)).collect();
                let environment = &mut bundle.applications[0].environment;
                environment.extend(options.ip.iter().map(|ip| ("ip".to_owned(), ip.clone())));
                environment.extend(given);
                Ok(())
            }
            (Subject::Image(_), Attachment::Bridge(_)) => {
                bail!("{}: expected a manifest, since an image cannot be told its address", options.label())
            }
            (Subject::Image(_), _) => Ok(()),
        }
    }

    /// Its applications, if they are known.
    fn bundle(&self) -> Option<&BundleManifest> {
        match self {
            Subject::Image(_) => None,
            Subject::Bundle(bundle) => Some(&bundle.1),
        }
    }

    /// What the machine is charged for: the application that the first network device is for, or the first.
    fn activity(&self) -> String {
        let applications = || self.bundle().into_iter().flat_map(|bundle| &bundle.applications);
        let server = applications().find(|application| network::wants_network(application));
        server.or(applications().next()).map(|application| application.name.clone()).unwrap_or_default()
    }

    /// Names of the applications that earn.
    fn earning(&self) -> Vec<String> {
        let applications = self.bundle().into_iter().flat_map(|bundle| &bundle.applications);
        let earning = applications.filter(|application| application.utility.is_some());
        earning.map(|application| application.name.clone()).collect()
    }

    /// Builds what is to be packed.
    fn prepare(&self) -> Result<()> {
        match self {
            Subject::Image(_) => Ok(()),
            Subject::Bundle(bundle) => bundle.0.prepare(&bundle.1),
        }
    }

    /// Builds what is to be packed, with `priced`.
    fn prepare_with_priced(&self) -> Result<()> {
        match self {
            Subject::Image(_) => Ok(()),
            Subject::Bundle(bundle) => {
                let project = &bundle.0;
                self.prepare()?;
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

    /// Writes the disk that it is to have, if it is to have one.
    fn write_disk(&self, directory: &Path) -> Result<Option<PathBuf>> {
        let Some(files) = self.bundle().and_then(BundleManifest::disk) else { return Ok(None) };
        let path = directory.join("disk");
        files.write_disk(&path)?;
        Ok(Some(path))
    }

    /// Builds what is to boot, with the disk that it is to have, if it is to have one, in a directory.
    fn pack(self, directory: Option<&Path>) -> Result<Boot> {
        let disk = directory.map(|directory| self.write_disk(directory)).transpose()?.flatten();
        match self {
            Subject::Image(elf) => Ok(Boot { elf, ..Boot::default() }),
            Subject::Bundle(bundle) => {
                let (project, bundle) = *bundle;
                let built = project.pack(bundle, Symbols::Keep)?;
                let (elf, kernel) = (built.image.elf, Some(built.kernel));
                Ok(Boot { elf, disk, kernel, programs: built.programs })
            }
        }
    }
}

/// Whether a file is an image rather than a manifest.
///
/// # Errors
/// If it cannot be read.
pub fn is_elf(path: &Path) -> Result<bool> {
    let mut magic = Vec::new();
    let file = std::fs::File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    file.take(4).read_to_end(&mut magic)?;
    Ok(magic == b"\x7fELF")
}

fn choose_accelerator(options: &Run, store: &Store) -> Result<Accelerator> {
    let choice = match options.accel.fixed() {
        Some(accelerator) => Choice { accelerator, reason: "asked for".to_owned(), advice: None },
        None => accelerator::choose(store.root()),
    };
    eprintln!("{choice}");
    Ok(choice.accelerator)
}

fn configure(
    options: &Run,
    memory: Memory,
    boot: &Boot,
    accelerator: Accelerator,
    image: PathBuf,
) -> Result<MachineConfig> {
    let debugger = options.gdb.then(debugger::free_port).transpose()?;
    let config = MachineConfig {
        kind: options.machine,
        accelerator,
        cores: options.cpus,
        memory,
        allocation: if options.preallocate { Allocation::Immediate } else { Allocation::OnDemand },
        // A debugger expects the kernel where it is linked.
        command_line: format!("log={}{}", level_name(options.log), if options.gdb { " nokaslr" } else { "" }),
        iommu: options.iommu,
        devices: options.devices.clone(),
        disk: boot.disk.clone(),
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

fn record(options: &Run, name: &str, launch: &Launch, programs: Vec<(String, PathBuf)>) -> Result<Record> {
    let config = &launch.config;
    let forwards = config.networks.iter().flat_map(Network::forwards).chain(&launch.published);
    let now_ms = store::now_ms();
    Ok(Record {
        name: name.to_owned(),
        app: options.label().to_owned(),
        // Until it has one of its own.
        process: ProcessIdentity::of(std::process::id()).context("this process is not in /proc")?,
        supervisor: None,
        created_ms: now_ms,
        started_ms: now_ms,
        finished_ms: None,
        restart: options.restart,
        restarts: 0,
        group: options.group.clone(),
        cpus: config.cores,
        memory: config.memory,
        machine: config.kind,
        accelerator: config.accelerator,
        ports: forwards.map(Forward::to_string).collect(),
        detached: options.detach,
        provider: None,
        programs,
    })
}
