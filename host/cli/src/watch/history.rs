//! A figure over the last minute, one value for each second.

use std::collections::VecDeque;
use std::time::Duration;

/// Seconds that are kept.
pub const SECONDS: usize = 60;

/// Values by the second that they belong to, the oldest first.
#[derive(Clone, Debug, Default)]
pub struct History(VecDeque<(u64, f64)>);

impl History {
    /// Takes in a value; the last of a second counts. What is too old goes.
    pub fn push(&mut self, at: Duration, value: f64) {
        let second = at.as_secs();
        match self.0.back_mut() {
            Some((last, kept)) if *last == second => *kept = value,
            _ => self.0.push_back((second, value)),
        }
        while self.0.front().is_some_and(|(first, _)| first + SECONDS as u64 <= second) {
            self.0.pop_front();
        }
    }

    /// The last `count` seconds before `now`, the oldest first; `None` where nothing was heard.
    pub fn last(&self, now: Duration, count: usize) -> Vec<Option<f64>> {
        let end = now.as_secs() + 1;
        let mut row = vec![None; count];
        for (second, value) in &self.0 {
            let place =
                (second + count as u64).checked_sub(end).and_then(|place| usize::try_from(place).ok());
            if let Some(cell) = place.and_then(|place| row.get_mut(place)) {
                *cell = Some(*value);
            }
        }
        row
    }

    /// The last `count` seconds of a figure that holds until it changes, such as a price.
    pub fn held(&self, now: Duration, count: usize) -> Vec<Option<f64>> {
        let start = (now.as_secs() + 1).saturating_sub(count as u64);
        let before = self.0.iter().rev().find(|(second, _)| *second < start);
        let mut held = before.map(|(_, value)| *value);
        let mut row = self.last(now, count);
        for cell in &mut row {
            held = cell.or(held);
            *cell = held;
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn the_last_value_of_each_second_is_kept_where_it_belongs() {
        let mut history = History::default();
        for (seconds, value) in [(1.0, 1.0), (1.9, 2.0), (3.5, 4.0)] {
            history.push(at(seconds), value);
        }
        assert_eq!(history.last(at(4.0), 5), [None, Some(2.0), None, Some(4.0), None]);
        assert_eq!(history.last(at(4.0), 2), [Some(4.0), None]);
        assert_eq!(history.held(at(4.0), 5), [None, Some(2.0), Some(2.0), Some(4.0), Some(4.0)]);
        assert_eq!(history.held(at(100.0), 2), [Some(4.0); 2], "it holds still");
    }

    #[test]
    fn a_minute_is_kept() {
        let mut history = History::default();
        (0..200).for_each(|second| history.push(at(f64::from(second)), f64::from(second)));
        assert_eq!(history.0.len(), SECONDS);
        let row = history.last(at(199.0), SECONDS);
        assert_eq!((row[0], row[SECONDS - 1]), (Some(140.0), Some(199.0)));
    }
}
