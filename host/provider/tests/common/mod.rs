//! A client of the REST API, for tests.
#![allow(dead_code, reason = "each test uses its part")]

pub mod list;

use nom_proto::status::{Solvency, Status};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::sync::LazyLock;
use std::time::Duration;
use ureq::http::Response;
use ureq::{Agent, Body};

/// Far longer than anything takes, on however loaded a machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A client that takes every status for an answer, and keeps its connections.
pub fn agent() -> Agent {
    static AGENT: LazyLock<Agent> = LazyLock::new(|| {
        Agent::config_builder().http_status_as_error(false).timeout_global(Some(PATIENCE)).build().into()
    });
    AGENT.clone()
}

/// One that keeps none: who is refused is hung up on, as the rest of what he sends is not read, and whether
/// that is seen before the next request is chance.
fn agent_for_one() -> Agent {
    let config = Agent::config_builder().http_status_as_error(false).timeout_global(Some(PATIENCE));
    config.max_idle_connections(0).build().into()
}

/// Status and JSON body of an answer.
pub fn answer(response: Result<Response<Body>, ureq::Error>) -> (u16, Value) {
    let mut response = response.expect("an answer");
    let text = response.body_mut().read_to_string().expect("a body");
    (response.status().as_u16(), serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

/// GET.
pub fn get(url: &str) -> (u16, Value) {
    answer(agent().get(url).call())
}

/// GET with a key.
pub fn get_as(key: &str, url: &str) -> (u16, Value) {
    answer(agent().get(url).header("Authorization", format!("Bearer {key}")).call())
}

/// DELETE with a key.
pub fn delete_as(key: &str, url: &str) -> (u16, Value) {
    answer(agent().delete(url).header("Authorization", format!("Bearer {key}")).call())
}

/// POST of JSON, with a token if there is one.
pub fn post(url: &str, token: Option<&str>, body: &Value) -> (u16, Value) {
    let agent = if token.is_some() { agent() } else { agent_for_one() };
    let request = agent.post(url).header("Content-Type", "application/json");
    let request = match token {
        Some(token) => request.header("Authorization", format!("Bearer {token}")),
        None => request,
    };
    answer(request.send(body.to_string()))
}

/// PUT of JSON, with a token.
pub fn put(url: &str, token: &str, body: &str) -> (u16, Value) {
    let request = agent().put(url).header("Content-Type", "application/json");
    answer(request.header("Authorization", format!("Bearer {token}")).send(body))
}

/// Server-sent events of a URL.
pub struct Events(Box<dyn BufRead + Send>);

/// An event, or a comment.
#[derive(Debug, Default)]
pub struct Event {
    pub name: String,
    pub id: String,
    pub data: Value,
    pub is_comment: bool,
}

impl Events {
    pub fn of(url: &str) -> Events {
        Events::asked(agent().get(url))
    }

    /// Those that the owner of a key may see.
    pub fn of_as(key: &str, url: &str) -> Events {
        Events::asked(agent().get(url).header("Authorization", format!("Bearer {key}")))
    }

    fn asked(request: ureq::RequestBuilder<ureq::typestate::WithoutBody>) -> Events {
        let response = request.call().expect("an answer");
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Events(Box::new(BufReader::new(response.into_body().into_reader())))
    }

    /// The next one, be it a comment.
    pub fn next_any(&mut self) -> Event {
        let mut event = Event::default();
        loop {
            let mut line = String::new();
            assert_ne!(self.0.read_line(&mut line).expect("a line"), 0, "the stream ended");
            match line.trim_end().split_once(':') {
                None => return event,
                Some(("", _)) => event.is_comment = true,
                Some(("event", name)) => event.name = name.trim().to_owned(),
                Some(("id", id)) => event.id = id.trim().to_owned(),
                Some(("data", data)) => event.data = serde_json::from_str(data).expect("JSON"),
                Some(_) => panic!("`{line}` is no line of an event"),
            }
        }
    }

    /// The next one that is no comment.
    pub fn next(&mut self) -> Event {
        loop {
            let event = self.next_any();
            if !event.is_comment {
                return event;
            }
        }
    }
}

/// A status of an application.
pub fn status(application: &str, requests: u64) -> Status {
    Status {
        machine: "web-1".into(),
        application: application.into(),
        at_ns: 5_000_000_000,
        window_ns: 1_000_000_000,
        batching_delay_us: 20,
        polls: true,
        cores: 1,
        memory_bytes: 1 << 20,
        machine_cores: 1,
        machine_memory_bytes: 1 << 20,
        requests,
        sent_bytes: 44_000_000,
        received_bytes: 4_000_000,
        latency_mean_ns: 399_000,
        latency_jitter_ns: 121_000,
        latency_p99_ns: 800_000,
        price_revision: 3,
        price_network_out: 10.0,
        revenue_per_second: 7.0,
        cost_per_second: 3.5,
        profit: -1.25,
        solvency: Solvency::default(),
        activities: Vec::new(),
    }
}
