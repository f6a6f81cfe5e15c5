//! TCP connections passed on: the way out of a network namespace that leads nowhere.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

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
}
