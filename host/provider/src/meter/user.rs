//! Counts of a network device on QEMU's user-mode network, without any rights.
//!
//! QEMU can write a trace of the packets that pass a network back-end (object `filter-dump`), each with its
//! length. Two of them, one for each direction, write to pipes with no more of each packet than they must: a
//! byte. The direction is where a packet passes, not what is written in it, so that a machine cannot deceive
//! its meter.

use super::{Bytes, Counter};
use anyhow::{Context, Result};
use rustix::fs::{FileType, Mode, OFlags};
use std::fs::File;
use std::io::{BufReader, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Length of a trace's header, and of each packet's (libpcap file format).
const FILE_HEADER: usize = 24;
const PACKET_HEADER: usize = 16;
/// Bytes of a packet that are traced; QEMU takes no 0.
const TRACED: usize = 1;
/// Size of a pipe: QEMU waits while it is full, which at 17 bytes a packet takes 60,000 packets.
const PIPE_BYTES: usize = 1 << 20;

/// How QEMU is to be told of the meter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tapped {
    netdev: String,
    pipes: [(&'static str, PathBuf); 2],
}

impl Tapped {
    /// Arguments for QEMU, behind those for the back-end.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let object = |(queue, path): &(&str, PathBuf)| {
            let (netdev, file) = (&self.netdev, path.display().to_string().replace(',', ",,"));
            let id = format!("meter-{netdev}-{queue}");
            let object =
                format!("filter-dump,id={id},netdev={netdev},queue={queue},file={file},maxlen={TRACED}");
            ["-object".to_owned(), object]
        };
        self.pipes.iter().flat_map(object).collect()
    }
}

/// Both directions of a network device.
#[derive(Debug)]
pub struct User {
    sent: Pipe,
    received: Pipe,
}

/// One direction.
#[derive(Debug)]
struct Pipe {
    total: Arc<AtomicU64>,
    /// The pipe's other end: held until QEMU writes, so that its reader does not see an end before that.
    other_end: Arc<Mutex<OtherEnd>>,
}

#[derive(Debug)]
struct OtherEnd {
    held: Option<OwnedFd>,
    /// Nobody counts any more.
    is_over: bool,
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let mut other_end = self.other_end.lock().unwrap_or_else(PoisonError::into_inner);
        other_end.is_over = true;
        // If QEMU never came, this lets the reader go.
        other_end.held = None;
    }
}

fn release(end: &Mutex<OtherEnd>) {
    end.lock().unwrap_or_else(PoisonError::into_inner).held = None;
}

impl User {
    /// Makes the pipes, and reads what will come.
    ///
    /// # Errors
    /// If they cannot be made.
    pub fn open(directory: &Path, netdev: &str) -> Result<(User, Tapped)> {
        // The back-end's receive queue is what the machine sends.
        let pipes = ["rx", "tx"].map(|queue| (queue, directory.join(format!("meter-{netdev}-{queue}.pcap"))));
        let user = User { sent: Pipe::open(&pipes[0].1)?, received: Pipe::open(&pipes[1].1)? };
        Ok((user, Tapped { netdev: netdev.to_owned(), pipes }))
    }
}

impl Counter for User {
    fn read(&mut self) -> Bytes {
        let [sent, received] = [&self.sent, &self.received].map(|pipe| pipe.total.load(Ordering::Acquire));
        Bytes { sent, received }
    }
}

impl Pipe {
    /// Makes a pipe, and sums the lengths of the packets in it on a thread of its own until QEMU ends.
    fn open(path: &Path) -> Result<Pipe> {
        let named = || format!("pipe {}", path.display());
        rustix::fs::mknodat(rustix::fs::CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .with_context(named)?;
        let open = |flags| rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).with_context(named);
        // Opening one end waits for the other, unless there are both already.
        let other_end = open(OFlags::RDWR)?;
        let pipe = open(OFlags::RDONLY)?;
        // A smaller pipe works as well.
        let _ = rustix::pipe::fcntl_setpipe_size(&pipe, PIPE_BYTES);
        let pipe = File::from(pipe);
        let counted = Pipe {
            total: Arc::default(),
            other_end: Arc::new(Mutex::new(OtherEnd { held: Some(other_end), is_over: false })),
        };
        let (total, other_end, path) = (counted.total.clone(), counted.other_end.clone(), path.to_owned());
        let work = move || loop {
            let mut reader = BufReader::with_capacity(64 << 10, &pipe);
            // A trace that breaks off has nothing more to count; a machine that is started again begins
            // another.
            let _ = add_up(&mut reader, &total, || release(&other_end));
            let mut other_end = other_end.lock().unwrap_or_else(PoisonError::into_inner);
            if other_end.is_over {
                return;
            }
            let again = rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
            let Ok(again) = again else { return };
            other_end.held = Some(again);
        };
        std::thread::Builder::new().name("meter's pipe".to_owned()).spawn(work)?;
        Ok(counted)
    }
}

/// Sums the lengths of the packets of a trace; calls `begun` once that has begun.
fn add_up(reader: &mut impl Read, total: &AtomicU64, begun: impl FnOnce()) -> std::io::Result<()> {
    reader.read_exact(&mut [0; FILE_HEADER])?;
    begun();
    loop {
        let mut header = [0; PACKET_HEADER];
        reader.read_exact(&mut header)?;
        // Both in the byte order of this computer, which is QEMU's.
        let number =
            |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (traced, length) = (number(8), number(12));
        std::io::copy(&mut reader.by_ref().take(traced.into()), &mut std::io::sink())?;
        total.fetch_add(length.into(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_summed_until_the_trace_breaks_off() {
        let mut trace = vec![0; FILE_HEADER];
        for length in [60u32, 1514, 65_000] {
            for word in [0, 0, TRACED as u32, length] {
                trace.extend(word.to_ne_bytes());
            }
            trace.push(0xff);
        }
        trace.extend([0; 7]);
        let total = AtomicU64::new(0);
        assert!(add_up(&mut &trace[..], &total, || ()).is_err());
        assert_eq!(total.into_inner(), 66_574);
    }

    #[test]
    fn qemu_is_told_of_both_directions() {
        let directory = tempfile::tempdir().expect("a directory");
        let (_, tapped) = User::open(directory.path(), "network0").expect("made");
        let arguments = tapped.arguments();
        assert_eq!((arguments.len(), arguments[0].as_str()), (4, "-object"));
        assert!(arguments[1].starts_with("filter-dump,id=meter-network0-rx,netdev=network0,queue=rx,file="));
        assert!(arguments[3].contains("queue=tx") && arguments[3].ends_with(",maxlen=1"));
        assert!(User::open(directory.path(), "network0").is_err(), "the pipes are there already");
    }
}
