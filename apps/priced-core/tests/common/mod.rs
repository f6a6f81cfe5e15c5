//! A machine of threads and sockets around the daemon, and providers that misbehave.

use nom_abi::prices::{PriceList, PricedResource};
use nom_priced_core::{Command, Daemon, Happening, Link, Loss, Source};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long anything may take, on a slow and busy computer.
const PATIENCE: Duration = Duration::from_secs(60);

/// The daemon on sockets of this computer. Its clock can be put forward.
pub struct Machine {
    pub daemon: Daemon,
    pub lines: Vec<String>,
    /// What stands on the board.
    pub board: PriceList,
    pub announcements: usize,
    /// Whether the clock is put forward instead of waiting for the next try.
    pub is_eager: bool,
    provider: SocketAddr,
    streams: [Option<TcpStream>; 2],
    start: Instant,
    skipped_ns: u64,
}

impl Machine {
    pub fn new(provider: SocketAddr) -> Machine {
        Machine::with_key(provider, None)
    }

    pub fn with_key(provider: SocketAddr, key: Option<&str>) -> Machine {
        Machine {
            daemon: Daemon::new(Source::Provider(provider), key, 7),
            lines: Vec::new(),
            board: PriceList::default(),
            announcements: 0,
            is_eager: false,
            provider,
            streams: [None, None],
            start: Instant::now(),
            skipped_ns: 0,
        }
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64 + self.skipped_ns
    }

    /// Puts the clock forward.
    pub fn skip(&mut self, time: Duration) {
        self.skipped_ns += time.as_nanos() as u64;
    }

    /// Runs until `reached`.
    pub fn until(&mut self, what: &str, reached: impl Fn(&Machine) -> bool) {
        let start = Instant::now();
        while !reached(self) {
            assert!(start.elapsed() < PATIENCE, "waited for {what}; said: {:#?}", self.lines);
            self.turn();
        }
    }

    /// Runs until a line with this text was said since the last such call, and forgets the lines before.
    pub fn until_said(&mut self, text: &str) {
        self.until(text, |machine| machine.lines.iter().any(|line| line.contains(text)));
        let index = self.lines.iter().position(|line| line.contains(text)).expect("it was said");
        self.lines.drain(..=index);
    }

    /// Runs until outgoing data costs this.
    pub fn until_price(&mut self, dollars: f64) {
        self.until(&format!("price {dollars}"), |machine| machine.price() == Some(dollars));
    }

    /// The price of outgoing data on the board.
    pub fn price(&self) -> Option<f64> {
        self.board.get(PricedResource::NetworkOut).map(|entry| entry.dollars)
    }

    pub fn turn(&mut self) {
        if self.is_eager && self.streams[Link::Prices as usize].is_none() {
            let wait_ns = self.daemon.due_ns().map_or(0, |due_ns| due_ns.saturating_sub(self.now_ns()));
            self.skip(Duration::from_nanos(wait_ns));
        }
        let now_ns = self.now_ns();
        self.daemon.tick(now_ns);
        while let Some((link, command)) = self.daemon.command() {
            if let Err(loss) = self.obey(link, command) {
                self.daemon.happened(now_ns, link, Happening::Closed(loss));
            }
        }
        let mut is_idle = true;
        for link in Link::ALL {
            is_idle &= !self.read(now_ns, link);
        }
        self.lines.extend(std::iter::from_fn(|| self.daemon.line()));
        if let Some(publication) = self.daemon.publication() {
            self.board = publication.list;
            self.announcements += usize::from(publication.announcement.is_some());
        }
        if is_idle {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn obey(&mut self, link: Link, command: Command) -> Result<(), Loss> {
        let stream = &mut self.streams[link as usize];
        match command {
            Command::Connect => {
                let connected = TcpStream::connect(self.provider).map_err(|_| Loss::Refused)?;
                connected.set_nonblocking(true).map_err(|_| Loss::Reset)?;
                *stream = Some(connected);
                let now_ns = self.now_ns();
                self.daemon.happened(now_ns, link, Happening::Connected);
            }
            Command::Send(bytes) => {
                stream.as_mut().ok_or(Loss::Reset)?.write_all(&bytes).map_err(|_| Loss::Reset)?;
            }
            Command::Drop => *stream = None,
        }
        Ok(())
    }

    /// Passes on what came; whether anything did.
    fn read(&mut self, now_ns: u64, link: Link) -> bool {
        let Some(stream) = &mut self.streams[link as usize] else { return false };
        let mut buffer = [0; 1000];
        let happening = match stream.read(&mut buffer) {
            Ok(0) => Happening::Closed(Loss::Finished),
            Ok(length) => Happening::Received(&buffer[..length]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(_) => Happening::Closed(Loss::Reset),
        };
        if matches!(happening, Happening::Closed(_)) {
            self.streams[link as usize] = None;
        }
        self.daemon.happened(now_ns, link, happening);
        true
    }
}

/// What a misbehaving provider does with a connection, by the path that was asked for.
#[derive(Clone)]
pub enum Manner {
    /// Says this and closes.
    Close(String),
    /// Says this and stays silent.
    Stay(String),
    /// Says this byte by byte, and stays.
    Dribble(String),
    /// Says the first once and the second again and again, until the client is gone.
    Repeat(String, String),
}

/// What it does with a path.
pub type Manners = fn(&str) -> Manner;

/// A provider that does with each path what it is told to at the time.
#[derive(Clone)]
pub struct Fake {
    pub address: SocketAddr,
    manner: Arc<Mutex<Manners>>,
    served: Arc<AtomicUsize>,
}

impl Fake {
    /// Runs as long as the test.
    pub fn start(manner: Manners) -> Fake {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let fake = Fake { address, manner: Arc::new(Mutex::new(manner)), served: Arc::default() };
        let server = fake.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, server) = (stream.expect("a connection"), server.clone());
                std::thread::spawn(move || server.serve(stream));
            }
        });
        fake
    }

    /// Connections so far.
    pub fn served(&self) -> usize {
        self.served.load(Relaxed)
    }

    /// Behaves otherwise from now on.
    pub fn set(&self, manner: Manners) {
        *self.manner.lock().expect("no test panicked here") = manner;
    }

    /// A client that goes away ends it, which is no fault of the provider.
    fn serve(&self, mut stream: TcpStream) -> Option<()> {
        self.served.fetch_add(1, Relaxed);
        let mut request = Vec::new();
        while !request.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).ok()?;
            request.extend_from_slice(&byte);
        }
        let text = String::from_utf8_lossy(&request).into_owned();
        let manner = *self.manner.lock().ok()?;
        match manner(text.split(' ').nth(1)?) {
            Manner::Close(text) => stream.write_all(text.as_bytes()).ok(),
            Manner::Stay(text) => {
                stream.write_all(text.as_bytes()).ok()?;
                stream.read_to_end(&mut Vec::new()).ok().map(drop)
            }
            Manner::Dribble(text) => {
                stream.set_nodelay(true).ok()?;
                text.as_bytes().iter().try_for_each(|byte| stream.write_all(&[*byte]).ok())?;
                stream.read_to_end(&mut Vec::new()).ok().map(drop)
            }
            Manner::Repeat(first, next) => {
                stream.write_all(first.as_bytes()).ok()?;
                while stream.write_all(next.as_bytes()).is_ok() {}
                None
            }
        }
    }
}
