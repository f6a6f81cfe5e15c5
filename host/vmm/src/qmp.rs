//! QEMU's machine protocol: JSON objects, one a line, over a Unix socket.
//!
//! Source: docs/interop/qmp-spec.txt of QEMU.

use crate::directory;
use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long QEMU may take to answer a command.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to one machine's monitor. QEMU serves one connection at a time.
#[derive(Debug)]
pub struct Monitor {
    stream: BufReader<UnixStream>,
    events: VecDeque<Value>,
    partial: String,
    /// How long QEMU may take to answer.
    patience: Duration,
}

impl Monitor {
    /// Connects to the socket `name` in `directory` and takes it into command mode.
    ///
    /// # Errors
    /// If nobody listens there, or does not speak the protocol.
    pub fn connect(directory: &Path, name: &str) -> Result<Monitor> {
        Monitor::connect_within(ANSWER_TIMEOUT, directory, name)
    }

    /// The same, with an own bound on how long each answer may take.
    ///
    /// # Errors
    /// See [`Monitor::connect`].
    pub fn connect_within(patience: Duration, directory: &Path, name: &str) -> Result<Monitor> {
        let stream = directory::connect(directory, name)
            .with_context(|| format!("no monitor at {}", directory.join(name).display()))?;
        let mut monitor = Monitor {
            stream: BufReader::new(stream),
            events: VecDeque::new(),
            partial: String::new(),
            patience,
        };
        let greeting = monitor.message(Instant::now() + patience)?;
        if greeting.is_none_or(|greeting| greeting.get("QMP").is_none()) {
            bail!("{} is not a QEMU monitor, or another client holds it", directory.join(name).display());
        }
        monitor.execute("qmp_capabilities", json!({}))?;
        Ok(monitor)
    }

    /// Executes a command and returns what it returned.
    ///
    /// # Errors
    /// If QEMU refuses it (with QEMU's reason), hangs up, or does not answer in time.
    pub fn execute(&mut self, command: &str, arguments: Value) -> Result<Value> {
        let request = json!({ "execute": command, "arguments": arguments });
        writeln!(self.stream.get_mut(), "{request}").with_context(|| format!("QEMU's monitor: {command}"))?;
        let deadline = Instant::now() + self.patience;
        while let Some(mut message) = self.message(deadline)? {
            if let Some(error) = message.get("error") {
                bail!("QEMU refuses {command}: {}", error["desc"].as_str().unwrap_or("no reason given"));
            }
            if message.get("return").is_some() {
                return Ok(message["return"].take());
            }
            self.events.push_back(message);
        }
        Err(anyhow!("QEMU did not answer {command} within {:?}", self.patience))
    }

    /// Waits for an event for which `wanted` holds, given its name and data; forgets the others before it.
    ///
    /// # Errors
    /// If it does not come within `timeout`, or QEMU hangs up.
    pub fn wait_for(
        &mut self,
        timeout: Duration,
        mut wanted: impl FnMut(&str, &Value) -> bool,
    ) -> Result<Value> {
        let deadline = Instant::now() + timeout;
        loop {
            let event = match self.events.pop_front() {
                Some(event) => Some(event),
                None => self.message(deadline)?,
            };
            let mut event = event.ok_or_else(|| anyhow!("no such event within {timeout:?}"))?;
            if wanted(event["event"].as_str().unwrap_or_default(), &event["data"]) {
                return Ok(event["data"].take());
            }
        }
    }

    /// The next message, or `None` at the deadline.
    fn message(&mut self, deadline: Instant) -> Result<Option<Value>> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.stream.get_ref().set_read_timeout(Some(left))?;
            // What has been read of a line is kept in `partial` when the timeout strikes in its middle.
            match self.stream.read_line(&mut self.partial) {
                Ok(0) => bail!("QEMU closed its monitor"),
                Ok(_) if self.partial.trim().is_empty() => self.partial.clear(),
                Ok(_) => {
                    let line = std::mem::take(&mut self.partial);
                    return serde_json::from_str(&line).context("QEMU's monitor speaks no JSON").map(Some);
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error).context("QEMU's monitor"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// A monitor that answers each line it gets with the next of `answers`.
    fn scripted(
        answers: &'static [&'static str],
    ) -> (tempfile::TempDir, std::thread::JoinHandle<Vec<String>>) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let listener = UnixListener::bind(directory.path().join("qmp")).expect("a socket");
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            stream.write_all(b"{\"QMP\": {}}\r\n").expect("greeted");
            let lines = BufReader::new(stream.try_clone().expect("a second handle")).lines();
            let take = |(line, answer): (std::io::Result<String>, &&str)| {
                stream.write_all(answer.as_bytes()).expect("answered");
                line.expect("a line")
            };
            lines.zip(answers).map(take).collect()
        });
        (directory, server)
    }

    #[test]
    fn commands_events_and_refusals() {
        let (directory, server) = scripted(&[
            "{\"return\": {}}\n",
            "{\"event\": \"NOISE\"}\n{\"event\": \"DEVICE_DELETED\", \"data\": {\"device\": \"n0\"}}\n\
             {\"return\": 7}\n",
            "{\"error\": {\"desc\": \"no such device\"}}\n",
        ]);
        let mut monitor = Monitor::connect(directory.path(), "qmp").expect("connected");
        assert_eq!(monitor.execute("device_del", json!({"id": "n0"})).expect("returned"), json!(7));
        let event = monitor.wait_for(Duration::from_secs(5), |name, _| name == "DEVICE_DELETED");
        assert_eq!(event.expect("it came while the command ran")["device"], "n0");
        let refusal = monitor.execute("device_del", json!({"id": "n1"})).expect_err("refused");
        assert_eq!(refusal.to_string(), "QEMU refuses device_del: no such device");
        drop(monitor);
        let requests = server.join().expect("the server ended");
        assert!(requests[1].contains(r#""execute":"device_del""#), "{requests:?}");
    }

    #[test]
    fn an_event_that_does_not_come_is_an_error() {
        let (directory, server) = scripted(&["{\"return\": {}}\n"]);
        let mut monitor = Monitor::connect(directory.path(), "qmp").expect("connected");
        // The server has ended by now, or keeps silent: both must end the wait.
        assert!(monitor.wait_for(Duration::from_millis(50), |_, _| true).is_err());
        drop(monitor);
        server.join().expect("the server ended");
    }
}
