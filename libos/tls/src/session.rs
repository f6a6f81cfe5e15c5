//! The protocol of one connection, without a network.

use crate::error::Error;
use crate::identity::Identity;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus, WriteTraffic,
};

/// A server's side of a connection.
///
/// What it holds is bounded: of what came a record or a handshake message (64 KiB), of what was decrypted as
/// much as came in one [`Session::receive`], of what is to be sent as much as was said.
pub struct Session {
    connection: UnbufferedServerConnection,
    /// What came and is no whole record yet.
    incoming: Vec<u8>,
    /// What nobody has sent yet.
    outgoing: Vec<u8>,
    /// What nobody has read yet.
    plain: VecDeque<u8>,
    is_established: bool,
    is_finished: bool,
    /// Why nothing goes on.
    failure: Option<Error>,
}

impl fmt::Debug for Session {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Session { is_established, is_finished, failure, .. } = self;
        write!(out, "Session(established {is_established}, finished {is_finished}, {failure:?})")
    }
}

/// What is to be said to the peer.
enum Saying<'a> {
    Bytes(&'a [u8]),
    Close,
}

impl Session {
    /// The session of a client of whom nothing has come yet.
    ///
    /// # Errors
    /// If the configuration is none that a connection can have.
    pub fn new(identity: &Identity) -> Result<Session, Error> {
        Ok(Session {
            connection: UnbufferedServerConnection::new(identity.config.clone())?,
            incoming: Vec::new(),
            outgoing: Vec::new(),
            plain: VecDeque::new(),
            is_established: false,
            is_finished: false,
            failure: None,
        })
    }

    /// Whether the handshake is over: something can be said.
    pub fn is_established(&self) -> bool {
        self.is_established
    }

    /// Whether the peer has said that nothing more comes.
    pub fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Whether something was decrypted that nobody has read.
    pub fn has_text(&self) -> bool {
        !self.plain.is_empty()
    }

    /// Whether there is something to be sent.
    pub fn has_outgoing(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Takes what is to be sent to the peer, before anything that is taken later.
    pub fn take_outgoing(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.outgoing)
    }

    /// Bytes came from the peer.
    ///
    /// # Errors
    /// If they do not keep to the protocol: an alert is to be sent, and nothing goes on.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.failed()?;
        self.incoming.extend_from_slice(bytes);
        self.go_on(None)
    }

    /// Moves what came, decrypted, and says how much.
    pub fn read(&mut self, target: &mut [u8]) -> usize {
        let len = target.len().min(self.plain.len());
        for (to, from) in target.iter_mut().zip(self.plain.drain(..len)) {
            *to = from;
        }
        len
    }

    /// Says something to the peer, to whom the handshake is over.
    ///
    /// # Errors
    /// Why nothing goes on.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.failed()?;
        if bytes.is_empty() { Ok(()) } else { self.go_on(Some(Saying::Bytes(bytes))) }
    }

    /// Says that nothing more will be said.
    ///
    /// # Errors
    /// Why nothing goes on.
    pub fn close(&mut self) -> Result<(), Error> {
        self.failed()?;
        self.go_on(Some(Saying::Close))
    }

    /// Nothing may follow what was sent so far.
    pub(crate) fn interrupt(&mut self) {
        self.failure.get_or_insert(Error::Interrupted);
        self.outgoing.clear();
    }

    /// Why nothing goes on, if so.
    pub(crate) fn failed(&self) -> Result<(), Error> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Does what can be done with what came, and says what is to be said.
    fn go_on(&mut self, mut saying: Option<Saying<'_>>) -> Result<(), Error> {
        loop {
            let UnbufferedStatus { mut discard, state } =
                self.connection.process_tls_records(&mut self.incoming);
            let mut is_over = false;
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(Ok(record)) = traffic.next_record() {
                        discard += record.discard;
                        self.plain.extend(record.payload);
                    }
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    append(&mut self.outgoing, 0, |room| data.encode(room).map_err(room_for_record))?;
                }
                // What is encoded is as good as sent: whoever sends takes all.
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed) => self.is_finished = true,
                Ok(ConnectionState::WriteTraffic(traffic)) => {
                    self.is_established = true;
                    match saying.take() {
                        None => is_over = true,
                        Some(saying) => say(traffic, saying, &mut self.outgoing)?,
                    }
                }
                Ok(_) => is_over = true,
                // The alert comes behind the error that it is about; what came is not to be looked at again.
                Err(error) if self.failure.is_none() => {
                    self.failure = Some(error.into());
                    discard = self.incoming.len();
                }
                Err(_) => is_over = true,
            }
            self.incoming.drain(..discard);
            if is_over {
                return self.failed();
            }
        }
    }
}

/// Most bytes that a record has beside what it carries: its head, the kind of its content, and the tag of any
/// of the ciphers (RFC 8446 section 5.2).
const RECORD_EXTRA: usize = 5 + 1 + 16;
/// Most bytes that a record carries.
const RECORD_MAX: usize = 16 << 10;

fn say(
    mut traffic: WriteTraffic<'_, rustls::server::ServerConnectionData>,
    saying: Saying<'_>,
    outgoing: &mut Vec<u8>,
) -> Result<(), Error> {
    match saying {
        Saying::Bytes(bytes) => {
            let guess = bytes.len() + bytes.len().div_ceil(RECORD_MAX) * RECORD_EXTRA;
            append(outgoing, guess, |room| traffic.encrypt(bytes, room).map_err(room_for_text))
        }
        Saying::Close => {
            append(outgoing, RECORD_EXTRA, |room| traffic.queue_close_notify(room).map_err(room_for_text))
        }
    }
}

/// How much room is wanted, or why nothing goes on.
type Wanted = Result<usize, Error>;

fn room_for_record(error: EncodeError) -> Wanted {
    match error {
        EncodeError::InsufficientSize(InsufficientSizeError { required_size }) => Ok(required_size),
        EncodeError::AlreadyEncoded => Ok(0),
    }
}

fn room_for_text(error: EncryptError) -> Wanted {
    match error {
        EncryptError::InsufficientSize(InsufficientSizeError { required_size }) => Ok(required_size),
        EncryptError::EncryptExhausted => Err(Error::Protocol(rustls::Error::EncryptError)),
    }
}

/// Appends what `write` puts into the room that it is given: `guess` bytes, or as many as it then wants.
fn append(
    bytes: &mut Vec<u8>,
    guess: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, Wanted>,
) -> Result<(), Error> {
    let start = bytes.len();
    let mut room = guess;
    loop {
        bytes.resize(start + room, 0);
        match write(&mut bytes[start..]) {
            Ok(written) => {
                bytes.truncate(start + written);
                return Ok(());
            }
            Err(Ok(more)) if more > room => room = more,
            Err(wanted) => {
                bytes.truncate(start);
                return wanted.map(drop);
            }
        }
    }
}
