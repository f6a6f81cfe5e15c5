//! Clients that others wrote: memcaslap, wrk and NPtcp; what they print is read here.

use super::load::Transport;
use anyhow::{Context, Result, ensure};
use nom_vmm::Namespace;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// wrk prints its figures rounded; this has it print all of them, in microseconds, in one line.
const WRK_SCRIPT: &str = r#"
done = function(summary, latency, requests)
    local e = summary.errors
    io.write(string.format(
        "nom requests=%d bytes=%d duration_us=%d errors=%d mean=%f deviation=%f p50=%f p99=%f p99_9=%f\n",
        summary.requests, summary.bytes, summary.duration,
        e.connect + e.read + e.write + e.status + e.timeout,
        latency.mean, latency.stdev,
        latency:percentile(50), latency:percentile(99), latency:percentile(99.9)))
end
"#;

/// Seconds after which a client is ended: a server that is stuck must not stop the bench.
const TIMEOUT_S: u64 = 90;

/// How often NetPIPE sends each message in a trial; by itself it would take seconds for each size.
const MESSAGES: u64 = 200;

/// What wrk saw.
#[derive(Clone, Debug, PartialEq)]
pub struct WrkFigures {
    /// Replies.
    pub requests: u64,
    /// Their bytes, with HTTP's headers.
    pub bytes: u64,
    /// Replies per second.
    pub throughput: f64,
    /// Latencies in seconds: their mean, standard deviation, and percentiles 50, 99 and 99.9.
    pub latency: [f64; 5],
}

/// Loads the web server at `target` with `connections` from one thread.
///
/// # Errors
/// If wrk fails, or a request did.
pub fn wrk(
    namespace: &Namespace,
    scratch: &Path,
    target: SocketAddr,
    connections: usize,
    duration: Duration,
) -> Result<WrkFigures> {
    let mut command = client(namespace, "wrk");
    command.args(wrk_arguments(scratch, target, connections, duration)?);
    parse_wrk(&output(&mut command)?)
}

/// Has wrk ask so many times at once: a client has less to do for what takes the server long.
const WRK_AT_ONCE: &str = r#"
init = function(arguments)
    local requests = {}
    for number = 1, 16 do
        requests[number] = wrk.format()
    end
    together = table.concat(requests)
end
request = function()
    return together
end
"#;

/// The same of one page of the server's, whose path begins with `/`, for which each connection asks many
/// times at once.
///
/// # Errors
/// As [`wrk`].
pub fn wrk_page(
    namespace: &Namespace,
    scratch: &Path,
    (target, page): (SocketAddr, &str),
    connections: usize,
    duration: Duration,
) -> Result<WrkFigures> {
    let (script, url) = ([WRK_AT_ONCE, WRK_SCRIPT].concat(), format!("http://{target}{page}"));
    let arguments = scripted(scratch, &script, &url, connections, duration)?;
    parse_wrk(&output(client(namespace, "wrk").args(arguments))?)
}

/// wrk's arguments, one of which is a script that is written to the directory `scratch`.
pub(crate) fn wrk_arguments(
    scratch: &Path,
    target: SocketAddr,
    connections: usize,
    duration: Duration,
) -> Result<Vec<OsString>> {
    scripted(scratch, WRK_SCRIPT, &format!("http://{target}/"), connections, duration)
}

/// wrk's arguments to ask for `url` as `script` says, which is written to the directory `scratch`.
fn scripted(
    scratch: &Path,
    script: &str,
    url: &str,
    connections: usize,
    duration: Duration,
) -> Result<Vec<OsString>> {
    let file = scratch.join("wrk.lua");
    std::fs::write(&file, script).with_context(|| format!("cannot write {}", file.display()))?;
    let (connections, duration) = (connections.to_string(), format!("{}s", whole_seconds(duration)));
    let words = ["--threads", "1", "--connections", &connections, "--duration", &duration, "--script"];
    Ok(words.map(OsString::from).into_iter().chain([file.into(), url.into()]).collect())
}

