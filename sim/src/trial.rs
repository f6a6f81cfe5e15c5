//! A service of one's own, between clients on a faulty network: one run, from a seed.
//!
//! ```ignore
//! let client = Talk::new().say("ping\n").hear("pong\n");
//! Trial::new(seed).client(7, client).run(service);
//! ```
//!
//! A run fails by a panic that says what was expected. The same seed does the same again.

use crate::clients::caller::{Conversation, Wish};
use crate::memory::Memory;
use crate::scenario::{Builder, LIMIT, address};
use crate::world::Outcome;
use nom_net::Closed;
use nom_rt::handle::Handle;
use nom_service::Service;
use std::net::IpAddr;
use std::time::Duration;

/// A run before it begins.
pub struct Trial {
    seed: u64,
    is_sound: bool,
    is_printed: bool,
    clients: Vec<(u16, Talk)>,
    behind: Option<Behind>,
}

/// Adds the machine behind the service.
type Behind = Box<dyn FnOnce(&mut Builder)>;

impl Trial {
    /// A run in which all that is random comes from `seed`: how links lose, delay, double and damage frames,
    /// how fast clocks are, how the stacks of both sides are set up.
    pub fn new(seed: u64) -> Trial {
        Trial { seed, is_sound: false, is_printed: false, clients: Vec::new(), behind: None }
    }

    /// The same on a network that does no harm.
    pub fn sound(self) -> Trial {
        Trial { is_sound: true, ..self }
    }

    /// The same, with every frame printed.
    pub fn traced(self) -> Trial {
        Trial { is_printed: true, ..self }
    }

    /// One more client, which connects to TCP port `port`. Clients speak at the same time.
    pub fn client(mut self, port: u16, talk: Talk) -> Trial {
        self.clients.push((port, talk));
        self
    }

    /// A second machine, at [`Trial::address_behind`], for a service that asks another one: it serves at TCP
    /// port `port` what `make` makes.
    pub fn behind<S: Service<Memory> + 'static>(
        self,
        port: u16,
        make: impl FnOnce(&Handle) -> S + 'static,
    ) -> Trial {
        let add = move |builder: &mut Builder| builder.serve_at(vec![port], make);
        Trial { behind: Some(Box::new(add)), ..self }
    }

    /// Where the second machine is.
    pub fn address_behind() -> IpAddr {
        address(1, true)
    }

    /// Runs until every client has said and heard everything, and all connections are gone.
    ///
    /// # Panics
    /// If a client hears something else than it should, or starves; if the service panics, or keeps memory of
    /// the device when it ends.
    pub fn run<S: Service<Memory> + 'static>(self, service: S) -> Outcome {
        self.run_with(|_| service)
    }

    /// The same with a service that is made on the loop that will poll it: one of tasks.
    ///
    /// # Panics
    /// As [`Trial::run`].
    pub fn run_with<S: Service<Memory> + 'static>(self, service: impl FnOnce(&Handle) -> S) -> Outcome {
        let mut ports: Vec<u16> = self.clients.iter().map(|(port, _)| *port).collect();
        ports.sort_unstable();
        ports.dedup();
        let talks = self.clients.into_iter().map(|(port, talk)| (port, Box::new(talk) as Box<_>));
        let mut builder = Builder::new(self.seed, self.is_sound, self.is_printed);
        self.behind.into_iter().for_each(|add| add(&mut builder));
        builder.trial(service, ports, talks.collect());
        builder.world.run(LIMIT)
    }
}

/// One step of a client.
#[derive(Clone, Debug)]
enum Step {
    Say(Vec<u8>),
    Hear(Vec<u8>),
    Wait(Duration),
}

/// What a client says, and what it must hear, in order. If its connection breaks it begins anew.
#[derive(Clone, Debug, Default)]
pub struct Talk {
    steps: Vec<Step>,
    /// Steps that are done.
    done: usize,
    /// What was heard and not yet expected.
    input: Vec<u8>,
    /// When it goes on, while it waits.
    until_ns: Option<u64>,
}

impl Talk {
    /// A client that says nothing.
    pub fn new() -> Talk {
        Talk::default()
    }

    /// Then it sends these bytes.
    pub fn say(self, bytes: impl AsRef<[u8]>) -> Talk {
        self.then(Step::Say(bytes.as_ref().to_vec()))
    }

    /// Then exactly these bytes must come.
    pub fn hear(self, bytes: impl AsRef<[u8]>) -> Talk {
        self.then(Step::Hear(bytes.as_ref().to_vec()))
    }

    /// Then it lets so much time pass, by its own clock.
    pub fn wait(self, time: Duration) -> Talk {
        self.then(Step::Wait(time))
    }

    fn then(mut self, step: Step) -> Talk {
        self.steps.push(step);
        self
    }

    /// Whether the bytes that are expected next have come.
    fn has_heard(&mut self, expected: &[u8]) -> bool {
        let common = self.input.len().min(expected.len());
        assert!(
            self.input[..common] == expected[..common],
            "step {}: a client heard `{}`, expected `{}`",
            self.done,
            self.input.escape_ascii(),
            expected.escape_ascii()
        );
        let is_whole = common == expected.len();
        if is_whole {
            self.input.drain(..common);
        }
        is_whole
    }
}

impl Conversation for Talk {
    fn opened(&mut self) {
        (self.done, self.until_ns) = (0, None);
        self.input.clear();
    }

    fn go_on(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Wish {
        while let Some(step) = self.steps.get(self.done).cloned() {
            match step {
                Step::Say(bytes) => out.extend(bytes),
                Step::Hear(expected) if !self.has_heard(&expected) => return Wish::Answer,
                Step::Hear(_) => {}
                Step::Wait(time) => {
                    let until_ns = *self.until_ns.get_or_insert(now_ns + time.as_nanos() as u64);
                    if now_ns < until_ns {
                        return Wish::Until(until_ns);
                    }
                    self.until_ns = None;
                }
            }
            self.done += 1;
        }
        assert!(self.input.is_empty(), "a client heard `{}` too much", self.input.escape_ascii());
        Wish::Close
    }

    fn received(&mut self, _: u64, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    fn ended(&mut self, _: u64, why: Closed) {
        let (done, all) = (self.done, self.steps.len());
        assert!(
            done == all || why != Closed::Finished,
            "the service ended the connection at step {done} of {all}"
        );
    }

    fn is_over(&self) -> bool {
        self.done == self.steps.len()
    }

    fn achieved(&self) -> u64 {
        self.steps[..self.done].iter().filter(|step| matches!(step, Step::Hear(_))).count() as u64
    }
}
