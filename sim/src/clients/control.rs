//! Who reads and sets a running server's batching delay at its control port.

use super::caller::{Conversation, Wish};
use nom_net::Closed;

/// One client, which sets the delay once and then reads what became of it.
pub struct Client {
    micros: u64,
    /// When it begins.
    start_ns: u64,
    input: Vec<u8>,
    /// Answers that came.
    answers: usize,
    is_waiting: bool,
}

/// What it asks for, one after the other.
const QUESTIONS: usize = 3;

impl Client {
    /// One that sets `micros`, a second after time 0.
    pub fn new(micros: u64) -> Client {
        Client { micros, start_ns: 0, input: Vec::new(), answers: 0, is_waiting: false }
    }

    fn question(&self) -> String {
        let micros = self.micros.to_string();
        let (method, path, body) = match self.answers {
            0 => ("PUT", "/batching-delay", &*micros),
            1 => ("GET", "/batching-delay", ""),
            _ => ("GET", "/metrics", ""),
        };
        format!("{method} {path} HTTP/1.1\r\nHost: nom\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    }

    /// Looks at an answer, when it is whole.
    fn take_answer(&mut self) {
        let text = String::from_utf8(self.input.clone()).expect("the control port speaks UTF-8");
        let Some((head, body)) = text.split_once("\r\n\r\n") else { return };
        let len = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let len: usize = len.and_then(|len| len.parse().ok()).expect("an answer has a length");
        if body.len() < len {
            return;
        }
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && body.len() == len, "control port: {text}");
        if self.answers + 1 < QUESTIONS {
            assert!(body == format!("{}\n", self.micros), "control port: {text}");
        } else {
            let delay = format!("nom_batching_delay_seconds 0.{:06}000", self.micros);
            let has = |wanted: &str| body.lines().any(|line| line == wanted);
            assert!(has(&delay) && !has("nom_requests_total 0"), "control port: {text}");
        }
        self.input.clear();
        self.answers += 1;
        self.is_waiting = false;
    }
}

impl Conversation for Client {
    fn opened(&mut self) {}

    fn go_on(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Wish {
        if self.start_ns == 0 {
            self.start_ns = now_ns + 300_000_000;
        }
        if now_ns < self.start_ns {
            return Wish::Until(self.start_ns);
        }
        if self.answers == QUESTIONS {
            return Wish::Close;
        }
        if !self.is_waiting {
            out.extend_from_slice(self.question().as_bytes());
            self.is_waiting = true;
        }
        Wish::Answer
    }

    fn received(&mut self, _: u64, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        self.take_answer();
    }

    fn ended(&mut self, _: u64, _: Closed) {
        assert!(self.answers == QUESTIONS, "the control port ended the stream");
    }

    fn is_over(&self) -> bool {
        self.answers == QUESTIONS
    }

    fn achieved(&self) -> u64 {
        self.answers as u64
    }
}
