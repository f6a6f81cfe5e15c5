//! Control data of messages (cmsg(3)): what goes along with the bytes.

use super::get;
use super::make::add;
use crate::call::Call;
use crate::descriptors::flight::{Flight, ROOTS_MAX};
use crate::descriptors::interfaces::{DEVICE_INDEX, LOOPBACK_INDEX};
use crate::descriptors::message::{Note, OwnMarks, Received, Sender};
use crate::descriptors::open::Description;
use crate::descriptors::options::{IP, IPV6, UDP, UDP_GRO, UDP_SEGMENT};
use crate::descriptors::socket::{Address, Socket};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use linux_raw_sys::general::O_CLOEXEC;
use linux_raw_sys::net as abi;
use nom_fs::Errno;
use nom_net::frame::Marks;
use nom_socket::ArrivedDatagram;

/// Bytes before the contents of one, and most bytes of all.
const HEAD: u64 = 16;
const CONTROL_MAX: u64 = 20_480;
/// Every one begins at a multiple of that.
const ALIGNMENT: u64 = 8;
/// Most descriptors that go along with a message.
const RIGHTS_MAX: u64 = 253;
const NS_IN_S: u64 = 1_000_000_000;

/// What is said of a message that is sent.
#[derive(Debug, Default)]
pub(super) struct Control {
    /// Descriptors that go along: those of each `SCM_RIGHTS`.
    pub attached: Option<Rc<Flight>>,
    /// Who the sender says that it is: `SCM_CREDENTIALS`.
    pub by: Option<Sender>,
    /// How a datagram is to be treated on its way.
    pub marks: OwnMarks,
    /// How long the datagrams are that it goes in: `UDP_SEGMENT`.
    pub segment: Option<u16>,
}

/// Level and type, as one word.
const fn kind(level: u32, kind: u32) -> u64 {
    level as u64 | (kind as u64) << 32
}

/// Reads what a program says of a message that it sends.
pub(super) fn read(call: &Call<'_>, socket: &dyn Socket, at: u64, len: u64) -> Result<Control, Errno> {
    let (mut control, mut rights) = (Control::default(), Vec::new());
    let is_local = socket.names().0 == abi::AF_UNIX;
    // What is longer than the rest is refused, so that the next one is always behind this one.
    let len = len.min(CONTROL_MAX);
    let mut next = 0;
    while at != 0 && next + HEAD <= len {
        let [bytes, what]: [u64; 2] = call.memory().read_value(at + next)?;
        if bytes < HEAD || bytes > len - next {
            return Err(Errno::EINVAL);
        }
        let contents = at + next + HEAD;
        if what == kind(abi::SOL_SOCKET, abi::SCM_RIGHTS) && is_local {
            read_rights(call, contents, (bytes - HEAD) / 4, &mut rights)?;
        } else if what == kind(abi::SOL_SOCKET, abi::SCM_CREDENTIALS) && is_local {
            control.by = Some(read_credentials(call, contents, bytes - HEAD)?);
        } else if what as u32 == abi::SOL_SOCKET {
            return Err(Errno::EINVAL);
        } else if what as u32 == UDP && socket.names().2 == UDP {
            if (what, bytes) != (kind(UDP, UDP_SEGMENT), HEAD + 2) {
                return Err(Errno::EINVAL);
            }
            control.segment = Some(call.memory().read_value(contents)?);
        } else if !is_local {
            read_marks(call, what, (contents, bytes - HEAD), &mut control.marks)?;
        }
        next += bytes.next_multiple_of(ALIGNMENT);
    }
    if !rights.is_empty() {
        control.attached = Some(sent_along(call, rights)?);
    }
    Ok(control)
}

/// Reads what a program says of one datagram's header: `IP_TTL`, `IP_TOS`, and those of IPv6, where a limit
/// of -1 is the socket's, and a class of -1 has all bits, as on Linux.
fn read_marks(call: &Call<'_>, what: u64, (at, len): (u64, u64), marks: &mut OwnMarks) -> Result<(), Errno> {
    const TTL: u64 = kind(IP, abi::IP_TTL);
    const TOS: u64 = kind(IP, abi::IP_TOS);
    const HOP_LIMIT: u64 = kind(IPV6, abi::IPV6_HOPLIMIT);
    const CLASS: u64 = kind(IPV6, abi::IPV6_TCLASS);
    let (mark, least) = match what {
        TTL => (&mut marks.hops, 1),
        TOS => (&mut marks.class, 0),
        HOP_LIMIT => (&mut marks.hops, -1),
        CLASS => (&mut marks.class, -1),
        _ => return Ok(()),
    };
    let value = match (len, what) {
        (1, TOS) => call.memory().read_value::<u8>(at)?.into(),
        (4, _) => call.memory().read_value::<i32>(at)?,
        _ => return Err(Errno::EINVAL),
    };
    if !(least..256).contains(&value) {
        return Err(Errno::EINVAL);
    }
    *mark = Some(value as u8).filter(|_| value >= 0 || what == CLASS);
    Ok(())
}