/// Reads what wrk printed through its script.
pub(crate) fn parse_wrk(printed: &str) -> Result<WrkFigures> {
    let line =
        printed.lines().find_map(|line| line.strip_prefix("nom ")).context("wrk printed no figures")?;
    let pairs: BTreeMap<&str, f64> = line
        .split(' ')
        .filter_map(|pair| pair.split_once('='))
        .filter_map(|(k, v)| Some((k, v.parse().ok()?)))
        .collect();
    let figure =
        |name: &str| pairs.get(name).copied().with_context(|| format!("wrk printed no {name}: {line}"));
    let errors = figure("errors")?;
    ensure!(errors == 0.0, "{errors} of wrk's requests failed");
    let mut latency = [0.0; 5];
    for (value, name) in latency.iter_mut().zip(["mean", "deviation", "p50", "p99", "p99_9"]) {
        *value = figure(name)? / 1e6;
    }
    let (requests, bytes) = (figure("requests")?, figure("bytes")? as u64);
    let seconds = figure("duration_us")? / 1e6;
    Ok(WrkFigures { requests: requests as u64, bytes, throughput: requests / seconds, latency })
}

/// Loads the memcached at `target` by `transport` with memcaslap's mix, a tenth of it sets, and has it verify
/// every value; operations per second.
///
/// # Errors
/// If memcaslap fails or finds a wrong value.
pub fn memcaslap(
    namespace: &Namespace,
    target: SocketAddr,
    transport: Transport,
    connections: usize,
    duration: Duration,
) -> Result<f64> {
    let mut command = client(namespace, "memcaslap");
    command.args(memcaslap_arguments(target, connections, duration));
    if transport == Transport::Udp {
        command.arg("--udp");
    }
    let figures = parse_memcaslap(&output(&mut command)?)?;
    ensure!(figures.misses == 0.0, "memcaslap misses {} values", figures.misses);
    Ok(figures.throughput)
}

/// memcaslap's arguments.
pub(crate) fn memcaslap_arguments(target: SocketAddr, connections: usize, duration: Duration) -> Vec<String> {
    let (target, connections) = (target.to_string(), connections.to_string());
    let duration = format!("{}s", whole_seconds(duration));
    let words = ["--servers", &target, "--threads", "1", "--verify", "1.0"];
    let more = ["--concurrency", &connections, "--time", &duration];
    words.into_iter().chain(more).map(str::to_owned).collect()
}

/// What memcaslap saw in all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MemcaslapFigures {
    /// Gets and sets.
    pub operations: f64,
    /// Operations per second.
    pub throughput: f64,
    /// Bytes of replies.
    pub read_bytes: f64,
    /// Values that were stored and not found any more.
    pub misses: f64,
}

/// Reads what memcaslap printed at its end; an error if a value was wrong.
pub(crate) fn parse_memcaslap(printed: &str) -> Result<MemcaslapFigures> {
    let count = |name: &str| {
        let count = printed.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        count.with_context(|| format!("memcaslap printed no {name}"))
    };
    let wrong = count("verify_failed")?;
    ensure!(wrong == "0", "memcaslap reports verify_failed: {wrong}");
    let number = |name: &str, text: &str| -> Result<f64> {
        text.parse().with_context(|| format!("memcaslap's {name} is `{text}`"))
    };
    let total = printed.lines().find(|line| line.starts_with("Run time: "));
    let field = |name: &str| {
        let (_, rest) = total?.split_once(name)?;
        rest.split_whitespace().next()
    };
    let total_field =
        |name: &str| number(name, field(name).with_context(|| format!("memcaslap printed no {name}"))?);
    Ok(MemcaslapFigures {
        operations: total_field("Ops:")?,
        throughput: total_field("TPS:")?,
        read_bytes: number("read_bytes", count("read_bytes")?)?,
        misses: number("get_misses", count("get_misses")?)?
            .max(number("verify_misses", count("verify_misses")?)?),
    })
}

/// One message size of NetPIPE's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Message {
    /// Its size.
    pub bytes: u32,
    /// Throughput of messages of this size back and forth.
    pub bits_per_second: f64,
    /// Half of a round trip; where both sides send at once, the time until both messages are there.
    pub seconds: f64,
}

/// How often NetPIPE sends as many messages of a size as it is told; it reports the best time.
pub(crate) const NETPIPE_TRIALS: u64 = 3;
/// How often NetPIPE sends a message of each size there and back.
pub const NETPIPE_ROUND_TRIPS: u64 = NETPIPE_TRIALS * MESSAGES;

