//! What a socket tells beside what its calls return: the queue of errors, which a program reads by
//! `MSG_ERRQUEUE` (recvmsg(2), ip(7)). It tells of datagrams that nobody takes, and that bytes that were not
//! to be copied when they were sent (`MSG_ZEROCOPY`) are the program's again.

use super::message::Received;
use super::socket::Address;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::net::{IpAddr, SocketAddr};
use linux_raw_sys::net as abi;
use nom_fs::Errno;

/// Most reports that wait: what comes then is lost, as Linux has it where a socket's buffer is full.
const REPORTS_MAX: usize = 64;
/// Most bytes of a datagram that is told of: those that an ICMP message quotes (RFC 1812, 4.3.2.3).
const QUOTED_MAX: usize = 520;

/// What is told by one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ErrorReport {
    /// Nobody takes what was sent there.
    Refused(SocketAddr),
    /// What these calls sent, from one to another, is the program's again; it was copied.
    Copied(u32, u32),
}

impl ErrorReport {
    /// `struct sock_extended_err` and, behind it, who says so, for a socket of this domain.
    pub fn to_bytes(&self, domain: u32) -> Vec<u8> {
        // Destination unreachable, and that the port is (RFC 792, RFC 4443).
        const V4: [u8; 4] = [2, 3, 3, 0];
        const V6: [u8; 4] = [3, 1, 4, 0];
        const COPIED: [u8; 4] = [5, 0, 1, 0];
        let (error, what, info, data, by) = match *self {
            ErrorReport::Refused(by) => {
                let what = if by.is_ipv4() { V4 } else { V6 };
                (Errno::ECONNREFUSED.code(), what, 0, 0, Some(SocketAddr::new(by.ip(), 0)))
            }
            ErrorReport::Copied(first, last) => (0, COPIED, first, last, None),
        };
        let mut bytes = [error.to_ne_bytes(), what, info.to_ne_bytes(), data.to_ne_bytes()].concat();
        let address = if domain == abi::AF_INET { 16 } else { 28 };
        let end = bytes.len() + address;
        bytes.extend(by.iter().flat_map(|by| Address::Inet(*by).to_bytes(domain)));
        bytes.resize(end, 0);
        bytes
    }
}

/// Reports that wait to be read.
#[derive(Debug, Default)]
pub(crate) struct ErrorQueue {
    reports: RefCell<VecDeque<(ErrorReport, Vec<u8>)>>,
    /// How many calls have sent without a copy.
    sends: Cell<u32>,
}

impl ErrorQueue {
    /// Nobody takes what was sent there, of which these are the bytes so far as they are known.
    pub fn refuse(&self, to: SocketAddr, bytes: &[u8]) {
        self.put(ErrorReport::Refused(to), bytes[..bytes.len().min(QUOTED_MAX)].to_vec());
    }

    /// What one more call sent is the program's again.
    pub fn tell_copied(&self) {
        let send = self.sends.replace(self.sends.get().wrapping_add(1));
        if let Some((ErrorReport::Copied(_, last), _)) = self.reports.borrow_mut().back_mut()
            && last.wrapping_add(1) == send
        {
            *last = send;
            return;
        }
        self.put(ErrorReport::Copied(send, send), Vec::new());
    }

    fn put(&self, report: ErrorReport, bytes: Vec<u8>) {
        let mut reports = self.reports.borrow_mut();
        if reports.len() < REPORTS_MAX {
            reports.push_back((report, bytes));
        }
    }

    /// The first report.
    ///
    /// # Errors
    /// `EAGAIN` if there is none.
    pub fn take(&self, target: &mut [u8]) -> Result<Received, Errno> {
        let (report, bytes) = self.reports.borrow_mut().pop_front().ok_or(Errno::EAGAIN)?;
        let (count, whole) = (bytes.len().min(target.len()), bytes.len());
        target[..count].copy_from_slice(&bytes[..count]);
        let from = match report {
            ErrorReport::Refused(to) => Some(Address::Inet(to)),
            ErrorReport::Copied(..) => None,
        };
        Ok(Received { count, whole, from, report: Some(report), ..Received::default() })
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.reports.borrow().is_empty()
    }

    /// The error that the first tells of.
    pub fn first_error(&self) -> Option<Errno> {
        let reports = self.reports.borrow();
        let (first, _) = reports.front()?;
        matches!(first, ErrorReport::Refused(_)).then_some(Errno::ECONNREFUSED)
    }
}

/// The option that asks for reports of what is sent there.
pub(crate) fn option_for(to: IpAddr) -> (u32, u32) {
    match to {
        IpAddr::V4(_) => (super::options::IP, abi::IP_RECVERR),
        IpAddr::V6(_) => (super::options::IPV6, abi::IPV6_RECVERR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(queue: &ErrorQueue) -> Option<(usize, Option<ErrorReport>)> {
        let mut target = [0; 8];
        queue.take(&mut target).ok().map(|received| (received.whole, received.report))
    }

    #[test]
    fn sends_are_told_of_together_and_errors_apart() {
        let (queue, to) = (ErrorQueue::default(), SocketAddr::from(([127, 0, 0, 1], 9)));
        assert!(queue.is_empty());
        (0..3).for_each(|_| queue.tell_copied());
        queue.refuse(to, &[7; 600]);
        queue.tell_copied();
        assert_eq!(queue.first_error(), None);
        assert_eq!(take(&queue), Some((0, Some(ErrorReport::Copied(0, 2)))));
        assert_eq!(queue.first_error(), Some(Errno::ECONNREFUSED));
        assert_eq!(take(&queue), Some((QUOTED_MAX, Some(ErrorReport::Refused(to)))));
        assert_eq!(take(&queue), Some((0, Some(ErrorReport::Copied(3, 3)))));
        assert_eq!(take(&queue), None);
        (0..2 * REPORTS_MAX).for_each(|_| queue.refuse(to, &[]));
        assert_eq!((0..).take_while(|_| take(&queue).is_some()).count(), REPORTS_MAX);
    }

    #[test]
    fn reports_are_as_linux_lays_them_out() {
        let refused = ErrorReport::Refused(SocketAddr::from(([10, 0, 0, 7], 53)));
        let bytes = refused.to_bytes(abi::AF_INET);
        assert_eq!(bytes[..8], [111, 0, 0, 0, 2, 3, 3, 0]);
        assert_eq!((bytes.len(), &bytes[16..24]), (32, &[2, 0, 0, 0, 10, 0, 0, 7][..]));
        let bytes = ErrorReport::Copied(3, 5).to_bytes(abi::AF_INET6);
        assert_eq!(bytes[..16], [0, 0, 0, 0, 5, 0, 1, 0, 3, 0, 0, 0, 5, 0, 0, 0]);
        assert_eq!((bytes.len(), &bytes[16..]), (44, &[0; 28][..]));
    }
}
