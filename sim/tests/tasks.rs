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
