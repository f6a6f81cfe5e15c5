//! Records of runs under docs/results, and numbers of documents that cite them:
//! `[7.6x](docs/results/2026-11-22-demo.json#nom-adaptive/linux,memcached,both,profit_refund)`, where a space
//! within a name is `%20`.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::path::Path;

/// Where records are kept.
pub const DIRECTORY: &str = "docs/results/";
/// What the name of the file with a run's machine, date and command ends in.
pub const ENVIRONMENT: &str = ".environment.json";

/// A record of a bench, as far as a citation needs it.
#[derive(Clone, Debug, Deserialize)]
pub struct Record {
    system: String,
    application: String,
    scenario: String,
    metric: String,
    unit: String,
    value: f64,
}

/// A number in a document that cites a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Citation<'a> {
    /// What a reader sees.
    pub text: &'a str,
    /// The file's path from the project's root.
    pub path: String,
    /// System, application, scenario and metric, with commas between.
    pub key: &'a str,
}

/// The citations of a line. Whatever directory the document is in, its links end in the same path.
pub fn citations(line: &str) -> impl Iterator<Item = Citation<'_>> {
    line.split('[').skip(1).filter_map(|rest| {
        let (text, rest) = rest.split_once("](")?;
        let (target, _) = rest.split_once(')')?;
        let (path, key) = target.split_once('#')?;
        let name = path.rsplit_once("results/")?.1;
        path.ends_with(".json").then(|| Citation { text, path: format!("{DIRECTORY}{name}"), key })
    })
}

/// The record of this key.
pub fn find<'a>(records: &'a [Record], key: &str) -> Option<&'a Record> {
    let key = key.replace("%20", " ");
    records.iter().find(|record| {
        [&*record.system, &*record.application, &*record.scenario, &*record.metric].join(",") == key
    })
}

/// The records of a file.
///
/// # Errors
/// If they are none.
pub fn read(text: &str) -> Result<Vec<Record>> {
    serde_json::from_str(text).context("expected an array of records, as results.json has it")
}

/// `text` with the number in it that `record` says, written with as many digits; none if there is no number
/// in it, or of another unit.
pub fn say(text: &str, record: &Record) -> Option<String> {
    let begin = text.find(|letter: char| letter.is_ascii_digit())?;
    let is_part = |letter: char| letter.is_ascii_digit() || letter == '.' || letter == ',';
    let end = text[begin..].find(|letter: char| !is_part(letter)).map_or(text.len(), |length| begin + length);
    let number = text[begin..end].trim_end_matches(['.', ',']);
    let end = begin + number.len();
    let (before, after) = (&text[..begin], text[end..].trim_start());
    let digits = number.split_once('.').map_or(0, |(_, digits)| digits.len());
    let value = record.value * factor(&record.unit, after)?;
    let value = if before.ends_with('-') || before.ends_with('\u{2212}') { -value } else { value };
    let said = format!("{value:.digits$}");
    let said = if number.contains(',') || number.len() > 4 && digits == 0 { grouped(&said) } else { said };
    Some(format!("{before}{said}{}", &text[end..]))
}

/// What a value of `unit` is multiplied by where a unit begins what stands behind it.
fn factor(unit: &str, after: &str) -> Option<f64> {
    let word: String = after.chars().take_while(|letter| !letter.is_whitespace()).collect();
    let of = |known: &[(&str, f64)]| known.iter().find(|(name, _)| word.starts_with(name)).map(|(_, by)| *by);
    match unit {
        "s" => of(&[("ns", 1e9), ("\u{b5}s", 1e6), ("us", 1e6), ("ms", 1e3), ("s", 1.0)]),
        "bit/s" => of(&[("Gbit/s", 1e-9), ("Mbit/s", 1e-6), ("kbit/s", 1e-3)]),
        "bytes" => {
            Some(of(&[("KiB", 1.0 / 1024.0), ("MiB", 1.0 / 1_048_576.0), ("KB", 1e-3)]).unwrap_or(1.0))
        }
        "ratio" => Some(if word.starts_with('%') { 100.0 } else { 1.0 }),
        _ => Some(1.0),
    }
}

/// Digits in groups of three.
fn grouped(digits: &str) -> String {
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |digits| ("-", digits));
    let (whole, fraction) =
        digits.split_once('.').map_or((digits, None), |(whole, rest)| (whole, Some(rest)));
    let groups = whole.as_bytes().rchunks(3).rev().map(|group| String::from_utf8_lossy(group).into_owned());
    let whole = groups.collect::<Vec<_>>().join(",");
    fraction.map_or(format!("{sign}{whole}"), |fraction| format!("{sign}{whole}.{fraction}"))
}

/// A document whose citations of `path` say what `records` do.
pub fn retold(document: &str, path: &str, records: &[Record]) -> String {
    let mut told = document.to_owned();
    for citation in document.lines().flat_map(citations).filter(|citation| citation.path == path) {
        let Some(said) = find(records, citation.key).and_then(|record| say(citation.text, record)) else {
            continue;
        };
        let key = citation.key;
        let of = |text: &str, rest: &str| format!("[{text}]({rest}");
        // The same link may stand there with another path before it.
        for rest in told.clone().split(&format!("[{}](", citation.text)).skip(1) {
            let target = rest.split(')').next().unwrap_or_default();
            if target.ends_with(&format!("#{key}"))
                && target.contains(path.rsplit('/').next().unwrap_or(path))
            {
                told = told.replace(&of(citation.text, target), &of(&said, target));
            }
        }
    }
    told
}

