//! From application manifests and ELF files to one bootable image.
//!
//! ```text
//! app.toml, bundle.toml --manifest::load--> BundleManifest --lower--> Lowered --pack--> Image (an ELF file)
//!                                            program ELFs ----^      loader, kernel ELF --^
//! ```
//!
//! Every mistake in an input is an [`Error`] that names the file, the place in it and what was expected
//! there. The image's format is [`nom_abi::image`]; the fields of a manifest are in `docs/manifest.md`,
//! which is made from the same table as the parser.
#![forbid(unsafe_code)]

mod bundle;
mod calls;
mod elf;
mod error;
pub mod files;
mod kernel;
mod loader;
mod lower;
pub mod manifest;
pub mod oci;
mod pack;
mod places;
mod program;
mod relocations;
mod report;
mod root;
mod start;
mod symbols;

pub use calls::CallsFound;
pub use error::{Error, Place, Result};
pub use kernel::{image_end, is_bootable};
pub use lower::{Lowered, lower};
pub use manifest::{BundleManifest, Program};
pub use oci::OciImage;
pub use pack::{Compression, Image, Packing, pack};
pub use report::{ImageReport, PartReport};
pub use root::{Command, Root};
pub use start::{StartOverrides, StopSignal};
pub use symbols::Symbols;
