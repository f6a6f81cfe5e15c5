//! A service of tasks and one of callbacks that do the same, behind the same clients: a governor is told the
//! same of both. And what tasks can do beside: answer later than the next request, and stop listening.

mod common;

use common::{STEP_NS, World};
use nom_async::{AsyncService, Beside, ByteStream, StreamError};
use nom_net::Slice;
use nom_port::buffer::Sink as _;
use nom_rt::Handle;
use nom_service::{Metrics, Reply, Service, Stream, Window};
use nom_wire::Memory;
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

/// The echo of callbacks.
struct Echo;

impl Service<Memory> for Echo {
    type Connection = ();

    fn connected(&mut self, _: SocketAddr, _: &mut Reply<Memory>) -> Option<()> {
        Some(())
    }

    fn received(&mut self, (): &mut (), bytes: Slice<Memory>, reply: &mut Reply<Memory>) -> Stream {
        reply.share(bytes);
        Stream::Open
    }
}

async fn echo(stream: ByteStream<Memory>) -> Result<(), StreamError> {
    while let Some(bytes) = stream.receive().await? {
        stream.share(bytes).await?;
    }
    Ok(())
}

/// What a governor that sets W hears of a service under two clients.
fn windows<S: Service<Memory> + 'static>(micros: u64, make: impl FnOnce(&Handle) -> S) -> Vec<Window> {
    let mut world = World::new(micros, make);
    world.steps(50);
    for turn in 0..400 {
        world.say(turn % 2, &vec![b'x'; 1 + turn * 7 % 1000]);
        world.steps(1 + turn % 5);
    }
    world.steps(1_000);
    assert_eq!(world.heard(), world.said);
    world.windows.take()
}

#[test]
fn a_governor_is_told_the_same_of_tasks_and_of_callbacks() {
    for micros in [0, 300] {
        let callbacks = windows(micros, |_| Echo);
        let tasks = windows(micros, |handle| AsyncService::new(handle, |stream, _| echo(stream)));
        assert_eq!(callbacks.iter().map(|window| window.requests).sum::<u64>(), 400);
        assert_eq!(callbacks, tasks, "W = {micros} us");
    }
}

#[test]
fn a_later_answer_counts_from_when_its_request_arrived() {
    const LATER_NS: u64 = 50_000_000;
    let mut world = World::new(0, |handle| {
        AsyncService::new(handle, |stream: ByteStream<Memory>, core| async move {
            while let Some(bytes) = stream.receive().await? {
                core.sleep(LATER_NS).await;
                stream.count(2);
                stream.send_all(&bytes).await?;
            }
            Ok::<(), StreamError>(())
        })
    });
    world.steps(50);
    for _ in 0..10 {
        world.say(0, b"one and two");
        world.steps(700);
    }
    world.steps(20_000);
    let (requests, bytes, sum_ns) = world.served();
    assert_eq!((requests, bytes, world.heard()), (20, 110, 110));
    let mean_ns = sum_ns / requests;
    assert!((LATER_NS..=LATER_NS + 2 * STEP_NS).contains(&mean_ns), "{mean_ns} ns");
}

/// Tells what it has counted.
struct Counted(Rc<Cell<u64>>);

impl Beside<Memory> for Counted {
    fn metrics(&self, out: &mut Metrics) {
        out.counter("echo_lines_total", "Lines that came.", self.0.get());
    }
}

#[test]
fn the_control_port_tells_of_tasks_and_of_what_they_count() {
    let lines = Rc::new(Cell::new(0));
    let counts = lines.clone();
    let serve = move |stream: ByteStream<Memory>, _| {
        let counts = counts.clone();
        async move {
            while let Some(bytes) = stream.receive().await? {
                counts.set(counts.get() + 1);
                stream.share(bytes).await?;
            }
            Ok::<(), StreamError>(())
        }
    };
    let mut world = World::new(0, |handle| AsyncService::new(handle, serve).beside(Counted(lines)));
    world.steps(50);
    for _ in 0..3 {
        world.say(1, b"line");
        world.steps(50);
    }
    // What the server counts is told when a window has ended.
    world.steps(20_000);
    let told = world.ask_control("/metrics");
    for line in ["echo_lines_total 3", "nom_requests_total 3"] {
        assert!(told.lines().any(|told| told == line), "{line}: {told}");
    }
}

#[test]
fn who_is_not_listened_to_is_stopped_and_heard_to_the_end_later() {
    const WAIT_NS: u64 = 500_000_000;
    let taken = Rc::new(Cell::new(0));
    let seen = taken.clone();
    let mut world = World::new(0, move |handle| {
        AsyncService::new(handle, move |stream: ByteStream<Memory>, core| {
            let seen = seen.clone();
            async move {
                core.sleep(WAIT_NS).await;
                while let Some(bytes) = stream.receive().await? {
                    seen.set(seen.get() + bytes.len());
                }
                Ok::<(), StreamError>(())
            }
        })
    });
    world.steps(50);
    let piece = [b'x'; 1000];
    for _ in 0..300 {
        world.say(0, &piece);
    }
    world.steps(4_000);
    let (stack, asker) = &world.askers[0];
    let left = stack.queued(asker.flow.expect("it is connected"));
    assert!(taken.get() == 0 && left > 250_000, "{left} bytes of 300,000 wait on the other side");
    world.steps(20_000);
    assert_eq!(taken.get(), 300_000, "all that came is there");
}
