//! Makes layouts of container images, right ones and wrong ones.
#![allow(dead_code, reason = "each test uses a part")]

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::io::Write;
use std::path::{Path, PathBuf};

pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub const TAR: &str = "application/vnd.oci.image.layer.v1.tar";
pub const GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
pub const ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";

/// A directory with a layout in it.
pub struct Layout {
    path: PathBuf,
}

impl Layout {
    /// One without an image.
    pub fn new(path: &Path) -> Layout {
        std::fs::create_dir_all(path.join("blobs/sha256")).expect("made");
        std::fs::write(path.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).expect("written");
        Layout { path: path.to_owned() }
    }

    /// Puts a part there; returns what describes it.
    pub fn part(&self, media_type: &str, bytes: &[u8]) -> Value {
        let digest = digest(bytes);
        std::fs::write(self.file(&digest), bytes).expect("written");
        json!({ "mediaType": media_type, "digest": digest, "size": bytes.len() })
    }

    /// The file of a part.
    pub fn file(&self, digest: &str) -> PathBuf {
        self.path.join("blobs").join(digest.replace(':', "/"))
    }

    /// Puts an image of these layers there, each a media type and an archive.
    pub fn image(&self, config: &Value, layers: &[(&str, Vec<u8>)]) -> Value {
        let diff_ids: Vec<String> = layers.iter().map(|(_, archive)| digest(archive)).collect();
        let described: Vec<Value> =
            layers.iter().map(|(kind, archive)| self.part(kind, &packed(kind, archive))).collect();
        let configuration = json!({
            "architecture": "amd64", "os": "linux", "config": config,
            "rootfs": { "type": "layers", "diff_ids": diff_ids },
        });
        self.manifest(&configuration, &described)
    }

    /// Puts a manifest with this configuration and these layers there.
    pub fn manifest(&self, configuration: &Value, layers: &[Value]) -> Value {
        let config = self.part(CONFIG, configuration.to_string().as_bytes());
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers,
        });
        self.part(MANIFEST, manifest.to_string().as_bytes())
    }

    /// Says which images there are.
    pub fn index(&self, images: &[Value]) {
        std::fs::write(self.path.join("index.json"), index(images)).expect("written");
    }

    /// An archive of all of it.
    pub fn archive(&self) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        builder.append_dir_all("", &self.path).expect("archived");
        builder.into_inner().expect("archived")
    }
}

pub fn index(images: &[Value]) -> String {
    json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": images }).to_string()
}

/// What describes an image, with its tag.
pub fn tagged(image: &Value, tag: &str) -> Value {
    let mut image = image.clone();
    image["annotations"] = json!({ "org.opencontainers.image.ref.name": tag });
    image
}

/// What describes an image, with its platform.
pub fn on_platform(image: &Value, os: &str, architecture: &str) -> Value {
    let mut image = image.clone();
    image["platform"] = json!({ "os": os, "architecture": architecture });
    image
}

pub fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// An archive as a layer of this media type has it.
pub fn packed(media_type: &str, archive: &[u8]) -> Vec<u8> {
    if media_type.ends_with("gzip") {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(archive).expect("memory takes everything");
        return encoder.finish().expect("memory takes everything");
    }
    if media_type.ends_with("zstd") {
        return ruzstd::encoding::compress_to_vec(archive, ruzstd::encoding::CompressionLevel::Fastest);
    }
    archive.to_vec()
}

/// An entry of a layer.
#[derive(Clone, Debug)]
pub enum Entry<'e> {
    File(&'e str, &'e [u8]),
    Directory(&'e str),
    /// A symbolic link and where it leads.
    Link(&'e str, &'e str),
    /// Another name of a file.
    Hard(&'e str, &'e str),
    /// Something else, by the letter of its type.
    Other(&'e str, u8),
}

/// The archive of a layer. Names stand there as they are, wherever they lead.
pub fn layer(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for entry in entries {
        let (name, kind, target, contents): (_, _, _, &[u8]) = match entry {
            Entry::File(name, contents) => (name, b'0', "", contents),
            Entry::Directory(name) => (name, b'5', "", b""),
            Entry::Link(name, target) => (name, b'2', *target, b""),
            Entry::Hard(name, target) => (name, b'1', *target, b""),
            Entry::Other(name, kind) => (name, *kind, "", b""),
        };
        let mut header = tar::Header::new_gnu();
        header.as_gnu_mut().expect("of GNU").name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_gnu_mut().expect("of GNU").linkname[..target.len()].copy_from_slice(target.as_bytes());
        header.set_entry_type(tar::EntryType::new(kind));
        header.set_mode(0o755);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(contents.len() as u64);
        header.set_cksum();
        builder.append(&header, contents).expect("memory takes everything");
    }
    builder.into_inner().expect("memory takes everything")
}
