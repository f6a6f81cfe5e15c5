//! What the provider says, as updates: three threads that begin again whenever they are cut off.

use super::model::Update;
use anyhow::{Context, Result, bail};
use nom_proto::path;
use serde::de::DeserializeOwned;
use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::Sender;
use std::thread::sleep;
use std::time::Duration;
use ureq::Agent;

/// Between two attempts to reach the provider.
const RETRY: Duration = Duration::from_secs(1);
/// How often it is asked whether prices are still confirmed: events tell changes only.
const CONFIRM: Duration = Duration::from_secs(2);
/// How long an answer that is no stream may take.
const ANSWER: Duration = Duration::from_secs(5);
/// Longest line of a stream.
const LINE_BYTES: u64 = 1 << 20;

/// Follows the provider at `base`, such as `http://127.0.0.1:7070`, as long as somebody receives, by `key`
/// what not everybody may read.
pub fn follow(base: &str, key: Option<&str>, updates: &Sender<Update>) {
    let authorization = key.map(|key| format!("Bearer {key}"));
    let spawn = |work: fn(&Feed) -> Result<()>| {
        let feed =
            Feed { base: base.to_owned(), authorization: authorization.clone(), updates: updates.clone() };
        std::thread::spawn(move || feed.repeat(work));
    };
    spawn(|feed| feed.stream(path::PRICE_EVENTS, "prices", Update::Prices));
    spawn(|feed| feed.stream(path::STATUS_EVENTS, "status", Update::Status));
    spawn(Feed::confirm);
}

struct Feed {
    base: String,
    authorization: Option<String>,
    updates: Sender<Update>,
}

impl Feed {
    /// Does `work` again and again; what ends it is an update, too.
    fn repeat(&self, work: fn(&Feed) -> Result<()>) {
        loop {
            if let Err(error) = work(self)
                && self.updates.send(Update::Lost(format!("{error:#}"))).is_err()
            {
                return;
            }
            sleep(RETRY);
        }
    }

    /// Passes on the events of one kind until the stream ends.
    fn stream<T: DeserializeOwned>(&self, path: &str, kind: &str, update: fn(T) -> Update) -> Result<()> {
        let url = format!("{}{path}", self.base);
        let agent: Agent = Agent::config_builder().timeout_connect(Some(ANSWER)).build().into();
        let mut request = agent.get(&url);
        if let Some(authorization) = &self.authorization {
            request = request.header("Authorization", authorization);
        }
        let body = request.call().with_context(|| url.clone())?.into_body();
        let mut events = Events::new(body.into_reader());
        while let Some(event) = events.next().with_context(|| url.clone())? {
            if event.kind == kind {
                self.updates.send(update(read(&url, &event.data)?))?;
            }
        }
        bail!("{url}: the provider ended the connection")
    }

    /// Asks for the prices again and again, for their age.
    fn confirm(&self) -> Result<()> {
        let url = format!("{}{}", self.base, path::PRICES);
        let agent: Agent = Agent::config_builder().timeout_global(Some(ANSWER)).build().into();
        loop {
            let mut response = agent.get(&url).call().with_context(|| url.clone())?;
            let text = response.body_mut().read_to_string().with_context(|| url.clone())?;
            self.updates.send(Update::Confirmed(read(&url, &text)?))?;
            sleep(CONFIRM);
        }
    }
}

fn read<T: DeserializeOwned>(url: &str, text: &str) -> Result<T> {
    serde_json::from_str(text).with_context(|| format!("{url}: not what a provider says"))
}

/// An event of a stream (HTML standard, section 9.2.6, server-sent events).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Event {
    kind: String,
    data: String,
}

struct Events<R>(BufReader<R>);

impl<R: Read> Events<R> {
    fn new(stream: R) -> Events<R> {
        Events(BufReader::new(stream))
    }

    /// The next event that has data; none at the stream's end.
    fn next(&mut self) -> Result<Option<Event>> {
        let mut event = Event::default();
        while let Some(line) = self.line()? {
            let (field, value) = line.split_once(':').unwrap_or((&line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "" if !line.is_empty() => {} // A comment.
                "" if event.data.is_empty() => event = Event::default(),
                "" => {
                    event.data.pop();
                    return Ok(Some(event));
                }
                "event" => event.kind = value.to_owned(),
                "data" => event.data.extend([value, "\n"]),
                _ => {}
            }
        }
        Ok(None)
    }

    fn line(&mut self) -> Result<Option<String>> {
        let mut line = String::new();
        let length = (&mut self.0).take(LINE_BYTES).read_line(&mut line)?;
        if length as u64 == LINE_BYTES {
            bail!("a line of more than {LINE_BYTES} bytes");
        }
        while line.ends_with(['\n', '\r']) {
            line.pop();
        }
        Ok((length > 0).then_some(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;
    use std::sync::mpsc::channel;

    #[test]
    fn events_are_read_as_the_standard_says() {
        let text = ": hello\r\nevent: prices\r\ndata: {\"a\":\ndata: 1}\n\n\
                    event: none\n\nid: 7\nretry: 3\ndata:x\n\ndata: cut";
        let mut events = Events::new(text.as_bytes());
        let mut next = || events.next().expect("it reads").map(|event| (event.kind, event.data));
        assert_eq!(next(), Some(("prices".to_owned(), "{\"a\":\n1}".to_owned())));
        assert_eq!(next(), Some((String::new(), "x".to_owned())));
        assert_eq!(next(), None, "an event that was cut off is none");
    }

    #[test]
    fn an_endless_line_is_refused() {
        let mut events = Events::new(std::io::repeat(b'x'));
        assert!(events.next().expect_err("refused").to_string().contains("line"));
    }

    /// A provider that gives every connection `answer` and hangs up.
    fn provider(answer: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it has one");
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut request = [0; 1024];
                let _ = stream.read(&mut request);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        format!("http://{address}")
    }

    fn first(answer: &'static str, is_it: impl Fn(&Update) -> bool) -> Update {
        let (sender, updates) = channel();
        follow(&provider(answer), None, &sender);
        loop {
            let update = updates.recv_timeout(Duration::from_secs(60)).expect("an update");
            if is_it(&update) {
                return update;
            }
        }
    }

    #[test]
    fn events_become_updates_and_an_end_is_told() {
        const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n\
            event: prices\ndata: {\"revision\":7,\"source\":\"test\",\"age_seconds\":0,\"prices\":[]}\n\n";
        let update = first(ANSWER, |update| matches!(update, Update::Prices(_)));
        assert!(matches!(update, Update::Prices(prices) if prices.revision == 7));
        let lost = first(ANSWER, |update| matches!(update, Update::Lost(_)));
        assert!(matches!(lost, Update::Lost(reason) if reason.contains("http://127.0.0.1")));
    }

    #[test]
    fn what_is_no_provider_is_told() {
        const ANSWER: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n<html>";
        let lost = first(ANSWER, |update| matches!(update, Update::Lost(why) if why.contains("not what")));
        assert!(matches!(lost, Update::Lost(reason) if reason.contains("/v1/prices")));
    }
}