/// Runs NetPIPE's client against the server at `host`, messages of 1 byte to `largest`. Both sides must
/// walk through the same sizes, those that NPtcp has by default, as nothing on the wire names them, and have
/// the same `options`. `watch` is told when a size begins, and when it is over.
///
/// # Errors
/// If NPtcp fails, or `watch` does.
pub fn netpipe(
    namespace: &Namespace,
    scratch: &Path,
    host: SocketAddr,
    options: &[&str],
    largest: u32,
    mut watch: impl FnMut(u32, bool) -> Result<()>,
) -> Result<Vec<Message>> {
    let file = scratch.join("np.out");
    let mut command = client(namespace, "NPtcp");
    command.args(options).args(netpipe_arguments(&file, host, largest, Some(MESSAGES)));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot run NPtcp")?;
    let complaint = child.stderr.take().context("NPtcp has a standard error")?;
    let said = follow_netpipe(complaint, &mut watch);
    let status = child.wait()?;
    let said = said?;
    ensure!(status.success(), "NPtcp failed with {status}: {}", said.trim());
    let printed =
        std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    parse_netpipe(&printed)
}

/// NPtcp's arguments: messages of up to `largest` bytes, `messages` of each size in a trial or as many as it
/// sees fit, and the file for what it measured.
pub(crate) fn netpipe_arguments(
    file: &Path,
    target: SocketAddr,
    largest: u32,
    messages: Option<u64>,
) -> Vec<OsString> {
    let mut words =
        vec!["-h".to_owned(), target.ip().to_string(), "-P".to_owned(), target.port().to_string()];
    words.extend(["-u".to_owned(), largest.to_string()]);
    words.extend(messages.into_iter().flat_map(|count| ["-n".to_owned(), count.to_string()]));
    words.push("-o".to_owned());
    words.into_iter().map(OsString::from).chain([file.into()]).collect()
}

/// Reads what NPtcp says while it runs, `  3:       4 bytes    200 times -->   8.20 Mbps in 3.72 usec` for
/// each size, its first half when the size begins; returns it as a whole.
fn follow_netpipe(mut from: impl Read, watch: &mut impl FnMut(u32, bool) -> Result<()>) -> Result<String> {
    let (mut said, mut buffer, mut begun) = (String::new(), [0; 256], None);
    loop {
        let length = from.read(&mut buffer)?;
        if length == 0 {
            return Ok(said);
        }
        for piece in String::from_utf8_lossy(&buffer[..length]).split_inclusive(['>', '\n']) {
            said.push_str(piece);
            let line = said.lines().last().unwrap_or_default();
            if piece.ends_with('>') {
                begun = line.split_whitespace().nth(1).and_then(|bytes| bytes.parse().ok());
                begun.map_or(Ok(()), |bytes| watch(bytes, false))?;
            } else if piece.ends_with('\n')
                && let Some(bytes) = begun.take()
            {
                watch(bytes, true)?;
            }
        }
    }
}

/// Bits in what NPtcp calls a Mbit: it divides by 1024 * 1024 (NetPIPE 3.7, `src/netpipe.c`,
/// `bwdata[n].bps`).
const NETPIPE_MBIT: f64 = 1_048_576.0;

/// Reads NPtcp's file: bytes, Mbit/s and seconds of one way.
pub(crate) fn parse_netpipe(printed: &str) -> Result<Vec<Message>> {
    let message = |line: &str| {
        let mut fields = line.split_whitespace();
        let mut field = || fields.next()?.parse::<f64>().ok();
        let (bytes, megabits, seconds) = (field()?, field()?, field()?);
        Some(Message { bytes: bytes as u32, bits_per_second: megabits * NETPIPE_MBIT, seconds })
    };
    let messages = printed.lines().map(|line| message(line).with_context(|| format!("NPtcp wrote `{line}`")));
    let messages: Vec<Message> = messages.collect::<Result<_>>()?;
    ensure!(!messages.is_empty(), "NPtcp measured nothing");
    Ok(messages)
}

/// The tools know whole seconds only.
fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs().max(1)
}

