//! The language of packet scripts, a part of packetdrill's. See `tests/pkt/README.md`.

use nom_net::tcp::segment::{Flags, Options, Segment, Timestamps};
use nom_net::tcp::sequence::Seq;

/// What one line says.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// `set KEY VALUES`: before anything happens.
    Set(Vec<String>),
    /// `+SECONDS < SEGMENT`.
    Inject(Segment),
    /// `+SECONDS > SEGMENT`; whether the window is to be compared.
    Expect(Segment, bool),
    /// `+SECONDS app WORDS`.
    App(Vec<String>),
    /// `counter NAME COUNT`.
    Counter(String, u64),
}

/// Parses a script: for each line that says something its number, the seconds since the line before, and
/// what.
pub fn parse(text: &str) -> Result<Vec<(usize, f64, Line)>, String> {
    let lines = text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.split('#').next().unwrap_or("").trim()));
    lines
        .filter(|(_, line)| !line.is_empty())
        .map(|(number, line)| {
            let (after, line) =
                parse_line(line).map_err(|error| format!("line {number}: {error}: {line}"))?;
            Ok((number, after, line))
        })
        .collect()
}

fn parse_line(line: &str) -> Result<(f64, Line), String> {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    match words[0].as_str() {
        "set" => return Ok((0.0, Line::Set(words[1..].to_vec()))),
        "counter" if words.len() == 3 => {
            return Ok((0.0, Line::Counter(words[1].clone(), number(&words[2])?)));
        }
        _ => {}
    }
    let after = words[0].strip_prefix('+').ok_or("a line begins with set, counter or +SECONDS")?;
    let after = after.parse().map_err(|_| format!("`{after}` is no number of seconds"))?;
    let rest = line[words[0].len()..].trim_start();
    let event = match words.get(1).map(String::as_str) {
        Some("<") => Line::Inject(segment(&rest[1..])?.0),
        Some(">") => {
            let (segment, has_window) = segment(&rest[1..])?;
            Line::Expect(segment, has_window)
        }
        Some("app") => Line::App(words[2..].to_vec()),
        _ => return Err("after the time comes <, > or app".to_owned()),
    };
    Ok((after, event))
}

/// `FLAGS FROM:TO(LEN) [ack N] [win N] [<OPTIONS>]`; and whether there is a window.
fn segment(text: &str) -> Result<(Segment, bool), String> {
    let (text, list) = text.split_once('<').unwrap_or((text, ""));
    let mut words = text.split_whitespace();
    let mut segment =
        Segment { flags: flags(words.next().ok_or("flags are missing")?)?, ..Segment::default() };
    let range = words.next().ok_or("FROM:TO(LEN) is missing")?;
    (segment.seq, segment.len) = sequence(range)?;
    let mut has_window = false;
    while let Some(word) = words.next() {
        let value: u64 = number(words.next().ok_or(format!("`{word}` needs a number"))?)?;
        match word {
            "ack" => segment.ack = Seq(value as u32),
            "win" => {
                segment.window = u16::try_from(value).map_err(|_| format!("a window of {value}"))?;
                has_window = true;
            }
            _ => return Err(format!("`{word}`: ack or win was expected")),
        }
    }
    segment.options = options(list.trim_end().trim_end_matches('>'))?;
    Ok((segment, has_window))
}

fn flags(word: &str) -> Result<Flags, String> {
    word.chars().try_fold(Flags::default(), |flags, letter| {
        let flag = match letter {
            'S' => Flags::SYN,
            'F' => Flags::FIN,
            'R' => Flags::RST,
            'P' => Flags::PSH,
            '.' => Flags::ACK,
            _ => return Err(format!("flag `{letter}`: one of S F R P . was expected")),
        };
        Ok(flags | flag)
    })
}

fn sequence(word: &str) -> Result<(Seq, u32), String> {
    let wrong = || format!("`{word}`: FROM:TO(LEN) was expected");
    let (from, rest) = word.split_once(':').ok_or_else(wrong)?;
    let (to, len) = rest.split_once('(').ok_or_else(wrong)?;
    let (from, to, len): (u64, u64, u64) = (number(from)?, number(to)?, number(len.trim_end_matches(')'))?);
    if to - from != len { Err(wrong()) } else { Ok((Seq(from as u32), len as u32)) }
}

fn options(list: &str) -> Result<Options, String> {
    let mut options = Options::default();
    for option in list.split(',').map(str::trim).filter(|option| !option.is_empty()) {
        let words: Vec<&str> = option.split_whitespace().collect();
        match words[..] {
            ["mss", value] => options.mss = Some(number(value)? as u16),
            ["wscale", value] => options.scale = Some(number(value)? as u8),
            ["sackOK"] => options.sack_permitted = true,
            ["ts", value, echo] => {
                let (value, echo) = (number(value)? as u32, number(echo)? as u32);
                options.timestamps = Some(Timestamps { value, echo });
            }
            ["sack", ref ranges @ ..] => {
                for (slot, range) in options.sack.iter_mut().zip(ranges) {
                    let (from, to) =
                        range.split_once(':').ok_or(format!("`{range}`: FROM:TO was expected"))?;
                    *slot = Some((Seq(number(from)? as u32), Seq(number(to)? as u32)));
                }
            }
            _ => return Err(format!("option `{option}` is unknown")),
        }
    }
    Ok(options)
}

pub fn number(word: &str) -> Result<u64, String> {
    word.parse().map_err(|_| format!("`{word}` is no number"))
}

/// A segment as a script would say it.
pub fn show(segment: &Segment) -> String {
    let letters =
        [('S', Flags::SYN), ('F', Flags::FIN), ('R', Flags::RST), ('P', Flags::PSH), ('.', Flags::ACK)];
    let flags: String =
        letters.iter().filter(|(_, flag)| segment.flags.any(*flag)).map(|(letter, _)| letter).collect();
    let Segment { seq, len, ack, window, options, .. } = segment;
    let mut list = Vec::new();
    list.extend(options.mss.map(|mss| format!("mss {mss}")));
    list.extend(options.sack_permitted.then(|| "sackOK".to_owned()));
    list.extend(options.timestamps.map(|stamps| format!("ts {} {}", stamps.value, stamps.echo)));
    list.extend(options.scale.map(|scale| format!("wscale {scale}")));
    let ranges: String =
        options.sack.iter().flatten().map(|(from, to)| format!(" {}:{}", from.0, to.0)).collect();
    list.extend((!ranges.is_empty()).then(|| format!("sack{ranges}")));
    let end = u64::from(seq.0) + u64::from(*len);
    format!("{flags} {}:{end}({len}) ack {} win {window} <{}>", seq.0, ack.0, list.join(","))
}
