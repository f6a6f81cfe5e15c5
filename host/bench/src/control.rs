//! Control lines: `word key=value key=value`, one for each happening in a guest.
//!
//! nom's kernel and the Linux guest's `init` write them to QEMU's debug console; the guest test `measure`
//! prints its `figure` lines among its other output.

/// One control line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// What happened.
    pub word: &'a str,
    /// Its particulars, in order.
    pub pairs: Vec<(&'a str, &'a str)>,
}

impl<'a> Line<'a> {
    /// Reads a line; none if it is not a word followed by pairs only.
    pub fn parse(line: &'a str) -> Option<Line<'a>> {
        let mut parts = line.split_ascii_whitespace();
        let word = parts.next().filter(|word| !word.contains('='))?;
        let pairs = parts.map(|part| part.split_once('=')).collect::<Option<_>>()?;
        Some(Line { word, pairs })
    }

    /// The value of `key`.
    pub fn value(&self, key: &str) -> Option<&'a str> {
        self.pairs
            .iter()
            .find(|(name, _)| *name == key)
            .map(|(_, value)| *value)
    }

    /// The value of `key` as a number.
    pub fn number(&self, key: &str) -> Option<u64> {
        self.value(key)?.parse().ok()
    }
}

/// Every control line in `text` that begins with `word`.
pub fn lines<'a>(text: &'a str, word: &str) -> impl Iterator<Item = Line<'a>> {
    text.lines()
        .filter_map(Line::parse)
        .filter(move |line| line.word == word)
}

/// The number under `key` in the first line that begins with `word` and has one.
pub fn number(text: &str, word: &str, key: &str) -> Option<u64> {
    lines(text, word).find_map(|line| line.number(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "boot kernel_tsc=10 user_tsc=30 tsc_hz=2600 clock=hpet\nstarted app=hello\n\
                        exited app=hello status=0 tsc=50\nhalt status=0\n";

    #[test]
    fn numbers_are_found_by_word_and_key() {
        assert_eq!(number(TEXT, "boot", "user_tsc"), Some(30));
        assert_eq!(number(TEXT, "exited", "tsc"), Some(50));
        assert_eq!(number(TEXT, "halt", "status"), Some(0));
    }

    #[test]
    fn what_is_absent_or_no_number_is_none() {
        assert_eq!(number(TEXT, "boot", "dma"), None);
        assert_eq!(number(TEXT, "boot", "clock"), None);
        assert_eq!(number(TEXT, "panic", "tsc"), None);
        assert_eq!(number("boot user_tsc=-1", "boot", "user_tsc"), None);
    }

    #[test]
    fn other_output_is_no_control_line() {
        for line in ["", "figure of speech", "a=b c=d", "[  0.001234] warn  text"] {
            assert_eq!(Line::parse(line), None, "{line:?}");
        }
        let figures: Vec<_> = lines("figure name=upcall cycles=9\nhi\n", "figure").collect();
        assert_eq!(figures[0].value("name"), Some("upcall"));
        assert_eq!(figures.len(), 1);
    }
}
