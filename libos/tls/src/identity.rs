//! Who a server says that it is.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::sign::{CertifiedKey, SigningKey, SingleCertAndKey};
use rustls::time_provider::TimeProvider;

/// A certificate with its key. Clones are the same.
#[derive(Clone, Debug)]
pub struct Identity {
    pub(crate) config: Arc<ServerConfig>,
}

/// Why there is no identity.
#[derive(Debug)]
pub enum BadIdentity {
    /// The certificates are no PEM (RFC 7468).
    Certificates(pem::Error),
    /// There is none among them.
    NoCertificate,
    /// The key is no PEM, or of no kind that PKCS#1, PKCS#8 or SEC1 name.
    Key(pem::Error),
    /// Nothing here signs with such a key.
    Refused(rustls::Error),
    /// What the key signs is not what the certificate's owner signs.
    Mismatch,
}

impl fmt::Display for BadIdentity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadIdentity::Certificates(why) => write!(out, "the certificates are no PEM: {why}"),
            BadIdentity::NoCertificate => {
                out.write_str("expected at least one CERTIFICATE in PEM, found none")
            }
            BadIdentity::Key(why) => write!(out, "the key is no PRIVATE KEY in PEM: {why}"),
            BadIdentity::Refused(why) => write!(out, "expected an ECDSA, Ed25519 or RSA key: {why}"),
            BadIdentity::Mismatch => out.write_str("the key is not the certificate's"),
        }
    }
}

impl core::error::Error for BadIdentity {}

/// What rustls asks for the time.
#[derive(Debug)]
struct Calendar(fn() -> u64);

impl TimeProvider for Calendar {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_nanos((self.0)())))
    }
}

impl Identity {
    /// The chain of certificates `chain`, the server's own first, with its key, both in PEM. `unix_ns` says
    /// how many nanoseconds have passed since 1970.
    ///
    /// # Errors
    /// If they are not what they must be.
    pub fn new(chain: &[u8], key: &[u8], unix_ns: fn() -> u64) -> Result<Identity, BadIdentity> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(chain)
            .collect::<Result<_, _>>()
            .map_err(BadIdentity::Certificates)?;
        if chain.is_empty() {
            return Err(BadIdentity::NoCertificate);
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(BadIdentity::Key)?;
        let provider = Arc::new(rustls_rustcrypto::provider());
        let signer = provider.key_provider.load_private_key(key).map_err(BadIdentity::Refused)?;
        if !belongs(&provider, &*signer, &chain[0]) {
            return Err(BadIdentity::Mismatch);
        }
        let certified = SingleCertAndKey::from(CertifiedKey::new(chain, signer));
        let mut config = ServerConfig::builder_with_details(provider, Arc::new(Calendar(unix_ns)))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(BadIdentity::Refused)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(certified));
        // Nobody would take one back.
        config.send_tls13_tickets = 0;
        Ok(Identity { config: Arc::new(config) })
    }
}

/// Whether what a key signs is signed by the owner of a certificate: this provider's keys do not tell their
/// public halves, which rustls would compare.
fn belongs(provider: &CryptoProvider, key: &dyn SigningKey, certificate: &CertificateDer<'_>) -> bool {
    const TEXT: &[u8] = b"to be signed";
    let algorithms = provider.signature_verification_algorithms.mapping;
    let Ok(certificate) = webpki::EndEntityCert::try_from(certificate) else { return false };
    algorithms.iter().any(|(scheme, algorithms)| {
        let signed = key.choose_scheme(&[*scheme]).and_then(|signer| signer.sign(TEXT).ok());
        signed.is_some_and(|signature| {
            algorithms.iter().any(|it| certificate.verify_signature(*it, TEXT, &signature).is_ok())
        })
    })
}
