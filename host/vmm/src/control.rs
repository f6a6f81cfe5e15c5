//! The control channel: what the kernel tells whoever runs the machine, one line for each happening.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// One line: a word, and `key=value` pairs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlLine {
    /// What happened: `boot`, `started`, `exited`, `faulted`, `panic`, `halt`.
    pub word: String,
    /// Its particulars.
    pub fields: BTreeMap<String, String>,
}

impl ControlLine {
    /// A particular, as it was written.
    pub fn field(&self, key: &str) -> Option<&str> {
        self.fields.get(key).map(String::as_str)
    }

    /// A particular that is a number, in decimal or with `0x` in hexadecimal.
    pub fn number(&self, key: &str) -> Option<u64> {
        let text = self.field(key)?;
        match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        }
    }
}

impl FromStr for ControlLine {
    type Err = std::convert::Infallible;

    /// Reads any line; a part without `=` after the first is a key without a value.
    fn from_str(line: &str) -> Result<ControlLine, Self::Err> {
        let mut parts = line.split_whitespace();
        let word = parts.next().unwrap_or_default().to_owned();
        let pair = |part: &str| {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            (key.to_owned(), value.to_owned())
        };
        Ok(ControlLine { word, fields: parts.map(pair).collect() })
    }
}

impl fmt::Display for ControlLine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.word)?;
        self.fields.iter().try_for_each(|(key, value)| write!(out, " {key}={value}"))
    }
}

/// Reads every complete or last line of a control log.
pub fn parse_log(log: &str) -> Vec<ControlLine> {
    log.lines().filter(|line| !line.trim().is_empty()).filter_map(|line| line.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_word_and_pairs() {
        let line: ControlLine = "started app=hello base=0x7000_0000".parse().expect("any line reads");
        assert_eq!((line.word.as_str(), line.field("app")), ("started", Some("hello")));
        assert_eq!(line.number("base"), None, "underscores are no digits");
        let line: ControlLine = "halt status=139 base=0x7f00".parse().expect("any line reads");
        assert_eq!((line.number("status"), line.number("base")), (Some(139), Some(0x7f00)));
        assert_eq!(line.to_string().parse(), Ok(line));
    }

    #[test]
    fn a_log_skips_empty_lines() {
        let lines = parse_log("boot clock=hpet\r\n\nhalt status=0");
        assert_eq!(lines.iter().map(|line| line.word.as_str()).collect::<Vec<_>>(), ["boot", "halt"]);
        assert_eq!(lines[0].field("clock"), Some("hpet"));
    }
}
