//! Follows the provider's prices: by events, or where it has none by asking again and again.
//!
//! ```text
//! Resting -> Connecting -> Asking -> Reading      each with a limit to its time; in Reading it begins anew
//!    ^___________|___________|__________|         with each item, so that it is a limit to silence
//! ```
//! Whatever goes wrong leads back to Resting, for longer each time until all was well for a while. If the
//! provider has no events, the next question is for the present prices; a question that fails is followed by
//! one for events, for the provider may be another by then.

use crate::backoff::Backoff;
use crate::http::{Answer, Head, HttpError, Piece};
use crate::sse::{self, Events, Item};
use crate::{ANSWER_NS, CONNECT_NS, Command, Happening, Loss, SECOND_NS};
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use nom_proto::path;
use nom_proto::prices::Prices;

/// How long the events may be silent. The provider sends a comment every second.
const SILENCE_NS: u64 = 10 * SECOND_NS;
/// Time between two questions where there are no events.
const POLL_NS: u64 = 5 * SECOND_NS;
/// How long events must come before the next failure counts as the first.
const HEALTHY_NS: u64 = 10 * SECOND_NS;
/// Most bytes of the body of an answer.
const BODY_MAX: usize = 64 << 10;
/// Most bytes of what the provider sent that are shown to people.
const SHOWN_MAX: usize = 80;
/// Media type of events.
const EVENTS: &str = "text/event-stream";
/// Media type of prices.
const JSON: &str = "application/json";

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// The connection ended, or never was.
    #[error("{0}")]
    Lost(#[from] Loss),
    /// Nobody accepted in time.
    #[error("it did not accept the connection in time")]
    NotAccepted,
    /// There was no answer in time.
    #[error("it did not answer in time")]
    NotAnswered,
    /// Events ceased.
    #[error("its events fell silent")]
    Silent,
    /// The answer is an error.
    #[error("it answers with status {0}")]
    Status(u16),
    /// The answer is something else.
    #[error("it answers with `{0}`, expected `{JSON}`")]
    Type(String),
    /// The answer cannot be read.
    #[error("{0}")]
    Http(#[from] HttpError),
    /// An event has no end.
    #[error("{0}")]
    Event(#[from] sse::TooLong),
    /// The body has no end.
    #[error("it answers with more than {BODY_MAX} bytes")]
    BodyTooLong,
    /// It ended the events.
    #[error("it ended its events")]
    Ended,
    /// What it says are no prices.
    #[error("its prices cannot be read: {0}")]
    Unreadable(String),
}

/// How it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing is known yet.
    Unknown,
    /// Prices come by events.
    Following,
    /// Prices come as answers.
    Polling,
    /// They do not come.
    Trouble(Trouble),
}

/// What a feed brings.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// Prices, as the provider says.
    Prices(Prices),
    /// The provider is alive, and its prices are as before.
    Alive,
    /// It goes differently.
    State(State),
}

#[derive(Debug)]
enum Phase {
    Resting { until_ns: u64 },
    Connecting { until_ns: u64 },
    Asking { until_ns: u64, answer: Answer },
    Reading { until_ns: u64, answer: Answer, body: Body },
}

#[derive(Debug)]
enum Body {
    /// Events, and since when prices were among them.
    Events(Events, Option<u64>),
    /// Prices, as far as they came.
    Prices(Vec<u8>),
}

/// How the provider is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Events,
    Polling,
}

/// A connection that brings prices.
#[derive(Debug)]
pub struct Feed {
    /// The provider, as requests name it.
    host: String,
    phase: Phase,
    way: Way,
    state: State,
    backoff: Backoff,
    commands: VecDeque<Command>,
    news: VecDeque<News>,
}

impl Feed {
    /// Prices from `host`; the first question is due at once.
    pub fn new(host: &str, seed: u64) -> Feed {
        Feed {
            host: host.to_string(),
            phase: Phase::Resting { until_ns: 0 },
            way: Way::Events,
            state: State::Unknown,
            backoff: Backoff::new(seed),
            commands: VecDeque::new(),
            news: VecDeque::new(),
        }
    }

