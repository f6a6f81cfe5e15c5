//! Runs packet scripts against a stack on virtual time.

pub mod language;

use crate::common::{Device, Machine, Memory, config, greeting, parse_frame, segment_frame};
use language::{Line, number, show};
use nom_net::tcp::segment::{Flags, Ports, Segment};
use nom_net::tcp::sequence::Seq;
use nom_net::{
    Application, Closed, Config, FlowId, FourTuple, Instant, KeepAlive, PeerTimeouts, Slice, SmallSegments,
    Stack,
};
use nom_port::nic::Offloads;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

const OURS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const THEIRS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
/// Scripts do not begin at time zero, where a timestamp would look like none.
const START: Instant = Instant::from_micros(1_000_000);

/// The application of a script: notes what happens, and does nothing by itself.
#[derive(Debug, Default)]
struct Notes {
    flow: Option<FlowId>,
    received: usize,
    happened: VecDeque<String>,
    /// Whether it has as many connections as it wants.
    is_full: bool,
}

impl Application<Device> for Notes {
    fn connected(&mut self, _: &mut Stack<Device>, flow: FlowId) {
        self.flow = Some(flow);
        self.happened.push_back("connected".to_owned());
    }

    fn has_room(&mut self, _: &FourTuple) -> bool {
        !self.is_full
    }

    fn received(&mut self, _: &mut Stack<Device>, _: FlowId, bytes: Slice<Memory>) {
        self.received += bytes.len();
    }

    fn sendable(&mut self, _: &mut Stack<Device>, _: FlowId) {
        self.happened.push_back("sendable".to_owned());
    }

    fn finished(&mut self, _: &mut Stack<Device>, _: FlowId) {
        self.happened.push_back("finished".to_owned());
    }

    fn closed(&mut self, _: &mut Stack<Device>, _: FlowId, why: Closed) {
        self.happened.push_back(format!("closed {why:?}"));
    }
}

struct Script {
    machine: Machine<Notes>,
    now: Instant,
    ports: Ports,
    /// Our initial sequence number, once seen: scripts count from it.
    iss: Option<Seq>,
    /// What our timestamps are ahead of the clock, once seen: scripts count from that, too.
    stamp_offset: Option<u32>,
    /// Segments that the stack sent, with the time.
    sent: VecDeque<(Instant, Segment)>,
}

/// Runs a script; what is wrong, with the number of the line, if something is.
pub fn run(text: &str) -> Result<(), String> {
    let lines = language::parse(text)?;
    let (settings, events): (Vec<_>, Vec<_>) =
        lines.into_iter().partition(|(_, _, line)| matches!(line, Line::Set(_)));
    let mut config = config(1, 1);
    for (number, _, line) in settings {
        if let Line::Set(words) = line {
            set(&mut config, &words).map_err(|error| format!("line {number}: {error}"))?;
        }
    }
    let mut script = Script::new(config);
    for (number, after, line) in events {
        script.line(after, line).map_err(|error| format!("line {number}: {error}"))?;
    }
    script.nothing_left()
}

fn set(config: &mut Config, words: &[String]) -> Result<(), String> {
    let values = words[1..].iter().map(|word| number(word)).collect::<Result<Vec<_>, _>>()?;
    match (words[0].as_str(), &values[..]) {
        ("nagle", []) => config.tcp.small_segments = SmallSegments::Acknowledged,
        ("unpaced", []) => config.tcp.paces = false,
        ("window", [bytes]) => config.tcp.fix_windows(*bytes as u32, config.tcp.send_max),
        ("send-max", [bytes]) => config.tcp.fix_windows(config.tcp.receive_window, *bytes as usize),
        ("retries", [count]) => config.tcp.retries_max = *count as u32,
        ("half-open-max", [count]) => config.half_open_max = *count as usize,
        ("keep-alive", [idle, interval, probes]) => {
            let [idle, interval] = [*idle, *interval].map(Duration::from_secs);
            config.tcp.keep_alive = Some(KeepAlive { idle, interval, probes: *probes as u32 });
        }
        _ => return Err(format!("set {words:?} is unknown")),
    }
    Ok(())
}

