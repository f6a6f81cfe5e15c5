//! Following the provider's prices.

use super::Happening;
use anyhow::{Context, Result, ensure};
use nom_proto::path;
use nom_proto::prices::Prices;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc::Sender;
use std::time::Duration;

/// The provider says something every second; whoever hears nothing for so long asks anew.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// Pause before asking anew.
const PAUSE: Duration = Duration::from_millis(500);
/// How long the first answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest line of events that is read, in bytes.
const LINE_MAX: u64 = 1 << 20;

/// The present prices.
///
/// # Errors
/// If the provider does not answer with prices.
pub fn ask(url: &str) -> Result<Prices> {
    let agent: ureq::Agent = ureq::Agent::config_builder().timeout_global(Some(PATIENCE)).build().into();
    let mut answer = agent.get(url).call().with_context(|| format!("cannot ask {url}"))?;
    let text = answer.body_mut().read_to_string().with_context(|| format!("cannot read {url}"))?;
    serde_json::from_str(&text).with_context(|| format!("{url} answers no prices"))
}

/// Passes every change on, on a thread of its own, until nobody listens.
///
/// # Errors
/// If the provider's URL is none, or the system refuses a thread.
pub fn spawn(provider: &str, happenings: Sender<Happening>) -> Result<()> {
    let place = provider.strip_prefix("http://").context("expected http://HOST:PORT")?;
    let place = place.trim_end_matches('/').to_owned();
    std::thread::Builder::new().name("meter's prices".to_owned()).spawn(move || {
        // A provider that is gone may come back; until then the last prices hold.
        while !matches!(listen(&place, &happenings), Ok(Ended::NobodyListens)) {
            std::thread::sleep(PAUSE);
        }
    })?;
    Ok(())
}

enum Ended {
    NobodyListens,
    NobodySpeaks,
}

/// Listens to one stream of events. It is asked for as HTTP/1.0, whose body is the bytes that come.
fn listen(place: &str, happenings: &Sender<Happening>) -> Result<Ended> {
    let address = place.to_socket_addrs()?.next().context("no address")?;
    let mut stream = TcpStream::connect_timeout(&address, SILENCE_MAX)?;
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    let events = path::PRICE_EVENTS;
    write!(stream, "GET {events} HTTP/1.0\r\nHost: {place}\r\nAccept: text/event-stream\r\n\r\n")?;
    let mut reader = BufReader::new(stream);
    let status = line(&mut reader)?.unwrap_or_default();
    ensure!(status.split(' ').nth(1) == Some("200"), "`{status}`");
    while let Some(line) = line(&mut reader)? {
        let Some(data) = line.strip_prefix("data:") else {
            continue;
        };
        if happenings.send(Happening::Prices(serde_json::from_str(data)?)).is_err() {
            return Ok(Ended::NobodyListens);
        }
    }
    Ok(Ended::NobodySpeaks)
}

fn line(reader: &mut impl BufRead) -> Result<Option<String>> {
    let mut line = String::new();
    let length = std::io::Read::take(&mut *reader, LINE_MAX).read_line(&mut line)?;
    Ok((length > 0).then(|| line.trim_end().to_owned()))
}