    /// What is to be done next.
    pub fn command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// What came.
    pub fn news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    /// When [`Feed::tick`] has something to do.
    pub fn due_ns(&self) -> u64 {
        match self.phase {
            Phase::Resting { until_ns }
            | Phase::Connecting { until_ns }
            | Phase::Asking { until_ns, .. }
            | Phase::Reading { until_ns, .. } => until_ns,
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, now_ns: u64) {
        if now_ns < self.due_ns() {
            return;
        }
        match &self.phase {
            Phase::Resting { .. } => self.connect(now_ns),
            Phase::Connecting { .. } => self.fail(now_ns, Trouble::NotAccepted),
            Phase::Asking { .. } => self.fail(now_ns, Trouble::NotAnswered),
            Phase::Reading { body: Body::Events(_, Some(_)), .. } => self.fail(now_ns, Trouble::Silent),
            Phase::Reading { .. } => self.fail(now_ns, Trouble::NotAnswered),
        }
    }

    /// Something happened on the connection.
    pub fn happened(&mut self, now_ns: u64, happening: Happening<'_>) {
        let result = match happening {
            Happening::Connected => {
                self.ask(now_ns);
                Ok(())
            }
            Happening::Received(mut bytes) => self.received(now_ns, &mut bytes),
            Happening::Closed(loss) => self.closed(now_ns, loss),
        };
        if let Err(trouble) = result {
            self.fail(now_ns, trouble);
        }
    }

    fn connect(&mut self, now_ns: u64) {
        self.commands.push_back(Command::Connect);
        self.phase = Phase::Connecting { until_ns: now_ns + CONNECT_NS };
    }

    fn ask(&mut self, now_ns: u64) {
        let Phase::Connecting { .. } = self.phase else { return };
        let (path, accept, connection) = match self.way {
            Way::Events => (path::PRICE_EVENTS, EVENTS, "keep-alive"),
            Way::Polling => (path::PRICES, JSON, "close"),
        };
        let host = &self.host;
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept: {accept}\r\nCache-Control: no-cache\r\n\
             Connection: {connection}\r\n\r\n"
        );
        self.commands.push_back(Command::Send(request.into_bytes()));
        self.phase = Phase::Asking { until_ns: now_ns + ANSWER_NS, answer: Answer::new() };
    }

    fn received(&mut self, now_ns: u64, bytes: &mut &[u8]) -> Result<(), Trouble> {
        loop {
            let piece = match &mut self.phase {
                Phase::Asking { answer, .. } | Phase::Reading { answer, .. } => answer.next(bytes)?,
                Phase::Resting { .. } | Phase::Connecting { .. } => return Ok(()),
            };
            match piece {
                None => return Ok(()),
                Some(Piece::Head(head)) => self.head(now_ns, &head)?,
                Some(Piece::Body(body)) => self.body(now_ns, body)?,
                Some(Piece::End) => return self.end(now_ns),
            }
        }
    }

    /// Judges an answer by its head.
    fn head(&mut self, now_ns: u64, head: &Head) -> Result<(), Trouble> {
        let Phase::Asking { answer, until_ns } = &mut self.phase else { return Ok(()) };
        let body = match (self.way, head.status) {
            (Way::Events, 200) if head.content_type == EVENTS => Body::Events(Events::default(), None),
            (Way::Polling, 200) if head.content_type == JSON => Body::Prices(Vec::new()),
            (Way::Polling, 200) => return Err(Trouble::Type(shown(&head.content_type))),
            // It does not know events, or what it takes them for is something else.
            (Way::Events, 200 | 404..=406 | 410 | 501) => {
                self.way = Way::Polling;
                self.commands.push_back(Command::Drop);
                self.connect(now_ns);
                return Ok(());
            }
            (_, status) => return Err(Trouble::Status(status)),
        };
        let answer = core::mem::take(answer);
        self.phase = Phase::Reading { until_ns: *until_ns, answer, body };
        Ok(())
    }

