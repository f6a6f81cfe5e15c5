//! The application `linux` with a program of Linux: how it is told what it runs.

use super::{BundleManifest, Files};
use crate::root::{Command, Root};
use nom_abi::image::DeviceSelector;

/// Before the names of the program's own variables: the others are nom's.
const VARIABLE_PREFIX: &str = "env.";
/// What commands are found by, as Docker has it.
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Bytes of files that lie in the image, and with it in memory; more are read from a disk.
const IMAGE_BYTES_MAX: u64 = 64 << 20;
/// A disk: a virtio device of type 2 (virtio 1.2, section 5), of any class.
const DISK: DeviceSelector = DeviceSelector { vendor: 0x1af4, device: 0x1042, class: 0xff_ffff };
/// Memory of a machine beside the root's files, which are there once.
const MEMORY_BYTES: u64 = 256 << 20;
/// Memory of a machine whose applications hold little.
const SMALL_BYTES: u64 = 64 << 20;
/// What a machine takes beside what larger ones may hold: the kernel, the image, the firmware.
const BESIDE_BYTES: u64 = 32 << 20;
/// Machines get whole pieces of this.
const PIECE_BYTES: u64 = 16 << 20;
/// What an application may hold at most; there is no more in a machine.
const HELD_BYTES_MAX: u64 = 64 << 30;

impl Command {
    /// A program with these arguments, as root, with an environment as Docker's.
    pub fn plain(path: &str, arguments: &[String]) -> Command {
        Command {
            program: path.to_owned(),
            arguments: arguments.to_vec(),
            environment: vec![PATH.to_owned(), "HOME=/root".to_owned()],
            directory: "/".to_owned(),
            user: (0, 0),
            stop_signal: None,
        }
    }
}

impl BundleManifest {
    /// The same bundle, whose first application is the one that runs programs of Linux, with this one.
    pub fn with_root(mut self, root: Root, command: &Command) -> BundleManifest {
        let application = &mut self.applications[0];
        application.arguments = [std::slice::from_ref(&command.program), &command.arguments].concat();
        application.memory = HELD_BYTES_MAX;
        for variable in &command.environment {
            if let Some((name, value)) = variable.split_once('=') {
                application.environment.insert(format!("{VARIABLE_PREFIX}{name}"), value.to_owned());
            }
        }
        let (user, group) = command.user;
        application.environment.insert("user".to_owned(), format!("{user}:{group}"));
        application.environment.insert("directory".to_owned(), command.directory.clone());
        let signal = command.stop_signal.iter();
        let signal = signal.map(|signal| ("stop_signal".to_owned(), signal.to_string()));
        application.environment.extend(signal);
        application.files =
            Some(Files { mounts: Vec::new(), newest: None, root: Some(root), on_disk: false });
        self
    }

    /// The same, but its files are to be on a disk of the machine, and not in its image, if they are many.
    pub fn with_large_root_on_disk(mut self) -> BundleManifest {
        if self.root().is_some_and(|root| root.bytes() > IMAGE_BYTES_MAX) {
            let application = &mut self.applications[0];
            application.environment.insert("root".to_owned(), "disk".to_owned());
            application.devices.push(DISK);
            application.files = application.files.take().map(|files| Files { on_disk: true, ..files });
        }
        self
    }

    /// The files that a machine is to have on a disk.
    pub fn disk(&self) -> Option<&Files> {
        self.applications[0].files.as_ref().filter(|files| files.on_disk)
    }

    /// The files of the program of Linux that the first application runs, if it runs one.
    pub fn root(&self) -> Option<&Root> {
        self.applications[0].files.as_ref()?.root.as_ref()
    }

    /// The name that a variable of the first application's environment has: a Linux program's are its own.
    pub fn variable_name(&self, name: &str) -> String {
        match self.root() {
            Some(_) => format!("{VARIABLE_PREFIX}{name}"),
            None => name.to_owned(),
        }
    }

    /// Bytes of memory that a machine is to have, unless somebody says otherwise: with a program of Linux so
    /// many beside its files, else so many that its applications can hold what their manifests say.
    pub fn machine_memory(&self) -> u64 {
        if let Some(root) = self.root() {
            let files = if self.disk().is_some() { root.index_bytes() } else { root.bytes() };
            return (MEMORY_BYTES + files).next_multiple_of(PIECE_BYTES);
        }
        let held = self.applications.iter().fold(0, |held: u64, one| held.saturating_add(one.memory));
        match held {
            ..=SMALL_BYTES => SMALL_BYTES,
            // Who may hold all there is has to say how much that is.
            HELD_BYTES_MAX.. => SMALL_BYTES,
            _ => (held + BESIDE_BYTES).next_multiple_of(PIECE_BYTES),
        }
    }
}