/// Descriptors that go along with a message of the caller's.
fn sent_along(call: &Call<'_>, rights: Vec<Rc<Description>>) -> Result<Rc<Flight>, Errno> {
    let user = call.process().user();
    let most = if user == 0 { ROOTS_MAX } else { call.process().descriptors.borrow().limit() };
    call.family().flights.begin(user, most, rights)
}

fn read_rights(
    call: &Call<'_>,
    at: u64,
    count: u64,
    attached: &mut Vec<Rc<Description>>,
) -> Result<(), Errno> {
    if attached.len() as u64 + count > RIGHTS_MAX {
        return Err(Errno::EINVAL);
    }
    for index in 0..count {
        attached.push(get(call, call.memory().read_value::<i32>(at + 4 * index)?)?);
    }
    Ok(())
}

/// Root may say that it is anybody, others who they are.
fn read_credentials(call: &Call<'_>, at: u64, len: u64) -> Result<Sender, Errno> {
    if len != 12 {
        return Err(Errno::EINVAL);
    }
    let [process, user, group]: [u32; 3] = call.memory().read_value(at)?;
    let said = Sender { process, user, group };
    let is_root = call.process().view.borrow().credentials.is_root();
    if !is_root && said != super::sockets::sender(call) {
        return Err(Errno::EPERM);
    }
    if call.family().process(process).is_none() {
        return Err(Errno::ESRCH);
    }
    Ok(said)
}

/// Where control data is put: what is left of it.
struct Room {
    at: u64,
    used: u64,
    len: u64,
    flags: u32,
}

impl Room {
    /// Puts one more there, cut if there is no room for all of it.
    fn put(&mut self, call: &Call<'_>, what: u64, contents: &[u8]) -> Result<(), Errno> {
        let left = self.len.saturating_sub(self.used);
        if left < HEAD {
            self.flags |= abi::MSG_CTRUNC;
            return Ok(());
        }
        let count = (contents.len() as u64).min(left - HEAD);
        if count < contents.len() as u64 {
            self.flags |= abi::MSG_CTRUNC;
        }
        call.memory().write_value(self.at + self.used, &[HEAD + count, what])?;
        call.memory().write(self.at + self.used + HEAD, &contents[..count as usize])?;
        self.used = (self.used + HEAD + count).next_multiple_of(ALIGNMENT).min(self.len);
        Ok(())
    }

    /// Hands over descriptors, as many as there is room for, and as the process may have.
    fn hand_over(&mut self, call: &Call<'_>, came: Vec<Rc<Description>>, on_exec: u32) -> Result<(), Errno> {
        let room = self.len.saturating_sub(self.used + HEAD) / 4;
        if room < came.len() as u64 {
            self.flags |= abi::MSG_CTRUNC;
        }
        let mut descriptors = Vec::new();
        for description in came.into_iter().take(room as usize) {
            let Ok(descriptor) = add(call, description, on_exec) else {
                self.flags |= abi::MSG_CTRUNC;
                break;
            };
            descriptors.extend(descriptor.to_ne_bytes());
        }
        match descriptors.is_empty() {
            true => Ok(()),
            false => self.put(call, kind(abi::SOL_SOCKET, abi::SCM_RIGHTS), &descriptors),
        }
    }
}

/// Tells what came with a message, as its receiver wants to know it: bytes of control data, and flags.
pub(super) fn write(
    call: &Call<'_>,
    socket: &dyn Socket,
    received: Received,
    (at, len): (u64, u64),
    flags: u32,
) -> Result<(u64, u32), Errno> {
    let mut room = Room { at, used: 0, len: if at == 0 { 0 } else { len }, flags: 0 };
    if let Some(by) = received.by.filter(|_| socket.options().has(abi::SOL_SOCKET, abi::SO_PASSCRED)) {
        let words = [by.process, by.user, by.group].map(u32::to_ne_bytes);
        room.put(call, kind(abi::SOL_SOCKET, abi::SCM_CREDENTIALS), words.as_flattened())?;
    }
    if let Some(arrived) = received.arrived {
        put_time(call, socket, &mut room, arrived.at_ns)?;
        put_destination(call, socket, &mut room, arrived.to)?;
        put_marks(call, socket, &mut room, &arrived)?;
    }
    put_note(call, socket, &mut room, received.note)?;
    if let Some(report) = received.report {
        let domain = socket.names().0;
        let of_v4 = kind(IP, abi::IP_RECVERR);
        let what = if domain == abi::AF_INET { of_v4 } else { kind(IPV6, abi::IPV6_RECVERR) };
        room.put(call, what, &report.to_bytes(domain))?;
    }
    if !received.attached.is_empty() {
        let on_exec = if flags & abi::MSG_CMSG_CLOEXEC != 0 { O_CLOEXEC } else { 0 };
        room.hand_over(call, received.attached, on_exec)?;
    }
    Ok((room.used, room.flags))
}

