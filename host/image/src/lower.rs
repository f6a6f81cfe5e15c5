//! Manifest and programs together: everything about the applications that the image needs.

use crate::error::{Error, Result};
use crate::manifest::{Application, BundleManifest, Program};
use crate::program;
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
        let program = match programs.get(&manifest.program) {
            Some(known) => known.clone(),
            None => {
                let path = resolve(&manifest.program).map_err(|source| Error::Resolve {
                    place: manifest.places.program.clone(),
                    program: manifest.program.to_string(),
                    source,
                })?;
                let program = Rc::new(read(&path)?);
                programs.insert(&manifest.program, program.clone());
                program
            }
        };
        check_start(manifest)?;
        check_memory(bundle, manifest, &program)?;
        applications.push(LoweredApplication { manifest: manifest.clone(), program });
    }
    Ok(Lowered { applications })
}

fn read(path: &Path) -> Result<program::Program> {
    let data = std::fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
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
fn check_memory(
    bundle: &BundleManifest,
    application: &Application,
    program: &program::Program,
) -> Result<()> {
    let parts = [
        ("program", program.segments.iter().map(program::Segment::frames).sum()),
        ("stack", application.stack / FRAME_BYTES),
        ("start page", start_bytes(application).div_ceil(FRAME_BYTES)),
        ("page tables", table_frames(bundle, application, program)),
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
fn table_frames(bundle: &BundleManifest, application: &Application, program: &program::Program) -> u64 {
    const TABLE_BYTES: u64 = 2 << 20;
    let pages = |segment: &program::Segment| {
        segment.address / TABLE_BYTES..(segment.address + segment.memory_bytes).div_ceil(TABLE_BYTES)
    };
    let image: BTreeSet<u64> = program.segments.iter().flat_map(pages).collect();
    let [image, stack] =
        [image.len() as u64, application.stack.div_ceil(TABLE_BYTES)].map(|tables| 2 + tables);
    let [start, board] = [3, 3];
    // Channels are 1 GiB apart, so that each has a table of the level above too.
    let channels: u64 = bundle.channels_of(application).map(|bytes| 1 + bytes.div_ceil(TABLE_BYTES)).sum();
    1 + image + stack + start + board + channels + u64::from(channels > 0)
}
