//! TCP connections and UDP datagrams passed on: the way out of a network namespace that leads nowhere, and
//! into a machine on a bridge that nothing leads to.
//!
//! A process that copies, as Docker's `docker-proxy`, rather than rules of a packet filter: it needs neither
//! `nft` nor forwarding by the kernel, serves loopback addresses too, and leaves nothing when it is killed.
//! Whoever wants each cycle talks to the machine's own address.

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Most clients whose datagrams are passed on at a time; those of others are lost, as datagrams may be.
const UDP_CLIENTS_MAX: usize = 1024;
/// How long a client that is answered nothing is remembered; RFC 4787 asks for two minutes.
const UDP_SILENCE: Duration = Duration::from_secs(120);
/// Longest datagram (RFC 768).
const UDP_BYTES_MAX: usize = 65_535;

/// Connects whoever connects to `listener` to `target`, as long as this process lives. A connection for which
/// `target` is not there is closed.
pub fn relay(listener: TcpListener, target: SocketAddr) {
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || {
                // Either end is told of a failure by the end of its connection.
                let _ = join(&client, target);
            });
        }
    });
}

fn join(client: &TcpStream, target: SocketAddr) -> io::Result<()> {
    let server = TcpStream::connect(target)?;
    for stream in [client, &server] {
        stream.set_nodelay(true)?;
    }
    thread::scope(|scope| {
        scope.spawn(|| pass(client, &server));
        pass(&server, client);
    });
    Ok(())
}

/// Passes on what comes until it ends, and the end too.
fn pass(mut from: &TcpStream, mut to: &TcpStream) {
    let whole = io::copy(&mut from, &mut to);
    // A reader that is gone must not keep the writer: both ends have said all that will arrive.
    let _ = to.shutdown(Shutdown::Write);
    if whole.is_err() {
        let _ = from.shutdown(Shutdown::Both);
    }
}

/// Passes on datagrams that reach `socket` to `target`, and the answers to whoever sent them, as long as this
/// process lives.
pub fn relay_datagrams(socket: UdpSocket, target: SocketAddr) {
    thread::spawn(move || {
        let (socket, clients) = (Arc::new(socket), Arc::new(Mutex::new(HashMap::new())));
        let mut buffer = vec![0; UDP_BYTES_MAX];
        loop {
            // An error is an answer of the network to what was sent before, and concerns one client only.
            let Ok((length, client)) = socket.recv_from(&mut buffer) else { continue };
            if let Some(way) = way_of(client, target, &socket, &clients) {
                let _ = way.send(&buffer[..length]);
            }
        }
    });
}

/// The socket by which datagrams of each client go on.
type Ways = Mutex<HashMap<SocketAddr, Arc<UdpSocket>>>;

/// The client's socket, made for its first datagram; none if there are too many.
fn way_of(
    client: SocketAddr,
    target: SocketAddr,
    socket: &Arc<UdpSocket>,
    ways: &Arc<Ways>,
) -> Option<Arc<UdpSocket>> {
    let mut known = ways.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(way) = known.get(&client) {
        return Some(way.clone());
    }
    if known.len() >= UDP_CLIENTS_MAX {
        return None;
    }
    let any: SocketAddr = if target.is_ipv4() { ([0; 4], 0).into() } else { ([0u16; 8], 0).into() };
    let way = Arc::new(UdpSocket::bind(any).ok()?);
    way.connect(target).and_then(|()| way.set_read_timeout(Some(UDP_SILENCE))).ok()?;
    known.insert(client, way.clone());
    let (answers, socket, ways) = (way.clone(), socket.clone(), ways.clone());
    thread::spawn(move || {
        let mut buffer = vec![0; UDP_BYTES_MAX];
        // Ends by silence, or when the network says that nobody listens.
        while let Ok(length) = answers.recv(&mut buffer) {
            let _ = socket.send_to(&buffer[..length], client);
        }
        ways.lock().unwrap_or_else(PoisonError::into_inner).remove(&client);
    });
    Some(way)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::Ipv4Addr;

    fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("it has one");
        (listener, address)
    }

    #[test]
    fn both_directions_pass_and_end_separately() {
        let (server, target) = listener();
        let (entrance, address) = listener();
        relay(entrance, target);
        let mut client = TcpStream::connect(address).expect("connected");
        client.write_all(b"question").expect("written");
        client.shutdown(Shutdown::Write).expect("ended");
        let (mut server, _) = server.accept().expect("passed on");
        let mut heard = String::new();
        server.read_to_string(&mut heard).expect("read to the end");
        server.write_all(b"answer").expect("written");
        drop(server);
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("read to the end");
        assert_eq!((heard.as_str(), answer.as_str()), ("question", "answer"));
    }

    #[test]
    fn without_a_target_a_connection_ends() {
        let (gone, target) = listener();
        drop(gone);
        let (entrance, address) = listener();
        relay(entrance, target);
        let mut client = TcpStream::connect(address).expect("connected");
        let mut nothing = Vec::new();
        // Whether it is the end or a reset that comes first is the network's choice.
        let _ = client.read_to_end(&mut nothing);
        assert!(nothing.is_empty());
    }

    #[test]
    fn datagrams_find_their_way_back_to_each_client() {
        let socket = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let (server, entrance) = (socket(), socket());
        let address = entrance.local_addr().expect("it has one");
        relay_datagrams(entrance, server.local_addr().expect("it has one"));
        let clients = [socket(), socket()];
        for (client, text) in clients.iter().zip(["one", "two"]) {
            client.send_to(text.as_bytes(), address).expect("sent");
        }
        let mut buffer = [0; 16];
        for _ in &clients {
            let (length, from) = server.recv_from(&mut buffer).expect("passed on");
            server.send_to(&buffer[..length], from).expect("answered");
        }
        for (client, text) in clients.iter().zip(["one", "two"]) {
            let length = client.recv(&mut buffer).expect("an answer");
            assert_eq!(&buffer[..length], text.as_bytes());
        }
    }
}
