//! Images of containers by the names that registries have for them, such as `redis:7`.
//!
//! Parts are kept by their digests in nom's own directory, so what is there is not asked for again; what a
//! tag means is asked each time.

use crate::store::Store;
use anyhow::{Context, Result, bail};
use nom_image::OciImage;
use nom_image::oci::{Descriptor, INDICES, MANIFESTS};
use oci_client::client::{ClientConfig, ClientProtocol};
use oci_client::manifest::OciDescriptor;
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference};
use serde_json::Value;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{self, Poll};
use std::time::Duration;
use tempfile::NamedTempFile;
use tokio::runtime::Runtime;

/// How long a registry may take to answer, and to go on.
const PATIENCE: Duration = Duration::from_secs(60);

/// The reference that `app` is: a name of an image with its tag or digest. Nothing if it is none, or may be
/// something else: an application has no colon in its name, and a path begins with a slash or a dot.
///
/// # Errors
/// If there is a file of that name, too, or the tag is missing.
pub fn reference(app: &str) -> Result<Option<Reference>> {
    if app.starts_with(['/', '.']) || !app.contains([':', '@']) {
        return Ok(None);
    }
    let Ok(reference) = app.parse::<Reference>() else { return Ok(None) };
    if Path::new(app).exists() {
        bail!("{app}: a file here, and an image of a registry: expected ./{app} or {}", reference.whole());
    }
    let (_, name) = app.rsplit_once('/').unwrap_or(("", app));
    if !name.contains([':', '@']) {
        bail!("{app}: expected an image with its tag or digest, such as {app}:latest");
    }
    Ok(Some(reference))
}

/// The image that a reference names, pulled as far as it is not there yet.
///
/// # Errors
/// If the registry does not answer, has no such image, or lies about it.
pub fn pulled(reference: &Reference) -> Result<OciImage> {
    let store = Store::open()?.root().join("images");
    let registry = Registry::of(reference)?;
    let described = registry.described(&store).with_context(|| format!("cannot pull {reference}"))?;
    let fetch =
        |part: &Descriptor, path: &Path| registry.fetch(part, path).map_err(|error| format!("{error:#}"));
    OciImage::fetched(&store, &described, &fetch).with_context(|| format!("cannot pull {reference}"))
}

/// Whether a registry is this computer's own: it is spoken to without TLS, as Docker does.
fn is_local(registry: &str) -> bool {
    let host = registry.rsplit_once(':').map_or(registry, |(host, _)| host);
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Where an image comes from.
struct Registry<'r> {
    reference: &'r Reference,
    client: Client,
    runtime: Runtime,
}

impl<'r> Registry<'r> {
    fn of(reference: &'r Reference) -> Result<Registry<'r>> {
        // Another part of this process may have chosen it before; it is the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let registry = reference.resolve_registry();
        let protocol = match is_local(registry) {
            true => ClientProtocol::HttpsExcept(vec![registry.to_owned()]),
            false => ClientProtocol::Https,
        };
        let config = ClientConfig {
            protocol,
            read_timeout: Some(PATIENCE),
            connect_timeout: Some(PATIENCE),
            ..ClientConfig::default()
        };
        let client = Client::try_from(config).context("no client of registries")?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Registry { reference, client, runtime })
    }

    /// What describes the image: of a digest whose part is there, nobody is asked.
    fn described(&self, store: &Path) -> Result<Descriptor> {
        let known = self.reference.digest().map(|digest| path_of(store, digest));
        let bytes = match known.filter(|path| path.is_file()) {
            Some(path) => std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?,
            None => self.manifest(self.reference)?,
        };
        let digest = match self.reference.digest() {
            Some(digest) => digest.to_owned(),
            None => sha256(&bytes),
        };
        let document: Value = serde_json::from_slice(&bytes).context("expected a manifest")?;
        let default = if document.get("manifests").is_some() { INDICES[0] } else { MANIFESTS[0] };
        let media_type = document.get("mediaType").and_then(Value::as_str).unwrap_or(default);
        keep(&path_of(store, &digest), &bytes)?;
        let described = serde_json::json!({ "mediaType": media_type, "digest": digest, "size": bytes.len() });
        serde_json::from_value(described).context("expected a manifest")
    }

