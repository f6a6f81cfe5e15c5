//! The core behind sockets of the host, one thread a connection: only a test would serve so.

use nom_memcached_core::{Connection, Options, Server, udp};
use nom_port::buffer::Slice;
use nom_service::Stream;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

pub mod script;

pub type Bytes = Arc<[u8]>;
type Shared = Arc<Mutex<Server<Bytes, parking_lot::RawMutex>>>;

pub fn unix() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is right").as_secs()
}

/// Serves on a free port of loopback, over TCP and UDP, until the test ends.
pub fn serve(options: Options) -> SocketAddr {
    let server = Arc::new(Mutex::new(Server::new(options, unix(), 7)));
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let address = listener.local_addr().expect("it is bound");
    let socket = UdpSocket::bind(address).expect("the port is free for UDP, too");
    let datagrams = server.clone();
    thread::spawn(move || answer_datagrams(&datagrams, &socket));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let server = server.clone();
            thread::spawn(move || answer_stream(&server, stream.expect("a client connects")));
        }
    });
    address
}

/// Serves one client to the end of its stream; errors of the socket are such ends.
fn answer_stream(server: &Shared, mut stream: TcpStream) {
    let mut connection = Connection::new();
    let mut buffer = vec![0; 2048];
    let mut reply = Vec::new();
    while let Ok(len @ 1..) = stream.read(&mut buffer) {
        reply.clear();
        let flow = {
            let mut server = server.lock().expect("no thread panicked");
            server.set_time(unix());
            connection.receive(&mut server, Slice::new(Bytes::from(&buffer[..len])), &mut reply)
        };
        if stream.write_all(&reply).is_err() || flow == Stream::Close {
            return;
        }
    }
}

fn answer_datagrams(server: &Shared, socket: &UdpSocket) {
    let mut buffer = vec![0; 65536];
    while let Ok((len, client)) = socket.recv_from(&mut buffer) {
        let mut reply = Vec::new();
        let mut server = server.lock().expect("no thread panicked");
        server.set_time(unix());
        let request = udp::answer(&mut server, Slice::new(Bytes::from(&buffer[..len])), &mut reply);
        let Some(request) = request else { continue };
        for (frame, range) in udp::frames(request, reply.len()) {
            let datagram = [&frame[..], &reply[range]].concat();
            socket.send_to(&datagram, client).expect("loopback takes a datagram");
        }
    }
}

/// Where a program is, if it is installed.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|path| path.is_file())
}
