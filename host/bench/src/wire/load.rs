//! What passes the cable: memcached's protocol, the least of it that moves many bytes either way, and one
//! question after another.

use anyhow::{Context, Result, bail, ensure};
use nom_vmm::Namespace;
use nom_vmm::namespace::GUEST;
use rustix::net::sockopt::set_tcp_congestion;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// memcached's port.
pub const PORT: u16 = 11211;
/// Bytes of a value that is moved: many of them make a stream.
const VALUE: usize = 100_000;
/// Values that are asked for ahead: more than a path holds.
const AHEAD: usize = 100;
/// Bytes of a value that is asked for alone.
const SMALL: usize = 100;
/// How long a point may take altogether.
const PATIENCE: Duration = Duration::from_secs(60);

/// Ways to load a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Values from the server.
    Download,
    /// Values to the server.
    Upload,
    /// Small values from the server, each asked for when the last has come.
    Questions,
}

impl Load {
    /// All of them.
    pub const ALL: [Load; 3] = [Load::Download, Load::Upload, Load::Questions];

    /// As records have it.
    pub fn name(self) -> &'static str {
        match self {
            Load::Download => "bulk from it",
            Load::Upload => "bulk to it",
            Load::Questions => "questions",
        }
    }

    /// Bits, or answers, a second, of at least `duration`; every byte that comes is compared.
    ///
    /// # Errors
    /// If the server does not answer, or wrongly.
    pub fn run(self, client: &Namespace, duration: Duration) -> Result<f64> {
        let run = || -> Result<f64> {
            client.enter()?;
            let stream = connect()?;
            match self {
                Load::Download => download(stream, duration),
                Load::Upload => upload(stream, duration),
                Load::Questions => questions(stream, duration),
            }
        };
        std::thread::scope(|scope| scope.spawn(run).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            .with_context(|| format!("{} failed", self.name()))
    }
}

/// Has a socket of Linux's control congestion as Debian's do, whatever this computer prefers.
///
/// # Errors
/// If Linux has no Cubic.
pub fn use_cubic(socket: impl AsFd) -> Result<()> {
    set_tcp_congestion(socket, "cubic").context("Linux has no Cubic")
}

