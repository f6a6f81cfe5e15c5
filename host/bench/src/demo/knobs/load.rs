//! Clients that ask for keys as Zipf's law has it, and store what they do not find (cache aside).

use super::super::place::Machine;
use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

/// Keys, the most popular first.
const KEYS: usize = 60_000;
/// Zipf's exponent: about what web caches see (Breslau et al., "Web Caching and Zipf-like Distributions",
/// INFOCOM 1999: 0.64 to 0.83), a little steeper.
const EXPONENT: f64 = 0.9;
const VALUE_BYTES: usize = 1000;
const PATIENCE: Duration = Duration::from_secs(10);

/// What clients were answered so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Look-ups.
    pub requests: u64,
    /// Those that found a value.
    pub found: u64,
    /// Bytes of the replies that had one.
    pub useful_bytes: u64,
}

impl Tally {
    /// What came since `before`.
    pub fn since(self, before: Tally) -> Tally {
        Tally {
            requests: self.requests - before.requests,
            found: self.found - before.found,
            useful_bytes: self.useful_bytes - before.useful_bytes,
        }
    }
}

/// Clients at work, each a thread with a connection; they end when this is dropped.
pub struct Clients {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Result<()>>>,
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    requests: AtomicU64,
    found: AtomicU64,
    useful_bytes: AtomicU64,
}

impl Clients {
    /// Fills the store with the most popular keys last, and has `count` clients ask from then on.
    ///
    /// # Errors
    /// If the server is not reached, or answers wrongly.
    pub fn start(machine: &Machine, count: usize, seed: u64) -> Result<Clients> {
        let (shared, law) = (Arc::new(Shared::default()), Arc::new(Zipf::new(KEYS, EXPONENT)));
        let target = machine.target();
        machine.place().inside(|| fill(target))?;
        let streams: Vec<TcpStream> =
            machine.place().inside(|| (0..count).map(|_| connect(target)).collect())?;
        let client = |(index, stream): (usize, TcpStream)| {
            let (shared, law) = (shared.clone(), law.clone());
            let dice = fastrand::Rng::with_seed(seed ^ (index as u64) << 32);
            std::thread::spawn(move || ask(stream, &law, dice, &shared))
        };
        let threads = streams.into_iter().enumerate().map(client).collect();
        Ok(Clients { shared, threads })
    }

    /// What they were answered so far.
    pub fn tally(&self) -> Tally {
        let Shared { requests, found, useful_bytes, .. } = &*self.shared;
        let [requests, found, useful_bytes] =
            [requests, found, useful_bytes].map(|count| count.load(Relaxed));
        Tally { requests, found, useful_bytes }
    }

    /// Whether all still ask.
    ///
    /// # Errors
    /// If one has ended.
    pub fn check(&self) -> Result<()> {
        ensure!(!self.threads.iter().any(JoinHandle::is_finished), "a client ended");
        Ok(())
    }

    /// Ends them.
    ///
    /// # Errors
    /// What one of them saw.
    pub fn end(mut self) -> Result<()> {
        self.shared.is_over.store(true, Relaxed);
        let ends =
            self.threads.drain(..).map(|thread| thread.join().unwrap_or_else(|_| bail!("a client panicked")));
        ends.collect()
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Relaxed);
    }
}

fn connect(target: SocketAddr) -> Result<TcpStream> {
    let stream =
        TcpStream::connect_timeout(&target, PATIENCE).with_context(|| format!("cannot reach {target}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The value of a key, which no other has.
fn value(key: usize) -> Vec<u8> {
    format!("{key:010}").into_bytes().repeat(VALUE_BYTES / 10)
}

fn set(key: usize) -> Vec<u8> {
    let mut request = format!("set zipf{key} 0 0 {VALUE_BYTES}\r\n").into_bytes();
    request.extend(value(key));
    request.extend(b"\r\n");
    request
}

/// Stores every key, the most popular last, some at a time.
fn fill(target: SocketAddr) -> Result<()> {
    const AT_A_TIME: usize = 16;
    let mut stream = connect(target)?;
    let keys: Vec<usize> = (0..KEYS).rev().collect();
    for some in keys.chunks(AT_A_TIME) {
        stream.write_all(&some.iter().flat_map(|key| set(*key)).collect::<Vec<_>>())?;
        let mut answer = vec![0; some.len() * STORED.len()];
        stream.read_exact(&mut answer)?;
        ensure!(answer == STORED.repeat(some.len()), "the server answered `{}`", answer.escape_ascii());
    }
    Ok(())
}

const STORED: &[u8] = b"STORED\r\n";

/// Asks one thing after the other; what is not found is stored.
fn ask(stream: TcpStream, law: &Zipf, mut dice: fastrand::Rng, shared: &Shared) -> Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    while !shared.is_over.load(Relaxed) {
        let key = law.key(dice.f64());
        stream.write_all(format!("get zipf{key}\r\n").as_bytes())?;
        let mut head = String::new();
        reader.read_line(&mut head)?;
        shared.requests.fetch_add(1, Relaxed);
        if head == "END\r\n" {
            stream.write_all(&set(key))?;
            let mut stored = String::new();
            reader.read_line(&mut stored)?;
            ensure!(stored.as_bytes() == STORED, "zipf{key} was not stored: `{}`", stored.trim());
            continue;
        }
        let mut body = vec![0; VALUE_BYTES + b"\r\nEND\r\n".len()];
        reader.read_exact(&mut body)?;
        let expected = format!("VALUE zipf{key} 0 {VALUE_BYTES}\r\n");
        ensure!(head == expected, "zipf{key}: the server answered `{}`", head.trim());
        ensure!(body[..VALUE_BYTES] == value(key), "zipf{key} has another value");
        shared.found.fetch_add(1, Relaxed);
        shared.useful_bytes.fetch_add((head.len() + body.len()) as u64, Relaxed);
    }
    Ok(())
}

/// Zipf's law: the key of rank r is asked for as often as 1 / r to the power of an exponent.
struct Zipf {
    /// Of each key, the share of all requests that are for it or a more popular one.
    cumulative: Vec<f64>,
}

impl Zipf {
    fn new(keys: usize, exponent: f64) -> Zipf {
        let mut sum = 0.0;
        let weights = (1..=keys).map(|rank| (rank as f64).powf(-exponent));
        let sums: Vec<f64> = weights
            .map(|weight| {
                sum += weight;
                sum
            })
            .collect();
        Zipf { cumulative: sums.iter().map(|one| one / sum).collect() }
    }

    /// The key that a number from 0 to 1 falls on.
    fn key(&self, number: f64) -> usize {
        self.cumulative.partition_point(|share| *share <= number).min(self.cumulative.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_as_popular_as_zipf_has_it() {
        let (law, mut dice) = (Zipf::new(100, 1.0), fastrand::Rng::with_seed(1));
        let mut asked = [0_u32; 100];
        (0..100_000).for_each(|_| asked[law.key(dice.f64())] += 1);
        // The sum of 1/r to 100 is 5.187.
        for (key, expected) in [(0, 19_278.0), (1, 9639.0), (9, 1927.8)] {
            assert!((f64::from(asked[key]) / expected - 1.0).abs() < 0.1, "{key}: {}", asked[key]);
        }
        assert_eq!((law.key(0.0), law.key(1.0)), (0, 99));
    }

    #[test]
    fn tallies_are_differences() {
        let of = |requests, found, useful_bytes| Tally { requests, found, useful_bytes };
        assert_eq!(of(9, 5, 500).since(of(4, 3, 300)), of(5, 2, 200));
    }
}