/// How many datagrams were lost before one, if some were, and how long those are of which it is several.
fn put_note(call: &Call<'_>, socket: &dyn Socket, room: &mut Room, note: Note) -> Result<(), Errno> {
    let has = |level, name| socket.options().has(level, name);
    if note.lost > 0 && has(abi::SOL_SOCKET, abi::SO_RXQ_OVFL) {
        room.put(call, kind(abi::SOL_SOCKET, abi::SO_RXQ_OVFL), &note.lost.to_ne_bytes())?;
    }
    if note.segment > 0 && has(UDP, UDP_GRO) {
        room.put(call, kind(UDP, UDP_GRO), &i32::from(note.segment).to_ne_bytes())?;
    }
    Ok(())
}

/// When a datagram came: `struct timeval` or `struct timespec`, in seconds since 1970; and
/// `struct scm_timestamping`, of which the first is the stack's and the last the device's, which has none.
fn put_time(call: &Call<'_>, socket: &dyn Socket, room: &mut Room, at_ns: u64) -> Result<(), Errno> {
    let options = socket.options();
    let time = |unit_ns| {
        let (realtime, monotonic) = call.now();
        let ns = realtime.saturating_sub(monotonic.saturating_sub(at_ns));
        [ns / NS_IN_S, ns % NS_IN_S / unit_ns].map(u64::to_ne_bytes)
    };
    for (form, unit_ns) in [(abi::SO_TIMESTAMP, 1000), (abi::SO_TIMESTAMPNS, 1)] {
        if options.has(abi::SOL_SOCKET, form) {
            room.put(call, kind(abi::SOL_SOCKET, form), time(unit_ns).as_flattened())?;
        }
    }
    if options.tells_arrival() {
        let times = [time(1), [[0; 8]; 2], [[0; 8]; 2]];
        room.put(call, kind(abi::SOL_SOCKET, abi::SO_TIMESTAMPING), times.as_flattened().as_flattened())?;
    }
    Ok(())
}

/// How a datagram was to be treated on its way, and which address and port it was sent to. To sockets of IPv6
/// come those of IPv4, too, which have their own.
fn put_marks(
    call: &Call<'_>,
    socket: &dyn Socket,
    room: &mut Room,
    arrived: &ArrivedDatagram,
) -> Result<(), Errno> {
    let Marks { hops, class } = arrived.marks;
    let (hops, wide_class) = (i32::from(hops).to_ne_bytes(), i32::from(class).to_ne_bytes());
    let told: [(u32, u32, u32, &[u8]); 2] = match arrived.to {
        IpAddr::V4(_) => {
            [(IP, abi::IP_RECVTTL, abi::IP_TTL, &hops), (IP, abi::IP_RECVTOS, abi::IP_TOS, &[class])]
        }
        IpAddr::V6(_) => [
            (IPV6, abi::IPV6_RECVHOPLIMIT, abi::IPV6_HOPLIMIT, &hops),
            (IPV6, abi::IPV6_RECVTCLASS, abi::IPV6_TCLASS, &wide_class),
        ],
    };
    for (level, option, name, contents) in told {
        if socket.options().has(level, option) {
            room.put(call, kind(level, name), contents)?;
        }
    }
    let (level, option, family) = match arrived.to {
        IpAddr::V4(_) => (IP, abi::IP_RECVORIGDSTADDR, abi::AF_INET),
        IpAddr::V6(_) => (IPV6, abi::IPV6_RECVORIGDSTADDR, abi::AF_INET6),
    };
    if let Address::Inet(own) = socket.own_address()
        && socket.options().has(level, option)
    {
        // What tells the address has the same name as what asks for it.
        let to = Address::Inet(SocketAddr::new(arrived.to, own.port()));
        room.put(call, kind(level, option), &to.to_bytes(family))?;
    }
    Ok(())
}

/// Which of our addresses a datagram was sent to: `struct in_pktinfo`, `struct in6_pktinfo`.
fn put_destination(call: &Call<'_>, socket: &dyn Socket, room: &mut Room, to: IpAddr) -> Result<(), Errno> {
    let interface = if to.is_loopback() { LOOPBACK_INDEX } else { DEVICE_INDEX }.to_ne_bytes();
    match to {
        IpAddr::V4(to) if socket.options().has(IP, abi::IP_PKTINFO) => {
            let contents = [interface, to.octets(), to.octets()];
            room.put(call, kind(IP, abi::IP_PKTINFO), contents.as_flattened())
        }
        to if socket.options().has(IPV6, abi::IPV6_RECVPKTINFO) => {
            let to = match to {
                IpAddr::V4(to) => to.to_ipv6_mapped(),
                IpAddr::V6(to) => to,
            };
            let contents = [&to.octets()[..], &interface].concat();
            room.put(call, kind(IPV6, abi::IPV6_PKTINFO), &contents)
        }
        _ => Ok(()),
    }
}
