//! TLS: a provider's certificate, which it makes itself at its first start, and clients that know it by its
//! fingerprint rather than by a name that somebody vouches for.

use crate::secret_file;
use anyhow::{Context, Result, bail, ensure};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, ServerConfig, SignatureScheme};
use sha2::{Digest, Sha256};
use std::fmt;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::TlsConnector;

/// How long a handshake may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// What every certificate is for, beside the provider's own names.
const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// SHA-256 of a certificate, by which it is known.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    fn of(certificate: &CertificateDer<'_>) -> Fingerprint {
        Fingerprint(Sha256::digest(certificate).into())
    }
}

impl FromStr for Fingerprint {
    type Err = anyhow::Error;

    /// Reads 64 hexadecimal digits, with colons between them or without.
    fn from_str(text: &str) -> Result<Fingerprint> {
        let digits: String = text.chars().filter(|character| *character != ':').collect();
        let expected = "a fingerprint of 64 hexadecimal digits, as `nom provider` prints it";
        ensure!(digits.len() == 64 && digits.is_ascii(), "`{text}`: expected {expected}");
        let mut bytes = [0; 32];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * index..2 * index + 2], 16)
                .with_context(|| format!("`{text}`: expected {expected}"))?;
        }
        Ok(Fingerprint(bytes))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A certificate with its private key.
pub struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Clone for Identity {
    fn clone(&self) -> Identity {
        Identity { certificate: self.certificate.clone(), key: self.key.clone_key() }
    }
}

/// Without the key.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.fingerprint())
    }
}

impl Identity {
    /// A new one, for the computer's own names and these.
    ///
    /// # Errors
    /// If a name cannot be in a certificate.
    pub fn make(hosts: &[String]) -> Result<Identity> {
        Identity::from_pem(&fresh(hosts)?)
    }

    /// The one in the file at `path`; if there is no such file, one is made, for its owner alone to read.
    ///
    /// # Errors
    /// If the file can be neither read nor made, or holds something else.
    pub fn from_file(path: &Path, hosts: &[String]) -> Result<Identity> {
        let named = || format!("certificate {}", path.display());
        secret_file::make(path, || fresh(hosts)).with_context(named)?;
        Identity::from_pem(&std::fs::read_to_string(path).with_context(named)?).with_context(named)
    }

    fn from_pem(text: &str) -> Result<Identity> {
        let certificate = CertificateDer::from_pem_slice(text.as_bytes()).context("it has no certificate")?;
        let key = PrivateKeyDer::from_pem_slice(text.as_bytes()).context("it has no private key")?;
        Ok(Identity { certificate, key })
    }

    /// By which clients know it.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }

    pub(crate) fn server(self) -> Result<Arc<ServerConfig>> {
        let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
        let config = config.with_no_client_auth().with_single_cert(vec![self.certificate], self.key);
        Ok(Arc::new(config.context("the certificate and its key")?))
    }
}

/// The fingerprint of the certificate in the file at `path`, which may have its key or not.
///
/// # Errors
/// If the file cannot be read, or has none.
pub fn fingerprint_of(path: &Path) -> Result<Fingerprint> {
    let named = || format!("certificate {}", path.display());
    let certificate = CertificateDer::from_pem_file(path).with_context(named)?;
    Ok(Fingerprint::of(&certificate))
}

