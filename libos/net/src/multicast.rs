//! Which IPv6 groups we listen to, as routers and switches are told: the listener's part of MLDv2 (RFC 3810),
//! for groups that are listened to whoever sends.

use crate::chance::Chance;
use crate::time::Instant;
use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv6Addr;
use core::time::Duration;

/// Type of a query and of a report (sections 5.1, 5.2).
pub const QUERY: u8 = 130;
const REPORT: u8 = 143;
/// Who hears reports.
pub const ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
/// How often a change is said, in case a report is lost, and the longest gap (sections 9.1, 9.11).
const ROBUSTNESS: u8 = 2;
const CHANGE_GAP: Duration = Duration::from_secs(1);
/// Groups at a time: with a report of all of them in one packet of the smallest link.
const GROUPS_MAX: usize = 32;
/// Bytes of a query at least; those of the first version have no more.
const QUERY_MIN: usize = 24;

/// Kinds of records (section 5.2.12).
const IS_EXCLUDE: u8 = 2;
const TO_INCLUDE: u8 = 3;
const TO_EXCLUDE: u8 = 4;

/// The groups, and what is yet to be said about them.
#[derive(Clone, Debug, Default)]
pub struct Listener {
    groups: Vec<Ipv6Addr>,
    /// Groups that were joined or left, and how often that is yet to be said.
    changes: Vec<(Ipv6Addr, u8)>,
    change_due: Option<Instant>,
    /// When a query is answered.
    answer_due: Option<Instant>,
}

impl Listener {
    /// Listens to a group from now on; several addresses may have one.
    pub fn join(&mut self, now: Instant, group: Ipv6Addr) {
        if !self.groups.contains(&group) && self.groups.len() < GROUPS_MAX {
            self.groups.push(group);
            self.change(now, group);
        }
    }

    /// Listens no longer to any group but those that `is_kept` names.
    pub fn retain(&mut self, now: Instant, is_kept: impl Fn(Ipv6Addr) -> bool) {
        let gone: Vec<Ipv6Addr> = self.groups.iter().copied().filter(|group| !is_kept(*group)).collect();
        for group in gone {
            self.groups.retain(|other| *other != group);
            self.change(now, group);
        }
    }

    fn change(&mut self, now: Instant, group: Ipv6Addr) {
        self.changes.retain(|(other, _)| *other != group);
        self.changes.push((group, ROBUSTNESS));
        self.change_due = Some(now);
    }

    /// When there is something to say.
    pub fn due(&self) -> Option<Instant> {
        self.change_due.into_iter().chain(self.answer_due).min()
    }

    /// Takes a query: everything is said within the time that it gives (section 6.2).
    pub fn query(&mut self, now: Instant, message: &[u8], chance: &mut Chance) {
        let Some(group) = message.get(8..QUERY_MIN).and_then(|bytes| bytes.first_chunk::<16>()) else {
            return;
        };
        let group = Ipv6Addr::from(*group);
        if !group.is_unspecified() && !self.groups.contains(&group) || self.groups.is_empty() {
            return;
        }
        let code = u16::from_be_bytes([message[4], message[5]]);
        // Section 5.1.3: beyond 32767 it is a floating point number.
        let millis = match code {
            0x8000.. => u64::from(code & 0xfff | 0x1000) << ((code >> 12 & 7) + 3),
            _ => code.into(),
        };
        let at = now + chance.below(Duration::from_millis(millis));
        self.answer_due = Some(self.answer_due.map_or(at, |due| due.min(at)));
    }