    fn manifest(&self, reference: &Reference) -> Result<Vec<u8>> {
        let accepted = [MANIFESTS, INDICES].concat();
        let pull = self.client.pull_manifest_raw(reference, &RegistryAuth::Anonymous, &accepted);
        let (bytes, _) = self.runtime.block_on(pull)?;
        Ok(bytes.to_vec())
    }

    /// Brings a part.
    fn fetch(&self, part: &Descriptor, path: &Path) -> Result<()> {
        let digest = part.digest().to_string();
        let kind = part.media_type().to_string();
        if MANIFESTS.contains(&kind.as_str()) || INDICES.contains(&kind.as_str()) {
            return keep(path, &self.manifest(&self.reference.clone_with_digest(digest))?);
        }
        let mebibytes = part.size() as f64 / f64::from(1 << 20);
        eprintln!("nom: {}: pulls {digest}, {mebibytes:.1} MiB", self.reference);
        let described = OciDescriptor {
            digest,
            media_type: kind,
            size: i64::try_from(part.size())?,
            ..OciDescriptor::default()
        };
        let mut file = Bounded { file: new_file(path)?, left: part.size() };
        self.runtime.block_on(self.client.pull_blob(self.reference, &described, &mut file))?;
        file.file.persist(path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(())
    }
}

fn path_of(store: &Path, digest: &str) -> PathBuf {
    store.join("blobs").join(digest.replace(':', "/"))
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    let digest = sha2::Sha256::digest(bytes);
    format!("sha256:{}", digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

/// A file beside `path`, which becomes it when it is whole.
fn new_file(path: &Path) -> Result<NamedTempFile> {
    let directory = path.parent().context("a part is in a directory")?;
    std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    NamedTempFile::new_in(directory).with_context(|| format!("cannot write {}", directory.display()))
}

fn keep(path: &Path, bytes: &[u8]) -> Result<()> {
    let file = new_file(path)?;
    std::fs::write(file.path(), bytes).with_context(|| format!("cannot write {}", path.display()))?;
    file.persist(path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(())
}

/// A file that takes no more than a part is said to have.
struct Bounded {
    file: NamedTempFile,
    left: u64,
}

impl tokio::io::AsyncWrite for Bounded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut task::Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let Some(left) = self.left.checked_sub(bytes.len() as u64) else {
            return Poll::Ready(Err(std::io::Error::other("the registry sends more than it said")));
        };
        self.left = left;
        Poll::Ready(std::io::Write::write_all(&mut self.file, bytes).map(|()| bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut task::Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut task::Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_has_a_tag_or_a_digest_and_is_no_path() {
        for (app, whole) in [
            ("redis:7", "docker.io/library/redis:7"),
            ("somebody/tool:1.2", "docker.io/somebody/tool:1.2"),
            ("localhost:5000/x:tag", "localhost:5000/x:tag"),
        ] {
            assert_eq!(reference(app).expect(app).map(|found| found.whole()).as_deref(), Some(whole));
        }
        let digest = format!("redis@sha256:{}", "0".repeat(64));
        assert!(reference(&digest).expect("one").is_some());
        for app in ["redis", "memcached", "apps/web", "/srv/a:b", "./a:b", "Upper:1", "a b:c", "redis:"] {
            assert!(reference(app).expect(app).is_none(), "{app}");
        }
        let error = reference("localhost:5000/x").expect_err("no tag").to_string();
        assert_eq!(
            error,
            "localhost:5000/x: expected an image with its tag or digest, such as localhost:5000/x:latest"
        );
    }

    #[test]
    fn only_this_computers_own_registry_is_spoken_to_without_tls() {
        for (registry, local) in [
            ("localhost:5000", true),
            ("localhost", true),
            ("127.0.0.1:5000", true),
            ("[::1]:5000", true),
            ("registry.example:5000", false),
            ("localhost.example", false),
            ("10.0.0.1:5000", false),
        ] {
            assert_eq!(is_local(registry), local, "{registry}");
        }
    }
}
