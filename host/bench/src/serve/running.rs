//! A guest that serves, in a network of its own, from its start to its last reply.

use super::service::Service;
use crate::machine::{self, Guest, Setting};
use anyhow::{Context, Result, bail};
use nom_vmm::namespace::GUEST;
use nom_vmm::{Namespace, Placement, Qemu, Session, Vmm};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long one attempt to be answered may take; a guest that is up answers far sooner.
const ATTEMPT: Duration = Duration::from_millis(500);
/// How long being connected may take: a first packet that a guest lost while it started would only be
/// repeated after a second.
const CONNECT: Duration = Duration::from_millis(25);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(1);

/// A guest that has given its first reply; it is killed when dropped.
pub struct Running {
    // Killed before its network is removed.
    session: Session,
    namespace: Namespace,
    directory: TempDir,
    target: SocketAddr,
    process_id: u32,
    /// From QEMU's start to the first reply.
    pub first_reply: Duration,
    /// From then on; none where there are too few processors.
    placement: Option<Placement>,
}

impl Running {
    /// Starts `guest`, whose network device has a pair of queues for each processor, with more `arguments`
    /// for QEMU, and waits until it answers.
    ///
    /// # Errors
    /// If QEMU or the network cannot be had, or the guest ends or does not answer within the setting's
    /// timeout; with what it wrote last.
    pub fn start(
        guest: &Guest,
        service: &Service,
        setting: &Setting,
        arguments: &[String],
    ) -> Result<Running> {
        let directory = tempfile::tempdir().context("no temporary directory")?;
        let namespace = Namespace::create("bench", guest.cores)?;
        let mut config = machine::config(guest, setting)?;
        config.networks = vec![namespace.network()];
        config.extra_arguments.extend_from_slice(arguments);
        let started = Instant::now();
        let mut session = Session::new(Qemu.start(&config, directory.path())?);
        let (target, process_id) = ((GUEST, service.port).into(), session.machine().process_id());
        let first_reply = Duration::ZERO;
        let mut running =
            Running { session, namespace, directory, target, process_id, first_reply, placement: None };
        running.await_reply(service.greeting, started + setting.timeout)?;
        running.first_reply = started.elapsed();
        running.namespace.remember_guest()?;
        running.placement = Placement::apart(running.directory.path(), process_id)?;
        Ok(running)
    }

    /// Where the service is, for whoever is [inside](Running::inside).
    pub fn target(&self) -> SocketAddr {
        self.target
    }

    /// QEMU's.
    pub fn process_id(&self) -> u32 {
        self.process_id
    }

    /// The network that the guest is in.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// A directory for what clients write.
    pub fn scratch(&self) -> &Path {
        self.directory.path()
    }

    /// Does `work` in a thread that is in the guest's network.
    ///
    /// # Errors
    /// If the network cannot be entered, or the work fails.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let namespace = &self.namespace;
        let enter_and_work = || {
            namespace.enter()?;
            work()
        };
        let result = std::thread::scope(|scope| scope.spawn(enter_and_work).join());
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn await_reply(&mut self, greeting: &'static [u8], deadline: Instant) -> Result<()> {
        let target = self.target;
        while !self.inside(|| Ok(answers(target, greeting)))? {
            while self.session.advance(PAUSE)? {}
            if self.session.has_ended() {
                bail!("the guest ended and wrote last: {}", self.last_words());
            }
            if Instant::now() > deadline {
                bail!("the guest did not answer in time and wrote last: {}", self.last_words());
            }
        }
        Ok(())
    }

    fn last_words(&self) -> String {
        let serial = self.session.serial();
        serial.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing").trim().to_owned()
    }
}

/// Whether somebody at `target` replies to `greeting`.
pub(crate) fn answers(target: SocketAddr, greeting: &[u8]) -> bool {
    let attempt = || {
        let mut stream = TcpStream::connect_timeout(&target, CONNECT)?;
        if greeting.is_empty() {
            return stream.shutdown(Shutdown::Both);
        }
        stream.set_read_timeout(Some(ATTEMPT))?;
        stream.write_all(greeting)?;
        match stream.read(&mut [0; 64])? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    };
    attempt().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn only_a_reply_is_an_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            for (number, stream) in listener.incoming().take(3).flatten().enumerate() {
                let mut stream: TcpStream = stream;
                if number == 1 {
                    stream.write_all(b"VERSION 1\r\n").unwrap();
                    // Not reset before the client has read.
                    let _ = stream.read(&mut [0; 64]);
                }
            }
        });
        assert!(!answers(target, b"version\r\n"), "it hung up");
        assert!(answers(target, b"version\r\n"));
        assert!(answers(target, b""), "being connected is all that was asked");
        server.join().unwrap();
        assert!(!answers(target, b""), "nobody listens any more");
    }
}
