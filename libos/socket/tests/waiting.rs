//! Tasks and threads that wait for sockets, each machine on a loop of its own and all on virtual time.

mod common;

use common::{Device, Loop, Random, World, address};
use corosensei::stack::DefaultStack;
use nom_rt::threads::{Thread, Threads};
use nom_socket::{
    Blocking, Error, Event, Family, Network, Ready, ResolveError, Shutdown, TcpStream, UdpSocket,
};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::rc::Rc;

const PORT: u16 = 7;

fn threads(core: &Loop) -> Threads {
    Threads::new(core.handle(), || DefaultStack::new(64 * 1024).ok())
}

/// Sends back what comes, from a thread.
fn echo(client: &TcpStream<Device>, thread: &Thread<'_>) -> Result<(), Error> {
    let client = Blocking::new(client, thread);
    let mut buffer = [0; 1500];
    loop {
        match client.receive(&mut buffer)? {
            0 => return Ok(()),
            len => client.send_all(&buffer[..len])?,
        }
    }
}

/// A client that sends `bytes` and compares what comes back; the number of those that were content goes up.
async fn ask(network: Network<Device>, bytes: Vec<u8>, content: Rc<Cell<usize>>) {
    let stream = network.connect(address(2, PORT)).await.unwrap();
    let (mut back, mut buffer) = (Vec::new(), [0; 777]);
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        rest = &rest[stream.send(rest).await.unwrap()..];
    }
    stream.shutdown(Shutdown::Send).unwrap();
    loop {
        match stream.receive(&mut buffer).await.unwrap() {
            0 => break,
            len => back.extend_from_slice(&buffer[..len]),
        }
    }
    assert!(back == bytes, "{} of {} bytes came back", back.len(), bytes.len());
    content.set(content.get() + 1);
}

const CLIENTS: usize = 10;

/// Starts the clients on machine 0 and runs until all are content.
fn load(world: &mut World) {
    let content = Rc::new(Cell::new(0));
    for seed in 0..CLIENTS {
        let bytes = Random::new(seed as u64).bytes(50_000);
        world.loops[0].handle().spawn(ask(world.networks[0].clone(), bytes, content.clone()));
    }
    world.run(|| content.get() == CLIENTS);
    let networks = world.networks.clone();
    world.run(|| networks[0].with(|sockets| sockets.is_empty()));
}

#[test]
fn threads_block_on_sockets_and_nobody_else_does() {
    for loss in [0, 3] {
        let mut world = World::new(loss);
        let threads = threads(&world.loops[1]);
        let (network, starts) = (world.networks[1].clone(), threads.clone());
        let accept = move |thread: &Thread<'_>| {
            let listener = network.listen(PORT).expect("the port is free");
            loop {
                let client = Blocking::new(&listener, thread).accept().expect("somebody connects");
                let serve = move |thread: &Thread<'_>| echo(&client, thread).expect("clients are polite");
                starts.spawn(NonZeroU32::MIN, serve).expect("there are stacks");
            }
        };
        threads.spawn(NonZeroU32::MIN, accept).expect("there are stacks");
        load(&mut world);
        world.run(|| threads.len() == 1);
    }
}

/// One task that serves all clients by an interest set.
async fn serve_all(network: Network<Device>) -> Result<(), Error> {
    let listener = network.listen(PORT)?;
    let poll = network.with(|sockets| sockets.add_poll());
    network.with(|sockets| sockets.watch(poll, listener.id(), 0, Ready::READABLE))?;
    let mut clients = HashMap::new();
    let mut next = 1;
    let mut events = [Event::default(); 4];
    loop {
        let count = network.wait(poll, &mut events).await?;
        for event in &events[..count] {
            if event.token == 0 {
                let client = listener.try_accept()?;
                network.with(|sockets| sockets.watch(poll, client.id(), next, Ready::READABLE))?;
                clients.insert(next, (client, Vec::new()));
                next += 1;
            } else if is_over(&network, poll, event, clients.get_mut(&event.token).expect("a client")) {
                clients.remove(&event.token);
            }
        }
    }
}

/// Echoes as far as there is room; whether the client is done.
fn is_over(
    network: &Network<Device>,
    poll: nom_socket::PollId,
    event: &Event,
    (client, unsent): &mut (TcpStream<Device>, Vec<u8>),
) -> bool {
    let mut buffer = [0; 900];
    if unsent.is_empty() {
        match client.try_receive(&mut buffer) {
            Ok(0) => return true,
            Ok(len) => unsent.extend_from_slice(&buffer[..len]),
            Err(error) => assert_eq!(error, Error::WouldBlock),
        }
    }
    if let Ok(sent) = client.try_send(unsent) {
        unsent.drain(..sent);
    }
    let wanted = if unsent.is_empty() { Ready::READABLE } else { Ready::WRITABLE };
    network.with(|sockets| sockets.watch(poll, client.id(), event.token, wanted)).expect("it is open");
    false
}