/// A connection to the server, as soon as it serves.
fn connect() -> Result<TcpStream> {
    let end = Instant::now() + PATIENCE;
    loop {
        match TcpStream::connect_timeout(&(GUEST, PORT).into(), PATIENCE) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_nodelay(true)?;
                use_cubic(&stream)?;
                return Ok(stream);
            }
            Err(error) if Instant::now() > end => return Err(error).context("nobody serves"),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Byte number `at` of a value of `len` bytes.
fn value(len: usize) -> Vec<u8> {
    (0..len).map(|at| b'a' + ((at * 7 + at / 251) % 26) as u8).collect()
}

fn store(stream: &mut TcpStream, key: &str, len: usize) -> Result<()> {
    stream.write_all(format!("set {key} 0 0 {len}\r\n").as_bytes())?;
    stream.write_all(&[value(len), b"\r\n".to_vec()].concat())?;
    expect(stream, b"STORED\r\n")
}

fn expect(stream: &mut impl Read, expected: &[u8]) -> Result<()> {
    let mut got = vec![0; expected.len()];
    stream.read_exact(&mut got)?;
    ensure!(
        got == expected,
        "{} bytes are not as expected, beginning with `{}`",
        got.len(),
        got[..got.len().min(40)].escape_ascii()
    );
    Ok(())
}

fn answer(key: &str, len: usize) -> Vec<u8> {
    [format!("VALUE {key} 0 {len}\r\n").as_bytes(), &value(len), b"\r\nEND\r\n"].concat()
}

fn download(mut stream: TcpStream, duration: Duration) -> Result<f64> {
    store(&mut stream, "large", VALUE)?;
    let expected = answer("large", VALUE);
    let ask = b"get large\r\n";
    let start = Instant::now();
    stream.write_all(&ask.repeat(AHEAD))?;
    let mut bytes = 0;
    let mut piece = vec![0; 64 << 10];
    while start.elapsed() < duration {
        let len = stream.read(&mut piece)?;
        ensure!(len > 0, "the server closed");
        check_stream(&piece[..len], bytes, &expected)?;
        let whole = bytes / expected.len();
        bytes += len;
        stream.write_all(&ask.repeat(bytes / expected.len() - whole))?;
    }
    Ok(bytes as f64 * 8.0 / start.elapsed().as_secs_f64())
}

/// Whether `piece`, which begins at byte `at` of a stream that repeats `expected`, is as it must be.
fn check_stream(mut piece: &[u8], mut at: usize, expected: &[u8]) -> Result<()> {
    while !piece.is_empty() {
        let rest = &expected[at % expected.len()..];
        let len = rest.len().min(piece.len());
        ensure!(piece[..len] == rest[..len], "wrong bytes at {at}");
        (piece, at) = (&piece[len..], at + len);
    }
    Ok(())
}

fn upload(stream: TcpStream, duration: Duration) -> Result<f64> {
    const PIECE: usize = 10_000;
    const STORED: &[u8] = b"STORED\r\n";
    let request = [b"set large 0 0 10000\r\n", &value(PIECE)[..], b"\r\n"].concat();
    let (mut sender, mut receiver) = (stream.try_clone()?, stream);
    let start = Instant::now();
    let stored = std::thread::scope(|scope| -> Result<f64> {
        let writer = scope.spawn(move || {
            let requests = request.repeat(10);
            while start.elapsed() < duration {
                if sender.write_all(&requests).is_err() {
                    return;
                }
            }
        });
        let mut count = 0;
        while start.elapsed() < duration {
            expect(&mut receiver, STORED)?;
            count += 1;
        }
        let rate = (count * PIECE) as f64 * 8.0 / start.elapsed().as_secs_f64();
        // Whoever writes into a full path finds out that it is over.
        receiver.shutdown(Shutdown::Both)?;
        let _ = writer.join();
        Ok(rate)
    })?;
    let mut check = connect()?;
    check.write_all(b"get large\r\n")?;
    expect(&mut check, &answer("large", PIECE))?;
    Ok(stored)
}

fn questions(mut stream: TcpStream, duration: Duration) -> Result<f64> {
    store(&mut stream, "small", SMALL)?;
    let expected = answer("small", SMALL);
    let (start, mut count) = (Instant::now(), 0);
    while start.elapsed() < duration {
        stream.write_all(b"get small\r\n")?;
        expect(&mut stream, &expected)?;
        count += 1;
    }
    Ok(f64::from(count) / start.elapsed().as_secs_f64())
}

/// What these loads need of memcached, by Linux's stack: a thread for each connection, until the process
/// ends.
pub fn serve(listener: &TcpListener) {
    let stored = std::sync::Arc::new(std::sync::Mutex::new(std::collections::BTreeMap::new()));
    for stream in listener.incoming().flatten() {
        let stored = stored.clone();
        // A client that ends is no failure.
        std::thread::spawn(move || drop(talk(stream, &stored)));
    }
}

fn talk(
    mut stream: TcpStream,
    stored: &std::sync::Mutex<std::collections::BTreeMap<String, std::sync::Arc<Vec<u8>>>>,
) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut input = BufReader::with_capacity(64 << 10, stream.try_clone()?);
    let mut line = String::new();
    while input.read_line(&mut line)? > 0 {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["get", key] => {
                let value = stored.lock().expect("no panic").get(key).cloned().context("no such key")?;
                stream.write_all(&value)?;
            }
            ["set", key, _, _, len] => {
                let mut bytes = vec![0; len.parse::<usize>()? + 2];
                input.read_exact(&mut bytes)?;
                let head = format!("VALUE {key} 0 {len}\r\n");
                let value = [head.as_bytes(), &bytes, b"END\r\n"].concat();
                stored.lock().expect("no panic").insert(key.to_owned(), value.into());
                stream.write_all(b"STORED\r\n")?;
            }
            _ => bail!("`{}` is neither get nor set", line.trim_end()),
        }
        line.clear();
    }
    Ok(())
}
