//! Sends what applications report to the provider, one request after the other on a connection that stays.
//!
//! Reports are worth little: of each application only the newest waits, and what the provider does not take
//! is lost.

use crate::backoff::Backoff;
use crate::http::{Answer, HttpError, Piece};
use crate::{ANSWER_NS, CONNECT_NS, Command, Happening, Loss};
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::{String, ToString};
use nom_proto::path;
use nom_proto::status::Status;

/// Least time between two requests: 20 a second.
const PAUSE_NS: u64 = 50_000_000;

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// The connection ended, or never was.
    #[error("{0}")]
    Lost(#[from] Loss),
    /// Nobody accepted, or answered, in time.
    #[error("it did not answer in time")]
    NotAnswered,
    /// The report was not taken.
    #[error("it answers with status {0}")]
    Status(u16),
    /// The answer cannot be read.
    #[error("{0}")]
    Http(#[from] HttpError),
}

#[derive(Debug)]
enum Phase {
    /// There is no connection.
    Closed,
    Connecting {
        until_ns: u64,
    },
    /// The connection waits for a report.
    Open,
    /// A report was sent.
    Asking {
        until_ns: u64,
        answer: Answer,
        keeps_alive: bool,
        /// The connection was used before: if it ends without an answer, it was too old.
        is_old: bool,
    },
}

/// The connection for reports.
#[derive(Debug)]
pub struct Reporter {
    host: String,
    /// Header of each request that says who reports, with its line's end; or nothing.
    authorization: String,
    phase: Phase,
    /// The newest of each application, in the order in which they will be sent.
    waiting: VecDeque<Status>,
    /// When the next may be sent.
    next_ns: u64,
    trouble: Option<Trouble>,
    backoff: Backoff,
    commands: VecDeque<Command>,
    news: Option<Option<Trouble>>,
}

impl Reporter {
    /// Reports to `host`, with the machine's key there.
    pub fn new(host: &str, key: Option<&str>, seed: u64) -> Reporter {
        Reporter {
            host: host.to_string(),
            authorization: key.map(|key| format!("Authorization: Bearer {key}\r\n")).unwrap_or_default(),
            phase: Phase::Closed,
            waiting: VecDeque::new(),
            next_ns: 0,
            trouble: None,
            backoff: Backoff::new(seed),
            commands: VecDeque::new(),
            news: None,
        }
    }

    /// Takes a report, in place of the one of the same application that waits.
    pub fn put(&mut self, status: Status) {
        match self.waiting.iter_mut().find(|waiting| waiting.application == status.application) {
            Some(waiting) => *waiting = status,
            None => self.waiting.push_back(status),
        }
    }

    /// What is to be done next.
    pub fn command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// If it goes differently: the trouble, or that there is none any more.
    pub fn news(&mut self) -> Option<Option<Trouble>> {
        self.news.take()
    }

    /// When [`Reporter::tick`] has something to do.
    pub fn due_ns(&self) -> Option<u64> {
        match self.phase {
            Phase::Closed | Phase::Open => (!self.waiting.is_empty()).then_some(self.next_ns),
            Phase::Connecting { until_ns } | Phase::Asking { until_ns, .. } => Some(until_ns),
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, now_ns: u64) {
        if self.due_ns().is_none_or(|due_ns| now_ns < due_ns) {
            return;
        }
        match self.phase {
            Phase::Closed => {
                self.commands.push_back(Command::Connect);
                self.phase = Phase::Connecting { until_ns: now_ns + CONNECT_NS };
            }
            Phase::Open => self.send(now_ns, true),
            Phase::Connecting { .. } | Phase::Asking { .. } => self.fail(now_ns, Trouble::NotAnswered),
        }
    }

    /// Something happened on the connection.
    pub fn happened(&mut self, now_ns: u64, happening: Happening<'_>) {
        let result = match happening {
            Happening::Connected => {
                self.send(now_ns, false);
                Ok(())
            }
            Happening::Received(mut bytes) => self.received(now_ns, &mut bytes),
            Happening::Closed(loss) => self.closed(now_ns, loss),
        };
        if let Err(trouble) = result {
            self.fail(now_ns, trouble);
        }
    }

    fn send(&mut self, now_ns: u64, is_old: bool) {
        self.phase = Phase::Open;
        let Some(status) = self.waiting.pop_front() else { return };
        let body = serde_json::to_string(&status).expect("numbers and text");
        let request = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\n{}Content-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            path::STATUS,
            self.host,
            self.authorization,
            body.len()
        );
        self.commands.push_back(Command::Send(request.into_bytes()));
        self.next_ns = now_ns + PAUSE_NS;
        let (until_ns, answer) = (now_ns + ANSWER_NS, Answer::new());
        self.phase = Phase::Asking { until_ns, answer, keeps_alive: false, is_old };
    }

    fn received(&mut self, now_ns: u64, bytes: &mut &[u8]) -> Result<(), Trouble> {
        while let Phase::Asking { answer, keeps_alive, .. } = &mut self.phase {
            match answer.next(bytes)? {
                None => return Ok(()),
                Some(Piece::Head(head)) if (200..300).contains(&head.status) => {
                    *keeps_alive = head.keeps_alive;
                }
                Some(Piece::Head(head)) => return Err(Trouble::Status(head.status)),
                Some(Piece::Body(_)) => {}
                Some(Piece::End) => {
                    let keeps_alive = *keeps_alive;
                    self.end(now_ns, keeps_alive);
                }
            }
        }
        Ok(())
    }

    fn end(&mut self, now_ns: u64, keeps_alive: bool) {
        self.backoff.reset();
        self.state(None);
        self.phase = Phase::Open;
        if !keeps_alive {
            self.commands.push_back(Command::Drop);
            self.phase = Phase::Closed;
        }
        self.tick(now_ns);
    }

    fn closed(&mut self, now_ns: u64, loss: Loss) -> Result<(), Trouble> {
        match &self.phase {
            Phase::Closed => Ok(()),
            Phase::Open => {
                self.phase = Phase::Closed;
                Ok(())
            }
            // The provider closed it before it saw the report, which is lost.
            Phase::Asking { answer, is_old: true, .. } if answer.is_unread() => {
                self.phase = Phase::Closed;
                Ok(())
            }
            Phase::Asking { answer, .. } if loss == Loss::Finished && !answer.is_unread() => {
                answer.closed()?;
                self.end(now_ns, false);
                Ok(())
            }
            _ => Err(loss.into()),
        }
    }

    fn fail(&mut self, now_ns: u64, trouble: Trouble) {
        self.state(Some(trouble));
        self.commands.push_back(Command::Drop);
        self.phase = Phase::Closed;
        self.next_ns = now_ns + self.backoff.next_ns();
    }

    fn state(&mut self, trouble: Option<Trouble>) {
        if self.trouble != trouble {
            self.trouble = trouble.clone();
            self.news = Some(trouble);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nom_abi::priced::Report;
    use zerocopy::{FromZeros, IntoBytes};

    fn report(application: &str, requests: u64) -> Status {
        let report = Report { kind: Report::KIND, requests, ..Report::new_zeroed() };
        crate::status(report.as_bytes(), "m", application, crate::Held::default()).expect("a report")
    }

    /// The requests sent, as their bodies; `+` for a connection, `-` for its end.
    fn commands(reporter: &mut Reporter) -> String {
        let mut said = String::new();
        while let Some(command) = reporter.command() {
            match command {
                Command::Connect => said.push('+'),
                Command::Drop => said.push('-'),
                Command::Send(bytes) => {
                    let text = String::from_utf8(bytes).expect("a request");
                    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
                    assert!(
                        head.starts_with(
                            "POST /v1/status HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer k\r\n"
                        ),
                        "{head}"
                    );
                    assert!(head.ends_with(&format!("Content-Length: {}", body.len())), "{head}");
                    let status: Status = serde_json::from_str(body).expect("a status");
                    said.push_str(&format!("{}{}", status.application, status.requests));
                }
            }
        }
        said
    }

    const TAKEN: Happening<'static> = Happening::Received(b"HTTP/1.1 204 No Content\r\n\r\n");

    #[test]
    fn the_newest_report_of_each_application_is_sent_one_after_the_other() {
        let mut reporter = Reporter::new("h", Some("k"), 1);
        assert_eq!(reporter.due_ns(), None);
        [("a", 1), ("b", 1), ("a", 2)]
            .into_iter()
            .for_each(|(name, number)| reporter.put(report(name, number)));
        reporter.tick(0);
        assert_eq!(commands(&mut reporter), "+");
        reporter.happened(10, Happening::Connected);
        assert_eq!(commands(&mut reporter), "a2");
        reporter.put(report("a", 3));
        reporter.happened(20, TAKEN);
        assert_eq!(commands(&mut reporter), "", "not more often than it may");
        reporter.tick(10 + PAUSE_NS);
        assert_eq!(commands(&mut reporter), "b1");
        reporter.happened(30 + PAUSE_NS, TAKEN);
        reporter.tick(10 + 2 * PAUSE_NS);
        assert_eq!(commands(&mut reporter), "a3");
        assert_eq!(reporter.news(), None);
    }

    #[test]
    fn a_connection_that_grew_too_old_is_no_trouble() {
        let mut reporter = Reporter::new("h", Some("k"), 1);
        reporter.put(report("a", 1));
        reporter.tick(0);
        reporter.happened(0, Happening::Connected);
        reporter.happened(0, TAKEN);
        reporter.put(report("a", 2));
        reporter.tick(PAUSE_NS);
        reporter.happened(PAUSE_NS, Happening::Closed(Loss::Reset));
        assert_eq!((commands(&mut reporter).as_str(), reporter.news()), ("+a1a2", None));
        reporter.put(report("a", 3));
        reporter.tick(2 * PAUSE_NS);
        assert_eq!(commands(&mut reporter), "+");
    }

    #[test]
    fn trouble_is_told_once_and_tried_again_with_the_newest_report() {
        let mut reporter = Reporter::new("h", Some("k"), 1);
        reporter.put(report("a", 1));
        let mut told = Vec::new();
        let mut now_ns = 0;
        for _ in 0..5 {
            reporter.tick(now_ns);
            reporter.happened(now_ns, Happening::Closed(Loss::Refused));
            told.extend(reporter.news());
            now_ns = reporter.due_ns().expect("the report waits");
        }
        assert_eq!(told, [Some(Trouble::Lost(Loss::Refused))]);
        assert_eq!(commands(&mut reporter), "+-+-+-+-+-");
        reporter.put(report("a", 9));
        reporter.tick(now_ns);
        reporter.happened(now_ns, Happening::Connected);
        reporter.happened(now_ns, Happening::Received(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{"));
        reporter.happened(now_ns, Happening::Closed(Loss::Finished));
        assert_eq!((commands(&mut reporter).as_str(), reporter.news()), ("+a9-", Some(None)));
    }

    #[test]
    fn reports_that_are_refused_or_not_answered_are_lost() {
        for (happening, expected) in [
            (Some(Happening::Received(b"HTTP/1.1 422 No\r\n")), None),
            (Some(Happening::Received(b"HTTP/1.1 422 No\r\n\r\n")), Some(Trouble::Status(422))),
            (Some(Happening::Received(b"no\r\n")), Some(Trouble::Http(HttpError::NotHttp))),
            (None, Some(Trouble::NotAnswered)),
        ] {
            let mut reporter = Reporter::new("h", Some("k"), 1);
            reporter.put(report("a", 1));
            reporter.tick(0);
            reporter.happened(0, Happening::Connected);
            match happening {
                Some(happening) => reporter.happened(1, happening),
                None => reporter.tick(reporter.due_ns().expect("an answer is due")),
            }
            assert_eq!(reporter.news(), expected.map(Some));
        }
    }
}
