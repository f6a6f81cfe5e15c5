//! Streams between two machines on a network that loses frames, on virtual time.

mod common;
#[path = "../../socket/tests/common/mod.rs"]
mod machines;

use common::{client, identity};
use machines::{Device, Random, World, address};
use nom_socket::{Network, Shutdown, TcpStream};
use nom_tls::{Error, Identity, TlsStream};
use rustls::ClientConnection;
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io::{Read, Write};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

const PORT: u16 = 443;

/// Both of them.
async fn both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut first, mut second) = (None, None);
    poll_fn(|context| {
        if first.is_none()
            && let Poll::Ready(value) = a.as_mut().poll(context)
        {
            first = Some(value);
        }
        if second.is_none()
            && let Poll::Ready(value) = b.as_mut().poll(context)
        {
            second = Some(value);
        }
        if first.is_some() && second.is_some() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    (first.expect("it is ready"), second.expect("it is ready"))
}

/// Serves one client on machine 1 in a task, whose value is kept.
fn serve<F: Future<Output: 'static> + 'static>(
    world: &World,
    identity: Identity,
    serve: impl FnOnce(Result<TlsStream<TcpStream<Device>>, Error>) -> F + 'static,
) -> Rc<RefCell<Option<F::Output>>> {
    let (network, served) = (world.networks[1].clone(), Rc::new(RefCell::new(None)));
    let value = served.clone();
    world.loops[1].handle().spawn(async move {
        let listener = network.listen(PORT).expect("the port is free");
        let client = listener.accept().await.expect("somebody connects");
        *value.borrow_mut() = Some(serve(TlsStream::accept(&identity, client).await).await);
    });
    served
}

/// A client of ours that says `text` and that it was all, and what it hears until the server says so.
async fn ask(network: Network<Device>, mut tls: ClientConnection, text: Vec<u8>) -> Vec<u8> {
    let stream = network.connect(address(2, PORT)).await.unwrap();
    shake_hands(&stream, &mut tls).await;
    let (tls, mut records) = (RefCell::new(tls), Vec::new());
    let say = async {
        for piece in text.chunks(5000) {
            let mut records = Vec::new();
            tls.borrow_mut().writer().write_all(piece).unwrap();
            tls.borrow_mut().write_tls(&mut records).unwrap();
            stream.send_all(&records).await.unwrap();
        }
        tls.borrow_mut().send_close_notify();
        tls.borrow_mut().write_tls(&mut records).unwrap();
        stream.send_all(&records).await.unwrap();
    };
    let hear = async {
        let mut heard = Vec::new();
        while let Some(bytes) = stream.receive_bytes().await.unwrap() {
            take(&mut tls.borrow_mut(), &bytes, &mut heard);
        }
        heard
    };
    both(say, hear).await.1
}

async fn shake_hands(stream: &TcpStream<Device>, tls: &mut ClientConnection) {
    while tls.is_handshaking() {
        let mut records = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut records).unwrap();
        }
        stream.send_all(&records).await.unwrap();
        let bytes = stream.receive_bytes().await.unwrap().expect("the server answers");
        take(tls, &bytes, &mut Vec::new());
    }
}

fn take(tls: &mut ClientConnection, mut bytes: &[u8], heard: &mut Vec<u8>) {
    while !bytes.is_empty() {
        tls.read_tls(&mut bytes).unwrap();
        tls.process_new_packets().unwrap();
        let _ = tls.reader().read_to_end(heard);
    }
}

