//! Visitors: each connects, asks once, hears the answer and goes. They come at a fixed rate, whether those
//! before them were answered or not, and one thread does for all.

use super::load::Exchange;
use anyhow::{Context, Result, ensure};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Who visits.
#[derive(Clone, Copy, Debug)]
pub struct Visits<'a> {
    /// The server.
    pub target: SocketAddr,
    /// What each asks.
    pub exchange: &'a Exchange,
    /// Visitors a second.
    pub rate: u32,
    /// Visitors altogether.
    pub count: usize,
}

/// What became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visited {
    /// They heard the answer.
    pub answered: usize,
    /// They were refused, or cut off.
    pub refused: usize,
    /// They heard nothing within [`PATIENCE`] of the last one's coming.
    pub unanswered: usize,
    /// From the first one's coming to the last one's.
    pub came_within: Duration,
    /// From the first one's coming until none was there any more.
    pub gone_within: Duration,
}

/// How long the last visitors wait.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// So many come before those who are there are looked at again.
const AT_ONCE: usize = 32;

/// One of them.
struct Visitor {
    stream: TcpStream,
    has_asked: bool,
    heard: Vec<u8>,
}

/// Has them all come, and waits for them.
///
/// # Errors
/// If one cannot come at all, for want of ports or files, or is answered wrongly.
pub fn run(visits: &Visits) -> Result<Visited> {
    ensure!(visits.rate > 0, "a rate of 0");
    let (mut poll, mut events) = (Poll::new()?, Events::with_capacity(1024));
    let mut there: HashMap<usize, Visitor> = HashMap::new();
    let (begin, mut came, mut visited) = (Instant::now(), 0, Visited::default());
    loop {
        let passed = begin.elapsed();
        let due = ((passed.as_secs_f64() * f64::from(visits.rate)) as usize + 1).min(visits.count);
        let next = due.min(came + AT_ONCE);
        while came < next {
            there.insert(came, Visitor::come(visits.target, &poll, Token(came))?);
            came += 1;
            visited.came_within = begin.elapsed();
        }
        let is_over = came == visits.count && passed > visited.came_within + PATIENCE;
        if is_over || came == visits.count && there.is_empty() {
            (visited.unanswered, visited.gone_within) = (there.len(), begin.elapsed());
            return Ok(visited);
        }
        let is_late = came < due;
        poll.poll(&mut events, Some(Duration::from_micros(if is_late { 0 } else { 500 })))?;
        for event in &events {
            let number = event.token().0;
            let Some(visitor) = there.get_mut(&number) else { continue };
            match visitor.go_on(visits.exchange) {
                Ok(false) => continue,
                Ok(true) => visited.answered += 1,
                Err(error) if error.kind() == ErrorKind::InvalidData => return Err(error.into()),
                Err(_) => visited.refused += 1,
            }
            there.remove(&number);
        }
    }
}

impl Visitor {
    fn come(target: SocketAddr, poll: &Poll, token: Token) -> Result<Visitor> {
        let mut stream = TcpStream::connect(target).context("a visitor cannot come")?;
        poll.registry().register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        Ok(Visitor { stream, has_asked: false, heard: Vec::new() })
    }

    /// Goes on as far as it goes; whether the whole answer has come.
    fn go_on(&mut self, exchange: &Exchange) -> std::io::Result<bool> {
        if !self.has_asked {
            match self.stream.write(&exchange.request) {
                Ok(len) if len == exchange.request.len() => self.has_asked = true,
                Ok(_) => return Err(ErrorKind::WriteZero.into()),
                // It is not connected yet.
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        let mut piece = [0; 1024];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => self.heard.extend_from_slice(&piece[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
            if !exchange.reply.starts_with(&self.heard) {
                let said = self.heard.escape_ascii().to_string();
                return Err(std::io::Error::new(ErrorKind::InvalidData, format!("the server said `{said}`")));
            }
            if self.heard.len() == exchange.reply.len() {
                return Ok(true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Answers the first so many visitors, and cuts off the others.
    fn serve(listener: TcpListener, answered: usize) {
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let Ok(mut stream) = stream else { return };
                let mut question = [0; 4];
                let is_asked = number < answered && stream.read_exact(&mut question).is_ok();
                if is_asked {
                    // Who has gone hears nothing.
                    let _ = stream.write_all(b"answer");
                }
            }
        });
    }

    #[test]
    fn everybody_comes_and_is_counted_once() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let target = listener.local_addr().expect("an address");
        serve(listener, 30);
        let exchange = Exchange { request: b"ask?".to_vec(), reply: b"answer".to_vec() };
        let visited = run(&Visits { target, exchange: &exchange, rate: 1000, count: 50 }).expect("sound");
        assert_eq!((visited.answered, visited.refused, visited.unanswered), (30, 20, 0), "{visited:?}");
        assert!(visited.came_within >= Duration::from_millis(49), "no faster than they may: {visited:?}");
    }

    #[test]
    fn a_wrong_answer_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let target = listener.local_addr().expect("an address");
        serve(listener, 1);
        let exchange = Exchange { request: b"ask?".to_vec(), reply: b"another".to_vec() };
        let error = run(&Visits { target, exchange: &exchange, rate: 1000, count: 1 }).expect_err("wrong");
        assert!(format!("{error:#}").contains("`answer`"), "{error:#}");
    }
}
