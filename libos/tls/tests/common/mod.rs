//! A server's identity, and clients that believe it.
#![allow(dead_code, reason = "each test uses a part")]

use nom_tls::Identity;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};
use std::sync::Arc;

/// A certificate for the name `server`, and its key.
pub fn pem() -> (String, String) {
    let made = rcgen::generate_simple_self_signed(["server".to_owned()]).unwrap();
    (made.cert.pem(), made.signing_key.serialize_pem())
}

/// A server's identity, and its certificate.
pub fn identity() -> (Identity, String) {
    let (chain, key) = pem();
    (Identity::new(chain.as_bytes(), key.as_bytes(), || 0).unwrap(), chain)
}

/// A client that trusts `root` alone.
pub fn client(root: &str) -> ClientConnection {
    client_of(root, &[&rustls::version::TLS13])
}

pub fn client_of(root: &str, versions: &[&'static SupportedProtocolVersion]) -> ClientConnection {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(root.as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    ClientConnection::new(Arc::new(config), "server".try_into().unwrap()).unwrap()
}
