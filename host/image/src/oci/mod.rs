//! Images of containers, as OCI's image specification lays them out: an index names manifests, a manifest a
//! configuration and layers, each by the digest of its bytes.
//!
//! Nothing of a layout is believed before its digest was compared, and nothing of it is written to this
//! computer: the layers become a [`Root`].

mod choose;
mod layout;
mod start;
mod unpack;

pub use choose::{INDICES, MANIFESTS};
pub use layout::Fetch;
pub use oci_spec::image::Descriptor;

use crate::error::Result;
use crate::root::{Layers, Root, error};
use layout::{Layout, Part};
use oci_spec::image::{Config, Digest, ImageConfiguration, ImageManifest};
use serde::de::DeserializeOwned;
use std::path::Path;
use std::str::FromStr;
use unpack::{Packing, UNPACKED_BYTES_MAX, Unpacked};

/// An image that was read: its files, and what it says of how it starts.
#[derive(Debug)]
pub struct OciImage {
    /// Its files.
    pub root: Root,
    config: Config,
    /// What complaints about its configuration name.
    place: std::path::PathBuf,
}

impl OciImage {
    /// The image in a layout, a directory or a tar archive, that has this tag; without one the only image
    /// there is. Of one for several platforms that for Linux on amd64.
    ///
    /// # Errors
    /// What is absent, or is not what it is said to be, by its file in the layout and, in a layer, its name.
    pub fn read(path: &Path, tag: Option<&str>) -> Result<OciImage> {
        let layout = Layout::open(path)?;
        let chosen = choose::manifest(&layout, tag)?;
        OciImage::of_manifest(&layout, &chosen)
    }

    /// The image that `described`, an image's manifest or an index of several, leads to. Its parts are in the
    /// directory `store`, each at `blobs/ALGORITHM/DIGEST`; those that are not there yet `fetch` brings.
    ///
    /// # Errors
    /// As [`OciImage::read`], and why a part cannot be brought.
    pub fn fetched(store: &Path, described: &Descriptor, fetch: &Fetch<'_>) -> Result<OciImage> {
        let layout = Layout::filled_by(store, fetch);
        let place = layout.place(&layout::part_name(described.digest()));
        let chosen = choose::in_indices(&layout, described.clone(), place)?;
        OciImage::of_manifest(&layout, &chosen)
    }

    fn of_manifest(layout: &Layout<'_>, manifest: &Descriptor) -> Result<OciImage> {
        let place = layout.place(&layout::part_name(manifest.digest()));
        let wrong = |problem: String| error(&place, problem);
        let described: ImageManifest = document(layout, manifest, "an image manifest")?;
        let config = described.config();
        choose::check_config_type(config).map_err(wrong)?;
        // Before anything large is read.
        let packings = described.layers().iter().map(|layer| Packing::of(layer.media_type().as_ref()));
        let packings = packings.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
        let place = layout.place(&layout::part_name(config.digest()));
        let configuration: ImageConfiguration = document(layout, config, "an image configuration")?;
        choose::check_platform(&configuration).map_err(|problem| error(&place, problem))?;
        let digests = configuration.rootfs().diff_ids();
        if digests.len() != described.layers().len() {
            let (known, layers) = (digests.len(), described.layers().len());
            let problem =
                format!("{known} digests of layers (diff_ids), expected {layers} as the manifest has");
            return Err(error(&place, problem));
        }
        let mut root = Root::new();
        let mut layers = Layers::new(&mut root);
        let mut left = UNPACKED_BYTES_MAX;
        for ((layer, packing), digest) in described.layers().iter().zip(packings).zip(digests) {
            let file = layout.place(&layout::part_name(layer.digest()));
            let wrong = |problem: String| error(&file, problem);
            let digest = Digest::from_str(digest)
                .map_err(|reason| error(&place, format!("diff_id {digest}: {reason}")))?;
            let bytes = layout.part(layer, Part::Layer)?;
            let mut unpacked = Unpacked::new(&bytes, packing, &digest, left).map_err(wrong)?;
            layers.add(&file, &mut unpacked)?;
            left = unpacked.conclude(&digest).map_err(|reason| wrong(format!("unpacked, {reason}")))?;
        }
        let config = configuration.config().clone().unwrap_or_default();
        Ok(OciImage { root, config, place })
    }
}

/// A document of a layout, whose digest is as it is said to be.
fn document<T: DeserializeOwned>(layout: &Layout<'_>, descriptor: &Descriptor, what: &str) -> Result<T> {
    let bytes = layout.part(descriptor, Part::Document)?;
    parse(&layout.place(&layout::part_name(descriptor.digest())), &bytes, what)
}

fn parse<T: DeserializeOwned>(place: &Path, bytes: &[u8], what: &str) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|reason| error(place, format!("expected {what}: {reason}")))
}
