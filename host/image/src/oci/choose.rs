//! Which of a layout's images is meant.

use super::layout::{self, Layout};
use super::{document, parse};
use crate::error::Result;
use crate::root::error;
use oci_spec::image::{Arch, Descriptor, ImageConfiguration, ImageIndex, Os};
use serde::Deserialize;
use std::path::PathBuf;

const INDEX: &str = "index.json";
const MARK: &str = "oci-layout";
const VERSION: &str = "1.0.0";
/// The annotation that is an image's tag.
const TAG: &str = "org.opencontainers.image.ref.name";
/// Media types of manifests: OCI's and Docker's.
pub const MANIFESTS: [&str; 2] =
    ["application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json"];
/// Media types of indices of them.
pub const INDICES: [&str; 2] =
    ["application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json"];
const CONFIGURATIONS: [&str; 2] =
    ["application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"];
/// Indices that are in indices, at most.
const DEPTH_MAX: usize = 4;

/// What says that a directory is a layout, and of which version.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mark {
    image_layout_version: String,
}

/// The manifest of the image with this tag, or of the only one.
///
/// # Errors
/// If there is no such image, or several, or none for this processor.
pub(super) fn manifest(layout: &Layout<'_>, tag: Option<&str>) -> Result<Descriptor> {
    let place = layout.place(MARK);
    let mark: Mark = parse(&place, &layout.read(MARK)?, "the version of an image layout")?;
    if mark.image_layout_version != VERSION {
        let problem = format!("a layout of version {}, expected {VERSION}", mark.image_layout_version);
        return Err(error(&place, problem));
    }
    let place = layout.place(INDEX);
    let index: ImageIndex = parse(&place, &layout.read(INDEX)?, "an image index")?;
    let tagged = |image: &&Descriptor| tag.is_none() || tag_of(image) == tag;
    let images: Vec<&Descriptor> = index.manifests().iter().filter(tagged).collect();
    let chosen = match images.as_slice() {
        [] if tag.is_some() => {
            let problem = format!(
                "no image with the tag {}, expected one of {}",
                tag.unwrap_or_default(),
                tags(&index)
            );
            return Err(error(&place, problem));
        }
        [only] => (*only).clone(),
        images => for_this_platform(images.iter().copied())
            .map_err(|problem| error(&place, format!("{problem}; the tags are {}", tags(&index))))?,
    };
    in_indices(layout, chosen, place)
}

/// The manifest for this platform that a descriptor, which stands in the file `at`, leads to.
///
/// # Errors
/// If it leads to something else, or to none for this processor.
pub(super) fn in_indices(layout: &Layout<'_>, mut chosen: Descriptor, mut at: PathBuf) -> Result<Descriptor> {
    for _ in 0..DEPTH_MAX {
        let kind = chosen.media_type().to_string();
        if MANIFESTS.contains(&kind.as_str()) {
            return Ok(chosen);
        }
        if !INDICES.contains(&kind.as_str()) {
            let problem =
                format!("of the media type {kind}, expected an image's: {} or {}", MANIFESTS[0], INDICES[0]);
            return Err(error(&at, problem));
        }
        at = layout.place(&layout::part_name(chosen.digest()));
        let index: ImageIndex = document(layout, &chosen, "an image index")?;
        chosen = for_this_platform(index.manifests()).map_err(|problem| error(&at, problem))?;
    }
    Err(error(&at, "an index in an index in an index, and so on"))
}

fn tag_of(image: &Descriptor) -> Option<&str> {
    image.annotations().as_ref()?.get(TAG).map(String::as_str)
}

fn tags(index: &ImageIndex) -> String {
    let tags: Vec<&str> = index.manifests().iter().filter_map(tag_of).collect();
    if tags.is_empty() { "none".to_owned() } else { tags.join(", ") }
}

/// The one image for Linux on amd64.
fn for_this_platform<'i>(images: impl IntoIterator<Item = &'i Descriptor>) -> Result<Descriptor, String> {
    let (mut others, mut found) = (Vec::new(), Vec::new());
    for image in images {
        match image.platform() {
            Some(platform) if (platform.os(), platform.architecture()) == (&Os::Linux, &Arch::Amd64) => {
                found.push(image);
            }
            Some(platform) => others.push(format!("{}/{}", platform.os(), platform.architecture())),
            None => others.push("one of no named platform".to_owned()),
        }
    }
    match found.as_slice() {
        [only] => Ok((*only).clone()),
        [] => Err(format!("no image for linux/amd64, but {}", others.join(", "))),
        several => Err(format!("{} images for linux/amd64, expected one: name a tag", several.len())),
    }
}

/// Whether a configuration is one.
///
/// # Errors
/// If its media type says something else.
pub(super) fn check_config_type(config: &Descriptor) -> Result<(), String> {
    let kind = config.media_type().to_string();
    if CONFIGURATIONS.contains(&kind.as_str()) {
        return Ok(());
    }
    Err(format!("a configuration of the media type {kind}, expected {}", CONFIGURATIONS[0]))
}

/// Whether the image runs here.
///
/// # Errors
/// If it is for another system or processor.
pub(super) fn check_platform(configuration: &ImageConfiguration) -> Result<(), String> {
    let platform = (configuration.os(), configuration.architecture());
    if platform == (&Os::Linux, &Arch::Amd64) {
        return Ok(());
    }
    Err(format!("an image for {}/{}, expected linux/amd64", platform.0, platform.1))
}
