//! Manifest and programs together: everything about the applications that the image needs.

use crate::error::{Error, Result};
use crate::manifest::{Application, BundleManifest, FILES, Files, Program};
use crate::program::{self, Segment};
use nom_abi::memory::FRAME_BYTES;
use nom_abi::start::{START_BYTES_MAX, Start};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The caller's reason why it has no ELF file for a program.
pub type ResolveError = Box<dyn std::error::Error + Send + Sync>;

/// A bundle whose programs have been read and checked.
#[derive(Clone)]
pub struct Lowered {
    pub(crate) applications: Vec<LoweredApplication>,
}

#[derive(Clone)]
pub(crate) struct LoweredApplication {
    pub manifest: Application,
    pub program: Rc<program::Program>,
    /// The archive of its files, on the pages behind the program.
    pub files: Option<Segment>,
}

impl LoweredApplication {
    /// What is mapped, by ascending address.
    pub fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.program.segments.iter().chain(&self.files)
    }

    /// Bytes of address space that it spans.
    pub fn image_bytes(&self) -> u64 {
        self.program.image_bytes + self.files.as_ref().map_or(0, |files| files.memory_bytes)
    }
}

impl fmt::Debug for Lowered {
    /// The manifests without the programs' contents.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.applications.iter().map(|app| &app.manifest)).finish()
    }
}

/// Reads and checks each program of the bundle; `resolve` gives the ELF file of a program and is asked once
/// for each.
///
/// # Errors
/// A program that cannot be had, read or run as an application; arguments that are too long; a memory cap
/// under which the application could not start.
pub fn lower(
    bundle: &BundleManifest,
    resolve: impl Fn(&Program) -> std::result::Result<PathBuf, ResolveError>,
) -> Result<Lowered> {
    let mut programs: BTreeMap<&Program, Rc<program::Program>> = BTreeMap::new();
    let mut applications = Vec::new();
    for manifest in &bundle.applications {
        // Before the program, which may have to be built.
        let archive =
            manifest.files.as_ref().filter(|files| !files.on_disk).map(Files::archive).transpose()?;
        let program = match programs.get(&manifest.program) {
            Some(known) => known.clone(),
            None => {
                let path = resolve(&manifest.program).map_err(|reason| Error::Resolve {
                    place: manifest.places.program.clone(),
                    program: manifest.program.to_string(),
                    reason,
                })?;
                let program = Rc::new(read(&path)?);
                programs.insert(&manifest.program, program.clone());
                program
            }
        };
        let application = with_files(manifest, program, archive);
        check_start(&application.manifest)?;
        check_memory(bundle, &application)?;
        applications.push(application);
    }
    Ok(Lowered { applications })
}

/// The application with the archive of its files, whose length its environment tells.
fn with_files(
    manifest: &Application,
    program: Rc<program::Program>,
    archive: Option<Vec<u8>>,
) -> LoweredApplication {
    let mut manifest = manifest.clone();
    let bytes = archive.as_ref().map(|archive| archive.len().to_string());
    manifest.environment.extend(bytes.map(|bytes| (FILES.to_owned(), bytes)));
    let files = archive.map(|archive| Segment::read_only(program.image_bytes, archive));
    LoweredApplication { manifest, program, files }
}

fn read(path: &Path) -> Result<program::Program> {
    let data = std::fs::read(path).map_err(|reason| Error::Read { path: path.to_owned(), reason })?;
    program::Program::parse(path, &data)
}

/// Bytes of the start page with its strings.
fn start_bytes(application: &Application) -> u64 {
    (size_of::<Start>() + application.argument_bytes().len() + application.environment_bytes().len()) as u64
}

fn check_start(application: &Application) -> Result<()> {
    let bytes = start_bytes(application);
    let most = START_BYTES_MAX as u64;
    if bytes <= most {
        return Ok(());
    }
    Err(Error::Manifest {
        place: application.places.arguments.clone(),
        problem: format!(
            "`arguments` and `environment` of `{}` take {} bytes, expected at most {}",
            application.name,
            bytes - size_of::<Start>() as u64,
            most - size_of::<Start>() as u64
        ),
    })
}

/// Refuses a memory cap under which the kernel could not even start the application.
fn check_memory(bundle: &BundleManifest, lowered: &LoweredApplication) -> Result<()> {
    let application = &lowered.manifest;
    let parts = [
        ("program", lowered.segments().map(Segment::frames).sum()),
        ("stack", application.stack / FRAME_BYTES),
        ("start page", start_bytes(application).div_ceil(FRAME_BYTES)),
        ("page tables", table_frames(bundle, lowered)),
        ("state of its first core", 1),
    ];
    let needed: u64 = parts.iter().map(|(_, frames)| frames).sum();
    if needed <= application.memory / FRAME_BYTES {
        return Ok(());
    }
    let kib = |frames: u64| frames * FRAME_BYTES / 1024;
    let parts = parts.map(|(part, frames)| format!("{part} {}", kib(frames))).join(", ");
    Err(Error::Manifest {
        place: application.places.memory.clone(),
        problem: format!(
            "`memory`: {} KiB, expected at least {} KiB, which `{}` needs to start ({parts})",
            application.memory / 1024,
            kib(needed),
            application.name,
        ),
    })
}

/// Fewest page tables of its address space: a root, and in each window of [`nom_abi::layout`] two levels
/// above tables that span 2 MiB each.
fn table_frames(bundle: &BundleManifest, lowered: &LoweredApplication) -> u64 {
    let application = &lowered.manifest;
    const TABLE_BYTES: u64 = 2 << 20;
    let pages = |segment: &Segment| {
        segment.address / TABLE_BYTES..(segment.address + segment.memory_bytes).div_ceil(TABLE_BYTES)
    };
    let image: BTreeSet<u64> = lowered.segments().flat_map(pages).collect();
    let [image, stack] =
        [image.len() as u64, application.stack.div_ceil(TABLE_BYTES)].map(|tables| 2 + tables);
    let [start, board] = [3, 3];
    // Channels are 1 GiB apart, so that each has a table of the level above too.
    let channels: u64 = bundle.channels_of(application).map(|bytes| 1 + bytes.div_ceil(TABLE_BYTES)).sum();
    1 + image + stack + start + board + channels + u64::from(channels > 0)
}
