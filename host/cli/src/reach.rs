//! The way to a provider that speaks TLS, for those who do not: this process's own followers, and `priced` in
//! the machine, in whose image a TLS client would take more room than all the rest.

use anyhow::Result;
use nom_provider::tls;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};

/// Opens an entrance on the loopback interface from which every connection leads to the provider at `address`
/// by TLS, as long as this process lives. Whoever is there has to have the certificate of that fingerprint.
///
/// # Errors
/// If the fingerprint is none, or nobody there has that certificate.
pub fn open(address: SocketAddrV4, host: &str, pin: &str) -> Result<SocketAddrV4> {
    let pin = pin.parse()?;
    tls::try_out(SocketAddr::V4(address), host, &pin)?;
    let entrance = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = entrance.local_addr()?.port();
    tls::relay(entrance, SocketAddr::V4(address), host, &pin)?;
    Ok(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))
}
