//! What a test boots.

use crate::vm::{Life, Vm};
use nom_build::{Project, World};
use nom_image::Symbols;
use nom_image::manifest::Mount;
use nom_vmm::{Accelerator, Iommu, MachineConfig, MachineKind, Namespace, Network, Qemu, Session, Vmm};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

/// A machine to boot.
#[derive(Clone, Debug)]
pub struct Guest {
    manifest: PathBuf,
    arguments: Option<Vec<String>>,
    symbols: Symbols,
    files: Vec<Mount>,
    kernel: &'static str,
    config: MachineConfig,
}

/// Package and program of the kernel that ships.
const KERNEL: &str = "nom-kernel";

/// How long anything may take in a machine whose time is counted in instructions: as long as a busy computer
/// needs to translate them all.
const PATIENCE_COUNTED: Duration = Duration::from_secs(400);

/// Images that this process has built, by manifest, arguments, whether they have symbols, and kernel.
type Images = HashMap<(PathBuf, Option<Vec<String>>, bool, &'static str), Arc<[u8]>>;

static IMAGES: LazyLock<Mutex<Images>> = LazyLock::new(Mutex::default);
static PROJECT: LazyLock<Project> =
    LazyLock::new(|| Project::find().expect("tests run in a checkout of nom"));
static ACCELERATOR: LazyLock<Accelerator> =
    LazyLock::new(|| nom_vmm::accelerator::choose(PROJECT.target()).accelerator);

impl Guest {
    /// The applications of a manifest, whose path counts from the project's root.
    pub fn bundle(manifest: &str) -> Guest {
        let config =
            MachineConfig { accelerator: *ACCELERATOR, ..MachineConfig::new(PathBuf::from("image")) };
        Guest {
            manifest: PROJECT.root().join(manifest),
            arguments: None,
            symbols: Symbols::Keep,
            files: Vec::new(),
            kernel: KERNEL,
            config,
        }
    }

    /// An application in `apps/`.
    pub fn app(name: &str) -> Guest {
        Guest::bundle(&format!("apps/{name}"))
    }

    /// Arguments of the first application, in place of those in its manifest.
    pub fn arguments(mut self, arguments: &[&str]) -> Guest {
        self.arguments = Some(arguments.iter().map(|argument| (*argument).to_owned()).collect());
        self
    }

    /// The files of a directory, in place of those in its manifest.
    pub fn files(mut self, directory: &Path) -> Guest {
        self.files.push(Mount { directory: directory.to_owned(), at: "/".to_owned() });
        self
    }

    /// Behind the kernel that looks at itself before applications run.
    pub fn selfcheck(mut self) -> Guest {
        self.kernel = "nom-kernel-selfcheck";
        self
    }

    /// Without the symbols behind readable backtraces.
    pub fn without_symbols(mut self) -> Guest {
        self.symbols = Symbols::Omit;
        self
    }

    /// Number of processors.
    pub fn cpus(mut self, cores: u32) -> Guest {
        self.config.cores = cores;
        self
    }

    /// Memory, as on the command line: `64M`.
    pub fn memory(mut self, size: &str) -> Guest {
        self.config.memory = size.parse().unwrap_or_else(|error| panic!("memory `{size}`: {error}"));
        self
    }

    /// Chipset.
    pub fn machine(mut self, kind: MachineKind) -> Guest {
        self.config.kind = kind;
        self
    }

    /// DMA remapping unit.
    pub fn iommu(mut self, iommu: Iommu) -> Guest {
        self.config.iommu = iommu;
        self
    }

    /// Least important messages of the kernel to show: `error`, `warn`, `info` or `debug`.
    pub fn log(mut self, level: &str) -> Guest {
        self.config.command_line = format!("log={level}");
        self
    }

    /// The kernel's whole command line.
    pub fn command_line(mut self, text: &str) -> Guest {
        self.config.command_line = text.to_owned();
        self
    }

    /// One more device, as QEMU's `-device` takes it.
    pub fn device(mut self, device: &str) -> Guest {
        self.config.devices.push(device.to_owned());
        self
    }

    /// Empty slots, for devices that are plugged in later.
    pub fn hotplug_slots(mut self, slots: u32) -> Guest {
        self.config.hotplug_slots = slots;
        self
    }

    /// One more network device, on QEMU's user-mode network.
    pub fn network(mut self) -> Guest {
        self.config.networks.push(Network::default());
        self
    }

    /// One more network device, on the TAP device of a namespace.
    pub fn tap(mut self, namespace: &Namespace) -> Guest {
        self.config.networks.push(namespace.network());
        self
    }

    /// QEMU's translator even where there is KVM: for what must be the same in every run.
    pub fn emulated(mut self) -> Guest {
        self.config.accelerator = Accelerator::Tcg;
        self
    }

    /// More arguments for QEMU, separated by spaces.
    pub fn qemu(mut self, arguments: &str) -> Guest {
        self.config.extra_arguments.extend(arguments.split_whitespace().map(str::to_owned));
        self
    }

    /// Starts the machine.
    pub fn boot(mut self) -> Vm {
        let image = self.image();
        let directory = tempfile::tempdir().expect("a temporary directory");
        self.config.image = directory.path().join("image");
        std::fs::write(&self.config.image, image).expect("the image is written");
        let machine = Qemu.start(&self.config, directory.path()).expect("QEMU starts");
        let vm = Vm::new(Session::new(machine), directory);
        let is_counted = self.config.extra_arguments.iter().any(|word| word == "-icount");
        if is_counted { vm.patience(PATIENCE_COUNTED) } else { vm }
    }

    /// Starts the machine and waits for its end.
    pub fn run(self) -> Life {
        self.boot().finish()
    }

    /// Writes the image that it would boot.
    pub fn write_image(&self, path: &Path) {
        std::fs::write(path, self.image()).expect("the image is written");
    }

    /// Builds the image, or takes the one that was built before.
    fn image(&self) -> Arc<[u8]> {
        if !self.files.is_empty() {
            // They may have changed.
            return self.build().into();
        }
        let key = (self.manifest.clone(), self.arguments.clone(), self.symbols == Symbols::Keep, self.kernel);
        // A build that failed in another test leaves the table as it was.
        let mut images = IMAGES.lock().unwrap_or_else(PoisonError::into_inner);
        images.entry(key).or_insert_with(|| self.build().into()).clone()
    }

    fn build(&self) -> Vec<u8> {
        let bundle = PROJECT.bundle(&self.manifest, self.arguments.as_deref());
        let built = bundle.and_then(|bundle| {
            let bundle = bundle.with_files(&self.files).expect("an application with files");
            let kernel = PROJECT.build(World::Kernel, self.kernel)?.join(self.kernel);
            PROJECT.pack_behind(kernel, bundle, self.symbols)
        });
        built.unwrap_or_else(|error| panic!("{}: {error:#}", self.manifest.display())).image.elf
    }
}