#[test]
fn one_task_serves_all_by_readiness() {
    let mut world = World::new(2);
    let network = world.networks[1].clone();
    world.loops[1].handle().spawn(async { serve_all(network).await.expect("it serves for ever") });
    load(&mut world);
}

/// Accepts machine 0's clients in a task, and serves each in one of its own.
fn serve_each<F: Future<Output = ()> + 'static>(
    world: &World,
    serve: impl Fn(TcpStream<Device>) -> F + 'static,
) {
    let (network, handle) = (world.networks[1].clone(), world.loops[1].handle().clone());
    world.loops[1].handle().spawn(async move {
        let listener = network.listen(PORT).expect("the port is free");
        loop {
            handle.spawn(serve(listener.accept().await.expect("somebody connects")));
        }
    });
}

#[test]
fn what_came_is_sent_again_as_it_lies() {
    for loss in [0, 3] {
        let mut world = World::new(loss);
        serve_each(&world, |client| async move {
            while let Some(bytes) = client.receive_bytes().await.expect("clients are polite") {
                client.send_bytes(&bytes).await.expect("clients are polite");
            }
        });
        load(&mut world);
    }
}

#[test]
fn code_that_knows_nothing_of_sockets_serves_by_the_common_traits() {
    async fn copy<S: embedded_io_async::Read + embedded_io_async::Write>(mut stream: S) {
        let mut buffer = [0; 1000];
        loop {
            match stream.read(&mut buffer).await.expect("clients are polite") {
                0 => return stream.flush().await.expect("clients are polite"),
                len => stream.write_all(&buffer[..len]).await.expect("clients are polite"),
            }
        }
    }
    let mut world = World::new(3);
    serve_each(&world, copy);
    load(&mut world);
}

#[test]
fn datagrams_wake_who_waits_for_them() {
    let mut world = World::new(0);
    let server = world.networks[1].bind(53).unwrap();
    world.loops[1].handle().spawn(async move {
        let mut buffer = [0; 100];
        loop {
            let (len, from) = server.receive_from(&mut buffer).await.unwrap();
            server.send_to(&buffer[..len], from).await.unwrap();
        }
    });
    let answers = Rc::new(RefCell::new(Vec::new()));
    let (threads, network, said) = (threads(&world.loops[0]), world.networks[0].clone(), answers.clone());
    let asks = move |thread: &Thread<'_>| {
        let socket = network.bind(0).expect("a port is free");
        let socket = Blocking::new(&socket, thread);
        for word in ["one", "two"] {
            let mut buffer = [0; 100];
            socket.send_to(word.as_bytes(), address(2, 53)).expect("it is sent");
            let (len, from) = socket.receive_from(&mut buffer).expect("it is answered");
            assert_eq!(from, address(2, 53));
            said.borrow_mut().push(String::from_utf8_lossy(&buffer[..len]).into_owned());
        }
    };
    threads.spawn(NonZeroU32::MIN, asks).expect("there is a stack");
    world.run(|| threads.is_empty());
    assert_eq!(*answers.borrow(), ["one", "two"]);
}

/// Answers questions for addresses of names that begin with `w` by 10.0.0.77; there are no others.
async fn name_names(socket: UdpSocket<Device>) {
    let mut message = [0; 512];
    while let Ok((len, from)) = socket.receive_from(&mut message).await {
        let mut answer = message[..len].to_vec();
        answer[2] |= 0x80;
        match message[13] {
            b'w' => {
                answer[7] = 1;
                answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 10, 0, 0, 77]);
            }
            _ => answer[3] |= 3,
        }
        let _ = socket.send_to(&answer, from).await;
    }
}

#[test]
fn a_name_is_resolved_while_others_wait() {
    let mut world = World::new(10);
    let [server, client] = world.networks.clone();
    world.loops[0].handle().spawn(name_names(server.bind(53).expect("it is free")));
    let found = Rc::new(RefCell::new(Vec::new()));
    for name in ["www.example.org", "absent.example.org", "w.example.org", "a..b"] {
        let (client, found) = (client.clone(), found.clone());
        world.loops[1].handle().spawn(async move {
            let answer = client.resolve(name, Family::V4).await;
            found.borrow_mut().push((name, answer));
        });
    }
    world.run(|| found.borrow().len() == 4);
    let known = vec![[10, 0, 0, 77].into()];
    for (name, answer) in found.take() {
        let expected = match name {
            "absent.example.org" => Err(ResolveError::NoSuchName),
            "a..b" => Err(ResolveError::BadName),
            _ => Ok(known.clone()),
        };
        assert_eq!(answer, expected, "{name}");
    }
}