    /// The report to send now, without its checksum; to be asked until there is nothing.
    pub fn poll(&mut self, now: Instant, chance: &mut Chance) -> Option<Vec<u8>> {
        if self.answer_due.is_some_and(|due| due <= now) {
            self.answer_due = None;
            return Some(report(self.groups.iter().map(|group| (IS_EXCLUDE, *group))));
        }
        self.change_due.filter(|due| *due <= now)?;
        let groups = &self.groups;
        let kind = |group| if groups.contains(&group) { TO_EXCLUDE } else { TO_INCLUDE };
        let message = report(self.changes.iter().map(|(group, _)| (kind(*group), *group)));
        self.changes.iter_mut().for_each(|(_, left)| *left -= 1);
        self.changes.retain(|(_, left)| *left > 0);
        self.change_due = (!self.changes.is_empty()).then(|| now + chance.below(CHANGE_GAP));
        Some(message)
    }
}

fn report(records: impl Iterator<Item = (u8, Ipv6Addr)>) -> Vec<u8> {
    let mut bytes = vec![REPORT, 0, 0, 0, 0, 0, 0, 0];
    let mut count = 0u16;
    for (kind, group) in records {
        bytes.extend([kind, 0, 0, 0]);
        bytes.extend(group.octets());
        count += 1;
    }
    bytes[6..8].copy_from_slice(&count.to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 1);

    fn at(millis: u64) -> Instant {
        Instant::from_micros(millis * 1000)
    }

    /// Kinds and groups of a report.
    fn records(report: &[u8]) -> Vec<(u8, Ipv6Addr)> {
        assert_eq!(report[0], REPORT);
        let records = report[8..].chunks(20).map(|record| {
            assert_eq!(record[1..4], [0; 3], "no sources");
            (record[0], Ipv6Addr::from(*record[4..].first_chunk::<16>().unwrap()))
        });
        let records: Vec<_> = records.collect();
        assert_eq!(records.len(), usize::from(u16::from_be_bytes([report[6], report[7]])));
        records
    }

    fn query(code: u16, group: Ipv6Addr) -> Vec<u8> {
        let mut bytes = vec![QUERY, 0, 0, 0];
        bytes.extend(code.to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(group.octets());
        bytes.extend([2, 125, 0, 0]);
        bytes
    }

    #[test]
    fn joining_and_leaving_is_said_twice() {
        let (mut listener, mut chance) = (Listener::default(), Chance::new([1, 2]));
        listener.join(at(0), GROUP);
        listener.join(at(0), GROUP);
        for _ in 0..2 {
            let due = listener.due().expect("a report");
            assert!(due <= at(1000));
            assert_eq!(records(&listener.poll(due, &mut chance).unwrap()), [(TO_EXCLUDE, GROUP)]);
        }
        assert_eq!(listener.due(), None);
        listener.retain(at(2000), |_| false);
        for _ in 0..2 {
            let due = listener.due().expect("a report");
            assert_eq!(records(&listener.poll(due, &mut chance).unwrap()), [(TO_INCLUDE, GROUP)]);
        }
        assert_eq!(listener.due(), None);
    }

    #[test]
    fn queries_are_answered_in_their_time_once() {
        let (mut listener, mut chance) = (Listener::default(), Chance::new([1, 2]));
        listener.query(at(0), &query(1000, Ipv6Addr::UNSPECIFIED), &mut chance);
        assert_eq!(listener.due(), None, "there is nothing to say");
        listener.join(at(0), GROUP);
        while let Some(due) = listener.due() {
            listener.poll(due, &mut chance);
        }
        let other = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 2);
        listener.query(at(5000), &query(1000, other), &mut chance);
        listener.query(at(5000), &[QUERY; 23], &mut chance);
        assert_eq!(listener.due(), None);
        for group in [Ipv6Addr::UNSPECIFIED, GROUP, GROUP] {
            listener.query(at(5000), &query(1000, group), &mut chance);
        }
        let due = listener.due().unwrap();
        assert!((at(5000)..at(6000)).contains(&due));
        assert_eq!(records(&listener.poll(due, &mut chance).unwrap()), [(IS_EXCLUDE, GROUP)]);
        assert_eq!((listener.due(), listener.poll(at(9000), &mut chance)), (None, None));
        listener.query(at(0), &query(0xffff, GROUP), &mut chance);
        assert!(listener.due().unwrap() < at(8_387_584));
    }
}
