//! Connections: each a task, so that a slow client is slow for itself alone, and as many as have a place.

use super::access::Peer;
use super::impatient::Impatient;
use super::places::Places;
use super::problem::Refusal;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio_rustls::TlsAcceptor;

/// How long a client may take to say what it wants, and to be silent before the next request.
const HEADER_PATIENCE: Duration = Duration::from_secs(10);
/// How long a client may take nothing of what it is sent.
const WRITE_PATIENCE: Duration = Duration::from_secs(30);
/// How long a client without a place may take to hear that it has none.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(2);
/// Clients that are told so at a time; more are hung up on, since telling takes a place of a kind, too.
const REFUSALS_MAX: usize = 20;
/// Pause after a connection could not be accepted, as when there are no more descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves every connection that has a place until `stopped`.
pub async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    places: Arc<Places>,
    stopped: oneshot::Receiver<()>,
) {
    tokio::select! {
        () = accept(listener, tls, router, places) => {}
        _ = stopped => {}
    }
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, router: Router, places: Arc<Places>) {
    let refusals = Arc::new(Semaphore::new(REFUSALS_MAX));
    let refusing = Router::new().fallback(async || Refusal::crowded());
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        if let Some(place) = places.take(peer.ip()) {
            let router = router.clone().layer(Extension(Peer(peer.ip())));
            let served = connection(stream, tls.clone(), router, http1::Builder::new());
            drop(tokio::spawn(async move {
                served.await;
                drop(place);
            }));
        } else if let Ok(telling) = refusals.clone().try_acquire_owned() {
            let mut once = http1::Builder::new();
            once.keep_alive(false);
            let refused = connection(stream, tls.clone(), refusing.clone(), once);
            drop(tokio::spawn(async move {
                // Whoever does not ask is not told.
                let _ = tokio::time::timeout(REFUSAL_PATIENCE, refused).await;
                drop(telling);
            }));
        }
    }
}

async fn connection(stream: TcpStream, tls: Option<TlsAcceptor>, router: Router, server: http1::Builder) {
    // Events are small and must not wait to become large.
    let _ = stream.set_nodelay(true);
    let stream = Impatient::new(stream, WRITE_PATIENCE);
    let Some(tls) = tls else { return talk(stream, router, server).await };
    // Who does not know TLS, or this certificate, learns it by the end of the connection.
    if let Ok(Ok(stream)) = tokio::time::timeout(HEADER_PATIENCE, tls.accept(stream)).await {
        talk(stream, router, server).await;
    }
}

async fn talk(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    mut server: http1::Builder,
) {
    server.timer(TokioTimer::new()).header_read_timeout(HEADER_PATIENCE);
    // What a client does wrong ends its own connection and concerns nobody else.
    let _ = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use std::net::SocketAddr;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpSocket;

    /// A client at an address of the loopback network, which has many, that asks; and how it is answered.
    async fn ask(server: SocketAddr, address: [u8; 4]) -> std::io::Result<(TcpStream, String)> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((address, 0).into())?;
        let mut stream = socket.connect(server).await?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
        let mut answer = [0; 1024];
        let length = stream.read(&mut answer).await?;
        Ok((stream, String::from_utf8_lossy(&answer[..length]).to_lowercase()))
    }

    async fn crowd() -> std::io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let server = listener.local_addr()?;
        let router = Router::new().route("/", get(async || "served"));
        let (_stop, stopped) = oneshot::channel();
        tokio::spawn(serve(listener, None, router, Places::new(8), stopped));
        let mut served = Vec::new();
        for _ in 0..4 {
            let (stream, answer) = ask(server, [127, 0, 0, 2]).await?;
            assert!(answer.ends_with("served"), "{answer}");
            served.push(stream);
        }
        let (mut refused, answer) = ask(server, [127, 0, 0, 2]).await?;
        for part in ["http/1.1 429 ", "retry-after: 5", "connection: close", "too many connections"] {
            assert!(answer.contains(part), "{part} in {answer}");
        }
        assert_eq!(refused.read(&mut [0; 1024]).await?, 0, "it is hung up on");
        let (_other, answer) = ask(server, [127, 0, 0, 3]).await?;
        assert!(answer.ends_with("served"), "another address has places: {answer}");
        served.clear();
        // As soon as the provider sees that they have ended.
        while !ask(server, [127, 0, 0, 2]).await?.1.ends_with("served") {}
        Ok(())
    }

    #[test]
    fn one_address_leaves_places_to_others() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let crowd = async { tokio::time::timeout(Duration::from_secs(60), crowd()).await };
        runtime.block_on(crowd).expect("it goes on").expect("connections");
    }
}
