//! What `stats detail` counts: commands by the prefix of their keys, which ends at the first `:`.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// Prefixes that a shard counts; memcached has no limit, but clients choose them.
const PREFIXES_MAX: usize = 1024;

/// What is counted of a prefix.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Get,
    Hit,
    Set,
    Delete,
}

/// Counts of each [`Event`].
pub(crate) type Tally = [u64; 4];

/// The prefixes of one shard's keys.
#[derive(Debug, Default)]
pub(crate) struct Details {
    pub is_on: bool,
    /// In the order of the prefixes.
    prefixes: Vec<(Box<[u8]>, Tally)>,
}

impl Details {
    /// Something is done with a key.
    #[inline]
    pub fn note(&mut self, key: &[u8], event: Event) {
        if self.is_on {
            self.count(key, event);
        }
    }

    #[cold]
    #[inline(never)]
    fn count(&mut self, key: &[u8], event: Event) {
        let Some(end) = key.iter().position(|byte| *byte == b':') else { return };
        let mut tally = Tally::default();
        tally[event as usize] = 1;
        self.add(&key[..end], &tally);
    }

    fn add(&mut self, prefix: &[u8], tally: &Tally) {
        match self.prefixes.binary_search_by(|(other, _)| (**other).cmp(prefix)) {
            Ok(at) => self.prefixes[at].1.iter_mut().zip(tally).for_each(|(sum, count)| *sum += count),
            Err(at) if self.prefixes.len() < PREFIXES_MAX => {
                self.prefixes.insert(at, (prefix.into(), *tally))
            }
            Err(_) => {}
        }
    }

    /// Adds what another shard counted.
    pub fn add_all(&mut self, other: &Details) {
        other.prefixes.iter().for_each(|(prefix, tally)| self.add(prefix, tally));
    }

    /// Forgets what was counted.
    pub fn clear(&mut self) {
        self.prefixes.clear();
    }

    /// Every prefix with its counts.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Tally)> {
        self.prefixes.iter().map(|(prefix, tally)| (&**prefix, *tally))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_choose_prefixes_but_not_how_many() {
        let mut details = Details { is_on: true, ..Details::default() };
        (0..2000).for_each(|number| details.note(alloc::format!("{number}:x").as_bytes(), Event::Set));
        details.note(b"no prefix", Event::Get);
        details.note(b"7:y", Event::Get);
        assert_eq!(details.iter().count(), PREFIXES_MAX);
        let seven = details.iter().find(|(prefix, _)| *prefix == b"7").map(|(_, tally)| tally);
        assert_eq!(seven, Some([1, 0, 1, 0]));
        let mut sum = Details::default();
        sum.add_all(&details);
        sum.add_all(&details);
        assert!(sum.iter().all(|(_, [_, _, set, _])| set == 2));
    }
}
