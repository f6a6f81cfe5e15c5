//! What the daemon says to people: each line once, and not too many.

use crate::SECOND_NS;
use alloc::collections::VecDeque;
use alloc::string::String;

/// Lines that may come at once.
const BURST: u64 = 10;
/// How long it then takes until the next may.
const REFILL_NS: u64 = 5 * SECOND_NS;
/// Most characters of a line.
const LENGTH_MAX: usize = 300;

/// Lines on their way to the console. What is too much is left out, but for the last of it, which comes when
/// there is room: so the last line always says how things stand.
#[derive(Debug)]
pub struct Voice {
    lines: VecDeque<String>,
    /// How many more lines may come now.
    left: u64,
    refilled_ns: u64,
    held: Option<String>,
    omitted: u64,
}

impl Voice {
    /// Nothing was said.
    pub fn new() -> Voice {
        Voice { lines: VecDeque::new(), left: BURST, refilled_ns: 0, held: None, omitted: 0 }
    }

    /// Says a line. Control characters in it, which may come from the provider, are replaced.
    pub fn say(&mut self, now_ns: u64, line: &str) {
        let clean = line.chars().take(LENGTH_MAX).map(|c| if c.is_control() { '?' } else { c });
        if self.held.replace(clean.collect()).is_some() {
            self.omitted += 1;
        }
        self.tick(now_ns);
    }

    /// Lets a line go that was held back, if it may by now.
    pub fn tick(&mut self, now_ns: u64) {
        let refills = now_ns.saturating_sub(self.refilled_ns) / REFILL_NS;
        self.refilled_ns += refills * REFILL_NS;
        self.left = (self.left + refills).min(BURST);
        if self.left > 0
            && let Some(mut line) = self.held.take()
        {
            self.left -= 1;
            let omitted = core::mem::take(&mut self.omitted);
            if omitted > 0 {
                line.push_str(&alloc::format!(" ({omitted} lines before this one were left out)"));
            }
            self.lines.push_back(line);
        }
    }

    /// When [`Voice::tick`] has something to do.
    pub fn due_ns(&self) -> Option<u64> {
        self.held.as_ref().map(|_| self.refilled_ns + REFILL_NS)
    }

    /// The next line to show.
    pub fn take(&mut self) -> Option<String> {
        self.lines.pop_front()
    }
}

impl Default for Voice {
    fn default() -> Voice {
        Voice::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(voice: &mut Voice) -> Vec<String> {
        core::iter::from_fn(|| voice.take()).collect()
    }

    #[test]
    fn a_flood_is_cut_and_its_end_is_told() {
        let mut voice = Voice::new();
        (0..100).for_each(|number| voice.say(1, &format!("line {number}")));
        assert_eq!(taken(&mut voice).len() as u64, BURST);
        let due_ns = voice.due_ns().expect("one is held back");
        voice.tick(due_ns - 1);
        assert!(taken(&mut voice).is_empty());
        voice.tick(due_ns);
        assert_eq!(taken(&mut voice), ["line 99 (89 lines before this one were left out)"]);
        assert_eq!(voice.due_ns(), None);
    }

    #[test]
    fn nobody_else_moves_the_cursor() {
        let mut voice = Voice::new();
        voice.say(0, &format!("a\u{1b}[2J\nb{}", "c".repeat(1000)));
        let line = voice.take().expect("a line");
        assert!(line.starts_with("a?[2J?bccc") && line.len() == LENGTH_MAX, "{line}");
    }
}