/// `cargo xtask results RUN NAME`.
///
/// # Errors
/// If the run has no records, or nothing can be written.
pub fn keep(root: &Path, run: &Path, name: &str) -> Result<bool> {
    let is_part = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    ensure!(
        starts_with_date(name) && name.chars().all(is_part),
        "`{name}`: expected a date and a word, such as 2026-11-22-demo"
    );
    let read_text = |file: &str| {
        let path = run.join(file);
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let (records, environment) = (read_text("results.json")?, read_text("environment.json")?);
    let path = format!("{DIRECTORY}{name}.json");
    std::fs::create_dir_all(root.join(DIRECTORY))?;
    std::fs::write(root.join(&path), &records)?;
    std::fs::write(root.join(format!("{DIRECTORY}{name}{ENVIRONMENT}")), portable(&environment)?)?;
    let records = read(&records)?;
    for document in documents(root)? {
        let text = std::fs::read_to_string(&document)?;
        let told = retold(&text, &path, &records);
        if told != text {
            std::fs::write(&document, told)
                .with_context(|| format!("cannot write {}", document.display()))?;
            println!("{}", document.display());
        }
    }
    Ok(true)
}

/// Whether a name begins as `2026-11-22-` does.
pub fn starts_with_date(name: &str) -> bool {
    let like = b"0000-00-00-";
    name.len() > like.len()
        && name.bytes().zip(like).all(
            |(letter, like)| {
                if *like == b'0' { letter.is_ascii_digit() } else { letter == *like }
            },
        )
}

/// The machine without where its programs lie.
fn portable(environment: &str) -> Result<String> {
    let mut rows: std::collections::BTreeMap<String, String> = serde_json::from_str(environment)?;
    if let Some(command) = rows.get_mut("command") {
        let (program, rest) = command.split_once(' ').unwrap_or((command, ""));
        let program = program.rsplit('/').next().unwrap_or_default();
        *command = format!("{program} {rest}").trim_end().to_owned();
    }
    Ok(serde_json::to_string_pretty(&rows)? + "\n")
}

fn documents(root: &Path) -> Result<Vec<std::path::PathBuf>> {
    let mut found = Vec::new();
    for directory in ["", "docs"] {
        for entry in std::fs::read_dir(root.join(directory))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "earned [7.6x](../docs/results/2026-11-22-demo.json#a/b,m,both,p) and [x](y.md#z), 3x";

    fn record(unit: &str, value: f64) -> Record {
        let [system, application, scenario, metric] = ["a/b", "m", "both", "p"].map(String::from);
        Record { system, application, scenario, metric, unit: unit.into(), value }
    }

    #[test]
    fn a_citation_names_a_record() {
        let found: Vec<_> = citations(LINE).collect();
        let path = "docs/results/2026-11-22-demo.json".to_owned();
        assert_eq!(found, [Citation { text: "7.6x", path, key: "a/b,m,both,p" }]);
        assert!(find(&[record("ratio", 1.0)], "a/b,m,both,p").is_some());
        assert!(find(&[record("ratio", 1.0)], "a,m,both,p").is_none());
    }

    #[test]
    fn numbers_are_said_with_as_many_digits_and_in_the_unit_that_stands_there() {
        let said = |text: &str, unit: &str, value| say(text, &record(unit, value)).unwrap_or_default();
        assert_eq!(said("7.6x", "ratio", 8.249), "8.2x");
        assert_eq!(said("99.3%", "ratio", 1.0044), "100.4%");
        assert_eq!(said("$150.36", "$", 2.0), "$2.00");
        assert_eq!(said("84 \u{b5}s", "s", 91.6e-6), "92 \u{b5}s");
        assert_eq!(said("9,000/s", "1/s", 12_345.6), "12,346/s");
        assert_eq!(said("84 days", "s", 1.0), "", "another unit");
        assert_eq!(said("many", "s", 1.0), "");
    }

    #[test]
    fn a_new_run_changes_what_documents_say() {
        let told = retold(LINE, "docs/results/2026-11-22-demo.json", &[record("ratio", 9.06)]);
        assert_eq!(told, LINE.replace("7.6x", "9.1x"));
        assert_eq!(retold(LINE, "docs/results/2026-11-23-demo.json", &[record("ratio", 9.06)]), LINE);
    }

    #[test]
    fn the_machine_is_said_without_paths() {
        let said = portable(r#"{"command":"/a/b/nom demo --out x","date":"d"}"#).unwrap();
        assert!(said.contains("\"nom demo --out x\"") && !said.contains("/a/b"), "{said}");
        assert!(starts_with_date("2026-11-22-demo") && !starts_with_date("2026-11-22-"));
        assert!(!starts_with_date("demo-2026-11-22"));
    }
}