/// A certificate and its key, as PEM.
fn fresh(hosts: &[String]) -> Result<String> {
    let names: Vec<String> = NAMES.map(str::to_owned).into_iter().chain(hosts.iter().cloned()).collect();
    let made = rcgen::generate_simple_self_signed(names).context("a certificate of these names")?;
    Ok(made.cert.pem() + &made.signing_key.serialize_pem())
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Believes one certificate and no other, whatever names and dates are in it.
#[derive(Debug)]
struct Pinned {
    pin: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if Fingerprint::of(end_entity) == self.pin {
            return Ok(ServerCertVerified::assertion());
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn client(pin: &Fingerprint) -> Result<Arc<ClientConfig>> {
    let provider = provider();
    let verifier = Arc::new(Pinned { pin: *pin, provider: provider.clone() });
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(Arc::new(config.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()))
}

fn server_name(host: &str) -> Result<ServerName<'static>> {
    ServerName::try_from(host.to_owned()).with_context(|| format!("`{host}` is no name of a server"))
}

/// Whether the provider at `address` has the certificate of that fingerprint.
///
/// # Errors
/// If it has not, or nobody is there.
pub fn try_out(address: SocketAddr, host: &str, pin: &Fingerprint) -> Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).with_context(|| format!("{address}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut connection = rustls::ClientConnection::new(client(pin)?, server_name(host)?)?;
    while connection.is_handshaking() {
        if let Err(error) = connection.complete_io(&mut stream) {
            let certificate = connection.peer_certificates().and_then(<[_]>::first).map(Fingerprint::of);
            if certificate.is_some_and(|found| found != *pin) || error.to_string().contains("certificate") {
                bail!(
                    "{address} is not the provider that was asked for: its certificate is another than {pin}"
                );
            }
            return Err(error).with_context(|| format!("{address} does not speak TLS"));
        }
    }
    Ok(())
}

/// Connects whoever connects to `listener` to the provider at `address` by TLS, as long as this process
/// lives.
///
/// # Errors
/// If the name is none, or the system refuses a thread.
pub fn relay(listener: TcpListener, address: SocketAddr, host: &str, pin: &Fingerprint) -> Result<()> {
    let (connector, name) = (TlsConnector::from(client(pin)?), server_name(host)?);
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let work = async move {
        let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
        loop {
            let Ok((client, _)) = listener.accept().await else {
                // As when there are no more descriptors.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let (connector, name) = (connector.clone(), name.clone());
            tokio::spawn(async move {
                // Either end is told of a failure by the end of its connection.
                let _ = pass(client, address, connector, name).await;
            });
        }
    };
    std::thread::Builder::new().name("TLS relay".to_owned()).spawn(move || runtime.block_on(work))?;
    Ok(())
}

async fn pass(
    mut client: tokio::net::TcpStream,
    address: SocketAddr,
    connector: TlsConnector,
    name: ServerName<'static>,
) -> Result<()> {
    let connect = async {
        let stream = tokio::net::TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        connector.connect(name, stream).await
    };
    let mut server = tokio::time::timeout(PATIENCE, connect).await??;
    client.set_nodelay(true)?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_made_once_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("certificate.pem");
        let made = Identity::from_file(&path, &["bills.example".into()]).expect("made").fingerprint();
        assert_eq!(Identity::from_file(&path, &[]).expect("read").fingerprint(), made);
        assert_eq!(fingerprint_of(&path).expect("read"), made);
        assert_eq!(path.metadata().expect("it exists").permissions().mode() & 0o777, 0o600);
        assert_ne!(Identity::make(&[]).expect("another").fingerprint(), made);
        let other = directory.path().join("other.pem");
        let error = Identity::from_file(&other, &["bills.ex\u{e4}mple".into()]).expect_err("no such name");
        assert!(format!("{error:#}").contains("a certificate of these names"), "{error:#}");
        Identity::from_file(&other, &["bills.example".into()]).expect("made, now that its name is one");
        std::fs::write(&path, "no certificate").expect("written");
        let error = format!("{:#}", Identity::from_file(&path, &[]).expect_err("no certificate"));
        assert!(error.contains("certificate.pem") && error.contains("no certificate"), "{error}");
    }

    #[test]
    fn a_fingerprint_is_read_as_it_is_printed() {
        let fingerprint = Identity::make(&[]).expect("made").fingerprint();
        let text = fingerprint.to_string();
        let colons = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("ASCII"));
        let colons = colons.collect::<Vec<_>>().join(":").to_uppercase();
        for text in [text.as_str(), &colons] {
            assert_eq!(text.parse::<Fingerprint>().expect("read"), fingerprint);
        }
        for wrong in ["", "ab", &text[1..], &text.replace(|c: char| c.is_ascii_digit(), "x")] {
            let error = wrong.parse::<Fingerprint>().expect_err(wrong).to_string();
            assert!(error.contains("64 hexadecimal digits"), "{error}");
        }
    }
}
