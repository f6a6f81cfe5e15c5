//! What the author of a service can do wrong: it ends that task and that stream, with a reason.

mod common;

use common::{World, contained};
use nom_async::{AsyncCore, AsyncService, ByteStream, StreamError};
use nom_service::StreamEnd;
use nom_wire::Memory;
use std::cell::RefCell;
use std::rc::Rc;

/// Sends back what it is sent; panics at `!`, connected to itself by then.
async fn fragile(stream: ByteStream<Memory>, core: AsyncCore<Memory>) -> Result<(), StreamError> {
    while let Some(bytes) = stream.receive().await? {
        assert!(bytes[0] != b'!', "a wish");
        if bytes[0] == b'?' {
            let joined = core.spawn(async { panic!("a wish of a wish") });
            joined.await.expect_err("it panics");
        }
        stream.share(bytes).await?;
    }
    Ok(())
}

#[test]
fn a_task_that_panics_ends_its_stream_and_nothing_else() {
    let mut world = World::new(0, |handle| {
        contained(handle);
        AsyncService::new(handle, fragile)
    });
    world.steps(50);
    world.say(0, b"first");
    world.say(1, b"second");
    world.steps(100);
    assert_eq!(world.heard(), 11);
    // A task of a task is a task: who joins it is told.
    world.say(1, b"?");
    world.steps(100);
    assert_eq!(world.heard(), 12);
    world.say(0, b"!");
    world.steps(100);
    assert_eq!(world.ends(), [Some(nom_net::Closed::Reset), None], "its client must not wait for ever");
    world.say(1, b"third");
    world.steps(100);
    assert_eq!(world.heard(), 17, "the other one is served as before");
}

#[test]
#[should_panic(expected = "32 tasks of this core have panicked, and one more")]
fn who_has_tasks_panic_without_end_does_not_take_all_memory() {
    let mut world = World::new(0, |handle| {
        contained(handle);
        AsyncService::new(handle, |stream: ByteStream<Memory>, core: AsyncCore<Memory>| async move {
            while stream.receive().await?.is_some() {
                core.spawn(async { panic!("once more") });
            }
            Ok::<(), StreamError>(())
        })
    });
    world.steps(50);
    for _ in 0..40 {
        world.say(0, b"x");
        world.steps(20);
    }
}

#[test]
fn an_answer_to_a_stream_that_has_ended_is_refused_with_the_reason() {
    let said = Rc::new(RefCell::new(Vec::new()));
    let says = said.clone();
    let mut world = World::new(0, move |handle| {
        AsyncService::new(handle, move |stream: ByteStream<Memory>, core: AsyncCore<Memory>| {
            let says = says.clone();
            async move {
                let bytes = stream.receive().await?;
                core.sleep(100_000_000).await;
                let answered = stream.share(bytes.expect("it asks")).await;
                says.borrow_mut().push(answered);
                stream.finish();
                let more = stream.send_all(b"more").await;
                says.borrow_mut().push(more);
                answered
            }
        })
    });
    world.steps(50);
    world.say(0, b"x");
    world.steps(5);
    world.reset(0);
    world.say(1, b"x");
    world.steps(2_000);
    let reset = Err(StreamError::Ended(StreamEnd::Reset));
    assert_eq!(said.take(), [reset, reset, Ok(()), Err(StreamError::Finished)]);
    assert_eq!(world.heard(), 1);
}

#[test]
fn an_answer_for_which_there_is_no_memory_ends_its_stream_and_nothing_else() {
    let said = Rc::new(RefCell::new(Vec::new()));
    let says = said.clone();
    let mut world = World::new(0, move |handle| {
        AsyncService::new(handle, move |stream: ByteStream<Memory>, _| {
            let says = says.clone();
            async move {
                while let Some(bytes) = stream.receive().await? {
                    stream.send_all(&bytes).await?;
                    stream.send_all(b", and more").await.inspect_err(|why| says.borrow_mut().push(*why))?;
                }
                Ok::<(), StreamError>(())
            }
        })
    });
    world.steps(50);
    world.say(0, b"x");
    world.steps(100);
    assert_eq!(world.heard(), 11);
    world.devices[0].port.borrow_mut().is_memory_short = true;
    world.say(0, b"there is no memory for the copy");
    world.steps(100);
    world.devices[0].port.borrow_mut().is_memory_short = false;
    assert_eq!(world.ends(), [Some(nom_net::Closed::Reset), None], "a part would be taken for the whole");
    world.say(1, b"y");
    world.steps(100);
    assert_eq!(world.heard(), 22);
    assert!(said.borrow().is_empty(), "it hears of that when it does something next");
}