    fn body(&mut self, now_ns: u64, mut bytes: &[u8]) -> Result<(), Trouble> {
        if let Phase::Reading { body: Body::Prices(text), .. } = &mut self.phase {
            if text.len() + bytes.len() > BODY_MAX {
                return Err(Trouble::BodyTooLong);
            }
            text.extend_from_slice(bytes);
            return Ok(());
        }
        while let Phase::Reading { body: Body::Events(events, _), .. } = &mut self.phase
            && let Some(item) = events.next(&mut bytes)?
        {
            self.item(now_ns, item);
        }
        Ok(())
    }

    /// An event or a comment: the provider is alive. It has to name prices first.
    fn item(&mut self, now_ns: u64, item: Item) {
        let Phase::Reading { until_ns, body: Body::Events(_, since_ns), .. } = &mut self.phase else {
            return;
        };
        let prices = match item {
            Item::Event { name, data } if name == "prices" => Some(read(data.as_bytes())),
            Item::Event { .. } | Item::Comment => None,
        };
        if matches!(prices, Some(Ok(_))) {
            since_ns.get_or_insert(now_ns);
        }
        let Some(since_ns) = *since_ns else {
            // The time for the first prices goes on.
            if let Some(Err(trouble)) = prices {
                self.state(State::Trouble(trouble));
            }
            return;
        };
        *until_ns = now_ns + SILENCE_NS;
        if now_ns - since_ns >= HEALTHY_NS {
            self.backoff.reset();
        }
        match prices {
            Some(Ok(prices)) => {
                self.state(State::Following);
                self.news.push_back(News::Prices(prices));
            }
            Some(Err(trouble)) => self.state(State::Trouble(trouble)),
            None => self.news.push_back(News::Alive),
        }
    }

    fn closed(&mut self, now_ns: u64, loss: Loss) -> Result<(), Trouble> {
        match &self.phase {
            Phase::Resting { .. } => Ok(()),
            Phase::Reading { answer, body: Body::Prices(_), .. } if loss == Loss::Finished => {
                answer.closed()?;
                self.end(now_ns)
            }
            Phase::Reading { body: Body::Events(..), .. } if loss == Loss::Finished => Err(Trouble::Ended),
            _ => Err(loss.into()),
        }
    }

    /// The answer is complete.
    fn end(&mut self, now_ns: u64) -> Result<(), Trouble> {
        let Phase::Reading { body: Body::Prices(text), .. } = &self.phase else { return Err(Trouble::Ended) };
        let prices = read(text)?;
        self.state(State::Polling);
        self.news.push_back(News::Prices(prices));
        self.backoff.reset();
        self.commands.push_back(Command::Drop);
        self.phase = Phase::Resting { until_ns: now_ns + POLL_NS };
        Ok(())
    }

    fn fail(&mut self, now_ns: u64, trouble: Trouble) {
        self.state(State::Trouble(trouble));
        self.way = Way::Events;
        self.commands.push_back(Command::Drop);
        self.phase = Phase::Resting { until_ns: now_ns + self.backoff.next_ns() };
    }

    /// Tells how it goes, if it goes differently.
    fn state(&mut self, state: State) {
        if self.state != state {
            self.state = state.clone();
            self.news.push_back(News::State(state));
        }
    }
}

fn read(text: &[u8]) -> Result<Prices, Trouble> {
    serde_json::from_slice(text).map_err(|error| {
        let text = shown(&String::from_utf8_lossy(text));
        Trouble::Unreadable(format!("{error}: `{text}`"))
    })
}

/// The beginning of a text, as much as people want to see.
fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text.to_string(),
    }
}

#[cfg(test)]
mod tests;