impl Script {
    fn new(config: Config) -> Script {
        let mut machine = Machine::new(Device::new(1, Offloads::default()), config, Notes::default());
        machine.stack.listen(80);
        let ports = Ports { from: 4000, to: 80 };
        let mut script =
            Script { machine, now: START, ports, iss: None, stamp_offset: None, sent: VecDeque::new() };
        script.greet();
        script
    }

    /// The peer asks for our Ethernet address, so that we know its own.
    fn greet(&mut self) {
        self.machine.take(self.now, greeting());
        assert_eq!(self.machine.take_sent().len(), 1, "ARP is answered");
    }

    fn line(&mut self, after: f64, line: Line) -> Result<(), String> {
        self.wait(Duration::from_secs_f64(after));
        match line {
            Line::Inject(segment) => {
                self.nothing_left()?;
                self.inject(segment);
            }
            Line::Expect(segment, has_window) => self.expect(segment, has_window)?,
            Line::App(words) => self.app(&words.iter().map(String::as_str).collect::<Vec<_>>())?,
            Line::Counter(name, count) => self.counter(&name, count)?,
            Line::Set(_) => unreachable!("settings were taken out"),
        }
        Ok(())
    }

    /// Lets time pass, waking the stack whenever it asked for it.
    fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        self.collect();
        while let Some(due) = self.machine.due.filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.machine.poll(self.now);
            self.collect();
        }
        self.now = end;
    }

    fn collect(&mut self) {
        let mut frames = self.machine.take_sent();
        if frames.iter().any(|frame| frame[12..14] == [8, 6]) {
            // It asks for the peer's Ethernet address again; what waits for it goes with the answer.
            self.machine.take(self.now, greeting());
            frames.append(&mut self.machine.take_sent());
        }
        for frame in frames {
            let Some((ports, _, mut segment)) = parse_frame(&frame) else { continue };
            self.ports = Ports { from: ports.to, to: ports.from };
            if segment.flags.any(Flags::SYN) {
                self.iss = Some(segment.seq);
            }
            if let Some(iss) = self.iss {
                segment.seq = segment.seq - iss.0;
            }
            if let Some(stamps) = &mut segment.options.timestamps {
                let ahead = stamps.value.wrapping_sub(self.now.millis_wrapping());
                // A cookie's is up to 63 ms late.
                let offset = self.stamp_offset.get_or_insert(ahead.wrapping_add(63) & !63);
                stamps.value = stamps.value.wrapping_sub(*offset);
            }
            self.sent.push_back((self.now, segment));
        }
    }

    fn inject(&mut self, mut segment: Segment) {
        let iss = self.iss.unwrap_or_default().0;
        if segment.flags.any(Flags::ACK) {
            segment.ack = segment.ack + iss;
        }
        for (from, to) in segment.options.sack.iter_mut().flatten() {
            (*from, *to) = (*from + iss, *to + iss);
        }
        if let Some(stamps) = segment.options.timestamps.as_mut().filter(|stamps| stamps.echo != 0) {
            stamps.echo = stamps.echo.wrapping_add(self.stamp_offset.unwrap_or_default());
        }
        let (from, to) = ((THEIRS, self.ports.from).into(), (OURS, self.ports.to).into());
        let payload = vec![b'x'; segment.len as usize];
        self.machine.take(self.now, segment_frame(from, to, &segment, &payload));
        self.collect();
    }

    fn expect(&mut self, expected: Segment, has_window: bool) -> Result<(), String> {
        let (at, mut sent) =
            self.sent.pop_front().ok_or(format!("nothing was sent, not {}", show(&expected)))?;
        if !has_window {
            sent.window = 0;
        }
        if sent != expected {
            return Err(format!("sent     {}\nexpected {}", show(&sent), show(&expected)));
        }
        let early = self.now - at;
        if early > Duration::from_millis(1) { Err(format!("was sent {early:?} too early")) } else { Ok(()) }
    }

    fn nothing_left(&mut self) -> Result<(), String> {
        if let Some((_, segment)) = self.sent.front() {
            return Err(format!("also sent {}", show(segment)));
        }
        match self.machine.application.happened.front() {
            Some(happened) => Err(format!("also happened: {happened}")),
            None => Ok(()),
        }
    }

    fn app(&mut self, words: &[&str]) -> Result<(), String> {
        let stack = &mut self.machine.stack;
        let notes = &mut self.machine.application;
        let flow = || notes.flow.ok_or("there is no connection".to_owned());
        match *words {
            ["connect"] => {
                notes.flow = Some(stack.connect((THEIRS, 8080).into()).map_err(|error| error.to_string())?)
            }
            ["connect", most] => {
                let flow = stack.connect((THEIRS, 8080).into()).map_err(|error| error.to_string())?;
                stack.limit_segments(flow, number(most)? as u32);
                notes.flow = Some(flow);
            }
            ["send", len] => {
                let bytes = vec![b'y'; number(len)? as usize];
                let bytes = Slice::new(Memory::from(bytes));
                stack.send(flow()?, bytes).map_err(|error| error.to_string())?;
            }
            ["refused", len] => {
                let bytes = Slice::new(Memory::from(vec![b'y'; number(len)? as usize]));
                let refusal = stack.send(flow()?, bytes);
                return if refusal.is_err() { Ok(()) } else { Err("was not refused".to_owned()) };
            }
            ["full"] => notes.is_full = true,
            ["has-room"] => notes.is_full = false,
            ["close"] => stack.close(flow()?),
            ["shut-down"] => stack.shut_down(flow()?),
            ["abort"] => stack.abort(flow()?),
            ["peer-timeouts", idle, interval, probes, user_timeout] => {
                let seconds = |word| number(word).map(Duration::from_secs);
                let [idle, interval, user_timeout] =
                    [seconds(idle)?, seconds(interval)?, seconds(user_timeout)?];
                let keep_alive = KeepAlive { idle, interval, probes: number(probes)? as u32 };
                let keep_alive = Some(keep_alive).filter(|asks| !asks.idle.is_zero());
                let user_timeout = Some(user_timeout).filter(|limit| !limit.is_zero());
                stack.set_peer_timeouts(flow()?, PeerTimeouts { keep_alive, user_timeout });
            }
            ["small-segments", when] => {
                let when = match when {
                    "at-once" => SmallSegments::AtOnce,
                    "acknowledged" => SmallSegments::Acknowledged,
                    "held" => SmallSegments::Held,
                    other => return Err(format!("{other} is at-once, acknowledged or held")),
                };
                stack.set_small_segments(flow()?, when);
            }
            ["push"] => stack.push(flow()?),
            ["window", bytes] => stack.window(flow()?, number(bytes)? as u32),
            ["received", len] => {
                let received = std::mem::take(&mut notes.received) as u64;
                let expected = number(len)?;
                return if received == expected { Ok(()) } else { Err(format!("received {received}")) };
            }
            ref words => {
                let expected = words.join(" ");
                return match notes.happened.pop_front() {
                    Some(happened) if happened == expected => Ok(()),
                    other => Err(format!("happened: {other:?}")),
                };
            }
        }
        self.machine.poll(self.now);
        self.collect();
        Ok(())
    }

    fn counter(&self, name: &str, expected: u64) -> Result<(), String> {
        let found = self.machine.stack.counters().iter().find(|(other, _)| *other == name);
        match found {
            None => Err(format!("there is no counter {name}")),
            Some((_, count)) if count == expected => Ok(()),
            Some((_, count)) => Err(format!("{name} is {count}")),
        }
    }
}
