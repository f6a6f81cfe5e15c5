//! Tenants who do not care for the others.

use super::tenants::gets;
use anyhow::{Context, Result};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// What a tenant does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Habit {
    /// Asks like the others.
    Peaceful,
    /// Asks on, whether it was answered or not.
    Floods,
    /// The same, and reads no answer.
    NeverReads,
    /// Asks like the others, over many connections.
    Crowds,
}

impl Habit {
    pub const HOSTILE: [Habit; 3] = [Habit::Floods, Habit::NeverReads, Habit::Crowds];

    /// Its name in records.
    pub fn name(self) -> &'static str {
        match self {
            Habit::Peaceful => "peaceful",
            Habit::Floods => "flood",
            Habit::NeverReads => "never-reader",
            Habit::Crowds => "crowd",
        }
    }
}

/// Connections over which a tenant floods.
const FLOODING: usize = 8;
/// Connections whose answers nobody reads.
const UNREAD: usize = 100;
/// Between two looks at all of them, lest the computer is kept from everybody else.
const PAUSE: Duration = Duration::from_micros(200);

/// Asks in a tenant's name, and does not wait for answers, until `is_over`.
///
/// # Errors
/// If the server cannot be reached.
pub fn flood(target: SocketAddr, tenant: &str, habit: Habit, is_over: &AtomicBool) -> Result<()> {
    let count = if habit == Habit::NeverReads { UNREAD } else { FLOODING };
    let requests: Vec<u8> = gets(tenant).into_iter().flat_map(|exchange| exchange.request).collect();
    let connect = |_| {
        let stream = TcpStream::connect(target).context("a hostile tenant")?;
        stream.set_nonblocking(true)?;
        Ok((stream, 0))
    };
    let mut streams: Vec<(TcpStream, usize)> = (0..count).map(connect).collect::<Result<_>>()?;
    let mut answers = vec![0; 1 << 16];
    while !is_over.load(Relaxed) {
        streams.retain_mut(|(stream, at)| {
            let sent = match stream.write(&requests[*at..]) {
                Ok(sent) => sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                // Whoever asks like that may be turned out.
                Err(_) => return false,
            };
            *at = (*at + sent) % requests.len();
            if habit != Habit::NeverReads {
                while stream.read(&mut answers).is_ok_and(|count| count > 0) {}
            }
            true
        });
        std::thread::sleep(PAUSE);
    }
    Ok(())
}
