//! Connections: as many as there may be, each a task, so that a slow client is slow for itself alone.

use super::access::Peer;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_rustls::TlsAcceptor;

/// Connections at a time; more wait until one ends.
const CONNECTIONS_MAX: usize = 1024;
/// How long a client may take to say what it wants, and to be silent before the next request.
const HEADER_PATIENCE: Duration = Duration::from_secs(10);
/// Pause after a connection could not be accepted, as when there are no more descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves every connection until `stopped`.
pub async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    stopped: oneshot::Receiver<()>,
) {
    tokio::select! {
        () = accept(listener, tls, router) => {}
        _ = stopped => {}
    }
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, router: Router) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    while let Ok(place) = places.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let router = router.clone().layer(Extension(Peer(peer.ip())));
                drop(tokio::spawn(connection(stream, tls.clone(), router, place)));
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn connection(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    router: Router,
    _place: OwnedSemaphorePermit,
) {
    // Events are small and must not wait to become large.
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else { return talk(stream, router).await };
    // Who does not know TLS, or this certificate, learns it by the end of the connection.
    if let Ok(Ok(stream)) = tokio::time::timeout(HEADER_PATIENCE, tls.accept(stream)).await {
        talk(stream, router).await;
    }
}

async fn talk(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, router: Router) {
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEADER_PATIENCE);
    // What a client does wrong ends its own connection and concerns nobody else.
    let _ = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).await;
}
