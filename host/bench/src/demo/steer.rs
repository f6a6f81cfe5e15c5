//! Orders to an application at its control port (`docs/control.md`).

use super::analysis::System;
use super::governing::PORT;
use super::place::Place;
use anyhow::{Context, Result, ensure};
use nom_vmm::namespace::GUEST;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(5);
const GOVERNOR: &str = "/governor";

/// Has the application that runs at `place` serve as `system` does: with a fixed batching delay while its
/// governor is held, or as its governor likes.
///
/// # Errors
/// If the control port is not reached, or refuses.
pub fn become_system(place: &Place, system: System) -> Result<()> {
    place.inside(|| match system.delay_us() {
        Some(us) => {
            put(GOVERNOR, "off")?;
            put("/batching-delay", &us.to_string())
        }
        None => put(GOVERNOR, "on"),
    })
}

/// Has `value` put at `path` by a thread that is in the machine's network.
///
/// # Errors
/// As [`become_system`].
pub fn put(path: &str, value: &str) -> Result<()> {
    let said = ask(path, value).context("the control port does not answer")?;
    ensure!(is_done(&said), "PUT {path} {value}: the application answered `{}`", said.trim());
    Ok(())
}

fn ask(path: &str, value: &str) -> Result<String> {
    let mut stream = TcpStream::connect_timeout(&(GUEST, PORT).into(), PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let length = value.len();
    let head =
        format!("PUT {path} HTTP/1.1\r\nHost: nom\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all((head + value).as_bytes())?;
    let mut answer = Vec::new();
    // It closes once it has answered.
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Whether the first line of an answer says so.
fn is_done(answer: &str) -> bool {
    answer.lines().next().and_then(|line| line.split(' ').nth(1)).is_some_and(|code| code.starts_with('2'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_status_of_success_is_one() {
        assert!(is_done("HTTP/1.1 200 OK\r\n\r\n5\n"));
        assert!(!is_done("HTTP/1.1 400 Bad Request\r\n\r\nbatching delay `x`"));
        assert!(!is_done(""));
    }
}
