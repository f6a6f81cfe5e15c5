//! Services written as tasks, in the simulator: from a seed, on a faulty network.

use nom_async::{AsyncCore, AsyncService, ByteStream, StreamError};
use nom_sim::memory::Memory;
use nom_sim::{Talk, Trial};
use std::time::Duration;

const PORT: u16 = 7;

async fn echo(stream: ByteStream<Memory>) -> Result<(), StreamError> {
    while let Some(bytes) = stream.receive().await? {
        stream.share(bytes).await?;
    }
    Ok(())
}

#[test]
fn tasks_answer_whatever_the_network_does() {
    let text = "every byte of a long text ".repeat(4_000);
    let talk = Talk::new().say(&text).hear(&text).wait(Duration::from_secs(3)).say("two").hear("two");
    let run = |seed| {
        let trial = Trial::new(seed).client(PORT, talk.clone()).client(PORT, talk.clone());
        trial.run_with(|handle| AsyncService::new(handle, |stream, _| echo(stream)))
    };
    for seed in 0..8 {
        run(seed);
    }
    assert_eq!(run(1), run(1), "the same again from its seed");
}

/// Answers each line after as many milliseconds as it says, by a task of its own.
async fn late(stream: ByteStream<Memory>, core: AsyncCore<Memory>) -> Result<(), StreamError> {
    let stream = std::rc::Rc::new(stream);
    let mut line = String::new();
    while let Some(bytes) = stream.receive().await? {
        line += std::str::from_utf8(&bytes).expect("digits");
        while let Some((first, rest)) = line.split_once('\n') {
            let millis: u64 = first.parse().expect("a number");
            let answer = format!("{first} is over\n");
            let (timers, answering) = (core.clone(), stream.clone());
            core.spawn(async move {
                timers.sleep(millis * 1_000_000).await;
                // Who is gone by then hears nothing.
                let _ = answering.send_all(answer.as_bytes()).await;
            });
            line = rest.to_owned();
        }
    }
    Ok(())
}

#[test]
fn an_answer_may_be_later_than_the_next_request() {
    let talk =
        Talk::new().say("900\n300\n").hear("300 is over\n900 is over\n").say("5\n").hear("5 is over\n");
    for seed in 0..8 {
        Trial::new(seed).client(PORT, talk.clone()).run_with(|handle| AsyncService::new(handle, late));
    }
}

/// Moves bytes between a client and the machine behind, both ways at once.
async fn front(stream: ByteStream<Memory>, core: AsyncCore<Memory>) -> Result<(), StreamError> {
    let behind = core.connect((Trial::address_behind(), PORT).into()).await?;
    let (stream, behind) = (std::rc::Rc::new(stream), std::rc::Rc::new(behind));
    let (to, from) = (stream.clone(), behind.clone());
    let answers = core.spawn(async move {
        while let Some(bytes) = from.receive().await? {
            to.share(bytes).await?;
        }
        to.finish();
        Ok::<(), StreamError>(())
    });
    while let Some(bytes) = stream.receive().await? {
        behind.share(bytes).await?;
    }
    behind.finish();
    answers.await.expect("nobody ends it")
}

#[test]
fn a_task_asks_another_machine_while_it_serves() {
    let text = "every byte there and back ".repeat(4_000);
    let talk = Talk::new().say(&text).hear(&text).say("more").hear("more");
    for seed in 0..8 {
        let trial = Trial::new(seed).client(8, talk.clone()).client(8, talk.clone());
        let trial = trial.behind(PORT, |handle| AsyncService::new(handle, |stream, _| echo(stream)));
        trial.run_with(|handle| AsyncService::new(handle, front));
    }
}

#[test]
fn a_machine_that_does_not_listen_refuses_and_the_task_hears_so() {
    let serve = |stream: ByteStream<Memory>, core: AsyncCore<Memory>| async move {
        let refused = core.connect((Trial::address_behind(), 9).into()).await.map(drop);
        stream.receive().await?;
        stream.send_all(refused.expect_err("nobody listens").to_string().as_bytes()).await
    };
    let talk = Talk::new().say("?").hear("the peer refused the connection");
    let trial = Trial::new(1).sound().client(8, talk);
    let trial = trial.behind(PORT, |handle| AsyncService::new(handle, |stream, _| echo(stream)));
    trial.run_with(move |handle| AsyncService::new(handle, serve));
}
