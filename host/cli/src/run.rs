//! `nom run`.

use crate::arguments::{LogLevel, NetworkChoice, Run};
use crate::attend::{self, Audience, Console};
use crate::background;
use crate::debugger;
use crate::launch::Launch;
use crate::mounts::given_files;
use crate::network::{self, Attachment};
use crate::port_holder;
use crate::ports;
use crate::prices::{self, Prices};
use crate::store::{self, Record, Store};
use crate::supervise::{Supervised, Supervision};
use crate::times::Timed;
use crate::watch::Watch;
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use nom_build::prices::PRICED;
use nom_build::{PriceFeed, Project};
use nom_image::Symbols;
use nom_image::manifest::BundleManifest;
use nom_vmm::accelerator::{self, Choice};
use nom_vmm::qemu::ProcessIdentity;
use nom_vmm::{Accelerator, Allocation, Forward, MachineConfig, Network};
use std::io::Read;
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
    kernel: Option<PathBuf>,
    programs: Vec<(String, PathBuf)>,
}

/// Runs an application; returns the command's exit status.
pub fn run(options: &Run) -> Result<u8> {
    let store = Store::open()?;
    ports::check(&options.publish, |port| port_holder::holder(&store, port))?;
    if options.detach && !options.supervisor {
        let arguments = std::env::args_os().skip(2); // Behind `nom run`.
        return background::announce(background::spawn("run", arguments)?, options.json);
    }
    let subject = Subject::read(options)?;
    let prices = if prices::wanted(options, subject.bundle())? {
        // A schedule of prices begins with the machine, not with its build.
        subject.prepare_with_priced()?;
        Some(Prices::open(options)?)
    } else {
        None
    };
    let (name, directory) = store.create(options.name.as_deref(), &options.app)?;
    let _held = store::hold(&directory)?;
    let place = Place { store: &store, name: &name, directory: &directory };
    let status = run_at(options, subject, prices.as_ref(), &place);
    store::abandon(&directory);
    status
}

/// Where a machine is written down.
struct Place<'s> {
    store: &'s Store,
    name: &'s str,
    directory: &'s Path,
}

fn run_at(options: &Run, mut subject: Subject, prices: Option<&Prices>, place: &Place<'_>) -> Result<u8> {
    let Place { store, name, directory } = *place;
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
    let server = subject.server();
    if let Some(prices) = prices {
        subject = subject.with_priced(&prices.feed(name, networks.len(), attachment.namespace())?)?;
        networks.push(Network::default());
    }
    let boot = subject.pack()?;
    let accelerator = choose_accelerator(options, store)?;
    let image = directory.join("image");
    std::fs::write(&image, &boot.elf).with_context(|| format!("cannot write {}", image.display()))?;
    let mut config = MachineConfig { networks, ..configure(options, &boot, accelerator, image)? };
    // For the next start, which has no debugger and no meter of this process.
    Launch { config: MachineConfig { debugger: None, ..config.clone() }, published: published.clone() }
        .save(directory)?;
    // Until the machine has ended.
    let _meter = match (prices, server) {
        (Some(prices), Some(server)) => prices.meter(name, &server, &attachment, directory, &mut config)?,
        _ => None,
    };
    if let Some(port) = config.debugger {
        debugger::write_script(directory, name, port, boot.kernel.as_deref())?;
    }
    if let Some(cause) = attend::take_signal(&signal) {
        return Ok(cause.status());
    }
    let launch = Launch { config, published };
    attachment.publish(&launch.published)?;
    let record =
        Record { provider: prices.map(Prices::url), ..record(options, name, &launch, boot.programs)? };
    let audience: Box<dyn Audience> = match prices {
        Some(prices) if options.watch => Box::new(Watch::new(name, earning, &prices.url())?),
        _ => Box::new(Console),
    };
    let supervision = Supervision {
        launch: &launch,
        directory,
        record,
        policy: options.restart,
        background: options.detach,
    };
    let Supervised { status, was_set_up } =
        supervision.run(&mut Timed::new(audience, directory)?, &signal)?;
    if options.detach && !was_set_up {
        // Nobody was told of it, and there is nothing to see.
        std::fs::remove_dir_all(directory)
            .with_context(|| format!("cannot remove {}", directory.display()))?;
    }
    Ok(status)
}

impl Subject {
    /// Reads what is asked for.
    fn read(options: &Run) -> Result<Subject> {
        let path = Path::new(&options.app);
        if path.is_file() && is_elf(path)? {
            if !options.arguments.is_empty() || !options.environment.is_empty() {
                bail!(
                    "{} is an image: its arguments and environment were given when it was built",
                    options.app
                );
            }
            if let Some(given) = options.files.first() {
                bail!("-v {given}: {} is an image: its files were given when it was built", options.app);
            }
            let elf = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
            return Ok(Subject::Image(elf));
        }
        let project = Project::find()?;
        let arguments = (!options.arguments.is_empty()).then_some(options.arguments.as_slice());
        let bundle = project.bundle(&project.manifest_path(&options.app)?, arguments)?;
        let bundle = given_files(bundle, &options.files)?;
        Ok(Subject::Bundle(Box::new((project, bundle))))
    }

    /// Gives the applications what this run has for them.
    fn furnish(&mut self, options: &Run, attachment: &Attachment) -> Result<()> {
        match (self, attachment) {
            (Subject::Bundle(bundle), _) => {
                let bundle = &mut bundle.1;
                attachment.address(bundle);
                bundle.applications[0].environment.extend(options.environment.iter().cloned());
                Ok(())
            }
            (Subject::Image(_), Attachment::Bridge(_)) => {
                bail!("{}: expected a manifest, since an image cannot be told its address", options.app)
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

    /// The application that the first network device is for.
    fn server(&self) -> Option<String> {
        let mut applications = self.bundle().into_iter().flat_map(|bundle| &bundle.applications);
        applications
            .find(|application| network::wants_network(application))
            .map(|application| application.name.clone())
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

fn record(options: &Run, name: &str, launch: &Launch, programs: Vec<(String, PathBuf)>) -> Result<Record> {
    let config = &launch.config;
    let forwards = config.networks.iter().flat_map(Network::forwards).chain(&launch.published);
    let now_ms = store::now_ms();
    Ok(Record {
        name: name.to_owned(),
        app: options.app.clone(),
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