#[test]
fn both_sides_talk_at_the_same_time() {
    for (seed, loss) in [(1, 0), (2, 3)] {
        let mut world = World::new(loss);
        let (identity, root) = identity();
        let [question, answer] = [1, 2].map(|part| Random::new(seed * part).bytes(1_500_000));
        let said = answer.clone();
        let handle = world.loops[1].handle().clone();
        // It has room for a part of a record, so that none is taken in one go.
        world.networks[0].with(|sockets| sockets.set_receive_max(10_000));
        let served = serve(&world, identity, |tls| async move {
            let tls = Rc::new(tls.unwrap());
            // Two who send at the same time, and one who receives: no record is torn apart.
            let (first, second) = said.split_at(said.len() / 2);
            let [first, second] = [first, second].map(|part| {
                let (tls, part) = (tls.clone(), part.to_vec());
                handle.spawn(async move { tls.send_all(&part).await.unwrap() })
            });
            let hear = async {
                let (mut heard, mut piece) = (Vec::new(), [0; 7000]);
                loop {
                    match tls.receive(&mut piece).await.unwrap() {
                        0 => return heard,
                        len => heard.extend_from_slice(&piece[..len]),
                    }
                }
            };
            let heard = hear.await;
            first.await.unwrap();
            second.await.unwrap();
            tls.finish().await.unwrap();
            heard
        });
        let heard = Rc::new(RefCell::new(None));
        let (network, hears, asked) = (world.networks[0].clone(), heard.clone(), question.clone());
        world.loops[0].handle().spawn(async move {
            *hears.borrow_mut() = Some(ask(network, client(&root), asked).await);
        });
        world.run(|| heard.borrow().is_some() && served.borrow().is_some());
        assert!(served.take() == Some(question));
        // Which of the two came first is not said, but all of both came: sums do not depend on the order.
        let sum = |bytes: &[u8]| bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>();
        let heard = heard.take().expect("it was heard");
        assert_eq!((heard.len(), sum(&heard)), (answer.len(), sum(&answer)));
    }
}

#[test]
fn an_end_that_nobody_announced_is_no_end() {
    let mut world = World::new(0);
    let (identity, root) = identity();
    let served = serve(&world, identity, |tls| async move {
        let (tls, mut piece) = (tls.unwrap(), [0; 10]);
        (tls.receive(&mut piece).await, tls.receive(&mut piece).await)
    });
    let network = world.networks[0].clone();
    world.loops[0].handle().spawn(async move {
        let (stream, mut tls) = (network.connect(address(2, PORT)).await.unwrap(), client(&root));
        shake_hands(&stream, &mut tls).await;
        let mut records = Vec::new();
        tls.writer().write_all(b"cut").unwrap();
        while tls.wants_write() {
            tls.write_tls(&mut records).unwrap();
        }
        stream.send_all(&records).await.unwrap();
        stream.shutdown(Shutdown::Send).unwrap();
        stream.receive_bytes().await.unwrap();
    });
    world.run(|| served.borrow().is_some());
    assert_eq!(served.take(), Some((Ok(3), Err(Error::Truncated))));
}

#[test]
fn who_speaks_no_tls_is_told_so() {
    let mut world = World::new(0);
    let served = serve(&world, identity().0, |tls| async move { tls.map(drop) });
    let (network, heard) = (world.networks[0].clone(), Rc::new(RefCell::new(None)));
    let hears = heard.clone();
    world.loops[0].handle().spawn(async move {
        let stream = network.connect(address(2, PORT)).await.unwrap();
        stream.send_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        *hears.borrow_mut() = Some(stream.receive_bytes().await.unwrap().map(|bytes| bytes.to_vec()));
    });
    world.run(|| heard.borrow().is_some() && served.borrow().is_some());
    assert!(matches!(served.take(), Some(Err(Error::Protocol(_)))));
    // An alert: fatal, decode_error (RFC 8446 section 6).
    assert_eq!(heard.take(), Some(Some(vec![21, 3, 3, 0, 2, 2, 50])));
}

#[test]
fn nothing_follows_a_record_that_was_sent_in_part() {
    let mut world = World::new(0);
    let (identity, root) = identity();
    let handle = world.loops[1].handle().clone();
    let served = serve(&world, identity, |tls| async move {
        let tls = tls.unwrap();
        let much = vec![0; 64 << 20];
        let given_up = handle.timeout(20_000_000, tls.send_all(&much)).await.is_err();
        (given_up, tls.send_all(b"more").await, tls.finish().await)
    });
    let network = world.networks[0].clone();
    world.loops[0].handle().spawn(async move {
        let (stream, mut tls) = (network.connect(address(2, PORT)).await.unwrap(), client(&root));
        shake_hands(&stream, &mut tls).await;
        let mut records = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut records).unwrap();
        }
        stream.send_all(&records).await.unwrap();
        // It never reads.
        std::future::pending::<()>().await;
    });
    world.run(|| served.borrow().is_some());
    assert_eq!(served.take(), Some((true, Err(Error::Interrupted), Err(Error::Interrupted))));
}