/// A client, to be started in a guest's network and ended when it takes too long.
pub(crate) fn client(namespace: &Namespace, program: &str) -> Command {
    let mut command = namespace.command("timeout");
    command.args([&TIMEOUT_S.to_string(), program]);
    command
}

/// Runs a client to its end; what it complained about goes into the error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let line = command.get_args().skip(5).map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let run = command.stdin(Stdio::null()).output();
    let Output { status, stdout, stderr } = run.with_context(|| format!("cannot run {line}"))?;
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    ensure!(status.success(), "`{line}` failed with {status}: {} {}", stdout.trim(), stderr.trim());
    Ok(stdout.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrk_figures_are_read_exactly() {
        let printed = include_str!("captured/wrk.txt");
        let figures = parse_wrk(printed).unwrap();
        assert_eq!((figures.requests, figures.bytes), (2964, 2_369_815));
        assert_eq!(figures.throughput, 2964.0 / 2.099_799);
        let microseconds = figures.latency.map(|seconds| (seconds * 1e6).round());
        assert_eq!(microseconds, [3787.0, 4360.0, 1824.0, 20_414.0, 37_037.0]);
        let failed = parse_wrk(&printed.replace("errors=0", "errors=3")).unwrap_err().to_string();
        assert_eq!(failed, "3 of wrk's requests failed");
        assert!(parse_wrk("Running 2s test").is_err());
    }

    #[test]
    fn memcaslap_figures_count_only_if_every_value_was_right() {
        let printed = include_str!("captured/memcaslap.txt");
        let figures = parse_memcaslap(printed).unwrap();
        assert_eq!((figures.operations, figures.throughput), (161_622.0, 80_803.0));
        assert_eq!((figures.read_bytes, figures.misses), (161_564_422.0, 0.0));
        let missed = printed.replace("verify_misses: 0", "verify_misses: 7");
        assert_eq!(parse_memcaslap(&missed).unwrap().misses, 7.0);
        let failed = parse_memcaslap(&printed.replace("verify_failed: 0", "verify_failed: 2")).unwrap_err();
        assert_eq!(failed.to_string(), "memcaslap reports verify_failed: 2");
        assert!(parse_memcaslap("usage").is_err());
    }

    #[test]
    fn netpipe_lines_become_messages() {
        let messages = parse_netpipe(include_str!("captured/np.out")).unwrap();
        let (bits_per_second, seconds) = (1.254_902 * 1_048_576.0, 0.000_006_08);
        assert_eq!(messages[0], Message { bytes: 1, bits_per_second, seconds });
        for Message { bytes, bits_per_second, seconds } in &messages {
            let bits = f64::from(*bytes) * 8.0;
            // NPtcp writes hundredths of a microsecond.
            assert!(
                (bits_per_second * seconds / bits - 1.0).abs() < 0.005 / (1e6 * seconds),
                "{bytes} bytes"
            );
        }
        assert_eq!(messages.last().unwrap().bytes, 65_539);
        assert!(parse_netpipe("").is_err());
        assert!(parse_netpipe("connection refused").unwrap_err().to_string().contains("refused"));
    }

    #[test]
    fn netpipe_is_watched_size_by_size() {
        let said = "Now starting the main loop\n\
                    \x20 0:       1 bytes    200 times -->      1.25 Mbps in       6.08 usec\n\
                    \x20 1:       2 bytes    200 times -->      2.54 Mbps in       6.00 usec\n";
        // However it comes.
        for length in [1, 7, 1000] {
            let mut seen = Vec::new();
            let mut watch = |bytes, is_over| {
                seen.push((bytes, is_over));
                Ok(())
            };
            let pieces = Pieces { rest: said.as_bytes(), length };
            assert_eq!(follow_netpipe(pieces, &mut watch).unwrap(), said);
            assert_eq!(seen, [(1, false), (1, true), (2, false), (2, true)]);
        }
    }

    struct Pieces<'a> {
        rest: &'a [u8],
        length: usize,
    }

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let (piece, rest) = self.rest.split_at(self.length.min(self.rest.len()).min(buffer.len()));
            buffer[..piece.len()].copy_from_slice(piece);
            self.rest = rest;
            Ok(piece.len())
        }
    }
}
