//! How programs are loaded, each by its users' own client or by the one that `nom bench serve` has.

use super::redis;
use crate::serve::load::{self, Load, Transport};
use crate::serve::running::Running;
use crate::serve::service::{self, Service};
use crate::serve::tools;
use anyhow::{Context, Result};
use std::time::Duration;

/// How many connections are many.
const MANY: usize = 16;
/// How many datagrams each of many sockets has on its way: see `crate::serve::runs`.
const DEPTH: usize = 4;
/// Requests of redis a second that are reckoned with before any was made.
const SLOW: f64 = 2000.0;

/// A way to load a program.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name in records.
    pub name: &'static str,
    connections: usize,
    client: Client,
}

#[derive(Clone, Copy, Debug)]
enum Client {
    /// This project's own, with so many requests of each socket on their way.
    Memcached(Transport, usize),
    /// `wrk`, with connections that are kept.
    Wrk,
    /// `redis-benchmark` with a command, so many at a time on each connection.
    Redis(&'static str, u32),
}

/// What a client saw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Served {
    /// Replies.
    pub requests: u64,
    /// Replies a second.
    pub throughput: f64,
    /// Seconds to a reply: mean, median, and percentile 99.
    pub latency: [f64; 3],
}

const fn scenario(name: &'static str, connections: usize, client: Client) -> Scenario {
    Scenario { name, connections, client }
}

const MEMCACHED: &[Scenario] = &[
    scenario("tcp-many", MANY, Client::Memcached(Transport::Tcp, 1)),
    scenario("tcp-single", 1, Client::Memcached(Transport::Tcp, 1)),
    scenario("udp-many", MANY, Client::Memcached(Transport::Udp, DEPTH)),
];
const REDIS: &[Scenario] = &[
    scenario("get", MANY, Client::Redis("get", 1)),
    scenario("set", MANY, Client::Redis("set", 1)),
    scenario("get-by-16", MANY, Client::Redis("get", 16)),
    scenario("set-by-16", MANY, Client::Redis("set", 16)),
];
const HTTP: &[Scenario] =
    &[scenario("keep-alive-many", MANY, Client::Wrk), scenario("keep-alive-single", 1, Client::Wrk)];

/// The ways in which a program is loaded.
pub fn scenarios(service: &Service) -> &'static [Scenario] {
    match service.name {
        "memcached" => MEMCACHED,
        "redis" => REDIS,
        _ => HTTP,
    }
}

/// What a program needs to have before it is loaded.
///
/// # Errors
/// If it takes nothing.
pub fn prepare(running: &Running, service: &Service) -> Result<()> {
    if service.name == "memcached" {
        let target = running.target();
        running.inside(|| load::once(target, &service::sets())).context("storing the values")?;
    }
    Ok(())
}

impl Scenario {
    /// Loads a program for about `duration`, which answers some `expected` requests a second.
    ///
    /// # Errors
    /// If the client fails, or an answer is wrong or missing.
    pub fn run(&self, running: &Running, duration: Duration, expected: Option<f64>) -> Result<Served> {
        let (namespace, target, connections) = (running.namespace(), running.target(), self.connections);
        match self.client {
            Client::Memcached(transport, window) => {
                let (exchanges, warm_up) = (&service::gets()[..], Duration::ZERO);
                let load =
                    Load { target, transport, connections, window, exchanges, qemu: None, warm_up, duration };
                let served = running.inside(|| load::run(&load))?;
                let at = |quantile| served.latency.value_at_quantile(quantile) as f64 / 1e9;
                let latency = [served.latency.mean() / 1e9, at(0.5), at(0.99)];
                Ok(Served { requests: served.replies(), throughput: served.throughput(), latency })
            }
            Client::Wrk => {
                let seen = tools::wrk(namespace, running.scratch(), target, connections, duration)?;
                let [mean, _, median, p99, _] = seen.latency;
                let (requests, throughput) = (seen.requests, seen.throughput);
                Ok(Served { requests, throughput, latency: [mean, median, p99] })
            }
            Client::Redis(test, pipeline) => {
                let rate = expected.unwrap_or(SLOW * f64::from(pipeline));
                let requests = (rate * duration.as_secs_f64()).ceil().max(1.0) as u64;
                redis::benchmark(namespace, target, (test, pipeline), connections, requests)
            }
        }
    }
}
