//! The connections to the provider.

use core::net::SocketAddr;
use nom_app::client::{Client, ClientError, Closed, Event, FlowId};
use nom_app::events;
use nom_priced_core::{Command, Daemon, Happening, Link, Loss, Source};

/// The network, if there is a provider.
pub struct Wires(Option<Network>);

struct Network {
    client: Client,
    provider: SocketAddr,
    flows: [Option<FlowId>; Link::ALL.len()],
}

impl Wires {
    /// A network for a source that needs one.
    ///
    /// # Errors
    /// If there is none.
    pub fn new(source: &Source) -> Result<Wires, ClientError> {
        Ok(Wires(match source {
            Source::Provider(provider) => {
                Some(Network { client: Client::new()?, provider: *provider, flows: [None; 2] })
            }
            Source::Fixed(_) => None,
        }))
    }

    /// Tells the daemon what happened.
    pub fn poll(&mut self, now_ns: u64, daemon: &mut Daemon) {
        let Some(network) = &mut self.0 else { return };
        network.client.poll(now_ns);
        while let Some(event) = network.client.event() {
            match event {
                Event::Connected(flow) => network.tell(now_ns, daemon, flow, Happening::Connected),
                Event::Received(flow, bytes) => {
                    network.tell(now_ns, daemon, flow, Happening::Received(&bytes));
                }
                Event::Closed(flow, why) => {
                    network.tell(now_ns, daemon, flow, Happening::Closed(loss(why)));
                    network
                        .flows
                        .iter_mut()
                        .filter(|known| **known == Some(flow))
                        .for_each(|flow| *flow = None);
                }
            }
        }
    }

    /// Does what the daemon wants done; whether there was anything.
    pub fn obey(&mut self, now_ns: u64, daemon: &mut Daemon) -> bool {
        let Some(network) = &mut self.0 else { return false };
        let mut has_worked = false;
        while let Some((link, command)) = daemon.command() {
            has_worked = true;
            if let Err(loss) = network.obey(link, &command) {
                daemon.happened(now_ns, link, Happening::Closed(loss));
            }
        }
        has_worked
    }

    /// Sleeps until there may be something to do.
    pub fn sleep(&mut self, deadline_ns: Option<u64>) {
        match &mut self.0 {
            Some(network) => network.client.sleep(deadline_ns),
            None => drop(events::wait(deadline_ns)),
        }
    }
}

impl Network {
    fn tell(&mut self, now_ns: u64, daemon: &mut Daemon, flow: FlowId, happening: Happening<'_>) {
        // A flow that was given up means nothing any more.
        if let Some(link) = Link::ALL.into_iter().find(|link| self.flows[*link as usize] == Some(flow)) {
            daemon.happened(now_ns, link, happening);
        }
    }

    fn obey(&mut self, link: Link, command: &Command) -> Result<(), Loss> {
        let flow = &mut self.flows[link as usize];
        match command {
            Command::Connect => {
                *flow = Some(self.client.connect(self.provider).map_err(|_| Loss::Unreachable)?);
            }
            Command::Send(bytes) => {
                let is_sent = flow.is_some_and(|flow| self.client.send(flow, bytes));
                return if is_sent { Ok(()) } else { Err(Loss::Reset) };
            }
            Command::Drop => {
                if let Some(flow) = flow.take() {
                    self.client.abort(flow);
                }
            }
        }
        Ok(())
    }
}

fn loss(why: Closed) -> Loss {
    match why {
        Closed::Finished => Loss::Finished,
        Closed::Reset => Loss::Reset,
        Closed::Refused => Loss::Refused,
        Closed::TimedOut => Loss::TimedOut,
        Closed::Unreachable => Loss::Unreachable,
    }
}
