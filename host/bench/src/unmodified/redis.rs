//! `redis-benchmark`, redis's own client; what it prints is read here.

use super::loads::Served;
use crate::serve::tools;
use anyhow::{Context, Result, ensure};
use nom_vmm::Namespace;
use std::net::SocketAddr;

/// Bytes of each value, as memcached's here.
const VALUE_BYTES: &str = "100";
/// Keys, of which each request takes one at random.
const KEYS: &str = "1000";

/// Has redis execute one of redis-benchmark's tests `requests` times, so many at a time on each connection.
///
/// # Errors
/// If redis-benchmark fails, or prints no figures.
pub fn benchmark(
    namespace: &Namespace,
    target: SocketAddr,
    (test, pipeline): (&str, u32),
    connections: usize,
    requests: u64,
) -> Result<Served> {
    let mut command = tools::client(namespace, "redis-benchmark");
    command.args(["-h", &target.ip().to_string(), "-p", &target.port().to_string(), "-t", test, "--csv"]);
    command.args(["-c", &connections.to_string(), "-P", &pipeline.to_string()]);
    command.args(["-n", &requests.to_string(), "-d", VALUE_BYTES, "-r", KEYS]);
    parse(&tools::output(&mut command)?, test, requests)
}

/// Reads the row of `test`. Latencies are in milliseconds there.
fn parse(printed: &str, test: &str, requests: u64) -> Result<Served> {
    let mut reader = csv::Reader::from_reader(printed.as_bytes());
    let head = reader.headers().context("redis-benchmark printed no table")?.clone();
    let row = reader
        .records()
        .filter_map(|row| row.ok())
        .find(|row| row.get(0).is_some_and(|name| name.eq_ignore_ascii_case(test)));
    let row =
        row.with_context(|| format!("redis-benchmark printed nothing of {test}: {}", printed.trim()))?;
    let figure = |name: &str| -> Result<f64> {
        let column = head.iter().position(|title| title == name);
        let text = column.and_then(|column| row.get(column));
        let text = text.with_context(|| format!("redis-benchmark printed no {name}"))?;
        text.parse().with_context(|| format!("redis-benchmark's {name} is `{text}`"))
    };
    let throughput = figure("rps")?;
    ensure!(throughput > 0.0, "redis answered nothing");
    let mut latency = [0.0; 3];
    for (value, name) in latency.iter_mut().zip(["avg_latency_ms", "p50_latency_ms", "p99_latency_ms"]) {
        *value = figure(name)? / 1e3;
    }
    Ok(Served { requests, throughput, latency })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\
        \"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\
        \"SET\",\"465116.25\",\"0.478\",\"0.088\",\"0.375\",\"0.735\",\"5.551\",\"5.735\"\n\
        \"GET\",\"571428.56\",\"0.347\",\"0.048\",\"0.223\",\"0.407\",\"1.767\",\"11.367\"\n";

    #[test]
    fn the_row_of_a_test_becomes_figures() {
        let latency = [0.347 / 1e3, 0.223 / 1e3, 1.767 / 1e3];
        let expected = Served { requests: 7, throughput: 571_428.56, latency };
        assert_eq!(parse(PRINTED, "get", 7).unwrap(), expected);
        assert_eq!(parse(PRINTED, "set", 7).unwrap().throughput, 465_116.25);
    }

    #[test]
    fn what_is_no_figure_is_named() {
        let error = |printed: &str| format!("{:#}", parse(printed, "get", 7).unwrap_err());
        assert!(error("Could not connect to Redis").contains("nothing of get: Could not connect"));
        assert!(error(&PRINTED.replace("571428.56", "many")).contains("rps is `many`"));
        assert!(error(&PRINTED.replace("571428.56", "0.00")).contains("answered nothing"));
        assert!(error(&PRINTED.replace("p99_latency", "p98_latency")).contains("no p99_latency_ms"));
    }
}
