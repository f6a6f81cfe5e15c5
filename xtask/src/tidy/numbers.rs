//! Rules about numbers of performance: each is what a committed record says, but for those that were there
//! before, which get fewer.

use super::Violation;
use super::tree::{File, Tree};
use crate::results::{self, DIRECTORY, ENVIRONMENT};
use std::collections::BTreeMap;

/// How many numbers of each document have no record yet. They may only get fewer.
const UNTRACED: &str = "docs/results/untraced.toml";

/// Documents that say how fast something is.
fn documents(tree: &Tree) -> impl Iterator<Item = &File> {
    tree.files.iter().filter(|file| {
        let page = file.path.strip_prefix("docs/").unwrap_or(&file.path);
        file.path.ends_with(".md")
            && !page.contains('/')
            && (file.path != page || ["README.md", "SPEC.md"].contains(&page))
    })
}

/// A number that cites a record is what the record says, rounded to its digits.
pub fn cited_numbers_are_the_records(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in documents(tree) {
        for (index, line) in file.text.lines().enumerate() {
            for citation in results::citations(line) {
                let records = tree.find(&citation.path).map(|file| results::read(&file.text));
                let wrong = match records {
                    None => Some(format!("there is no `{}`", citation.path)),
                    Some(Err(error)) => Some(format!("{}: {error:#}", citation.path)),
                    Some(Ok(records)) => match results::find(&records, citation.key) {
                        None => Some(format!("{} has no record `{}`", citation.path, citation.key)),
                        Some(record) => {
                            let said = results::say(citation.text, record);
                            let said = said.unwrap_or_else(|| "another unit".into());
                            (said != citation.text)
                                .then(|| format!("`{}`: the record says {said}", citation.text))
                        }
                    },
                };
                violations
                    .extend(wrong.map(|wrong| Violation::new(&file.path, index + 1, "cited-number", wrong)));
            }
        }
    }
    violations
}

/// No document has more numbers of performance without a record than docs/results/untraced.toml says.
pub fn numbers_have_records(tree: &Tree) -> Vec<Violation> {
    let listed: BTreeMap<String, usize> =
        tree.find(UNTRACED).and_then(|file| toml::from_str(&file.text).ok()).unwrap_or_default();
    let count = |file: &File| prose(&file.text).map(|line| untraced(&line)).sum::<usize>();
    let mut violations: Vec<Violation> = documents(tree)
        .filter_map(|file| {
            let (found, known) = (count(file), listed.get(&file.path).copied().unwrap_or_default());
            let message = match found.cmp(&known) {
                std::cmp::Ordering::Equal => return None,
                std::cmp::Ordering::Less => {
                    format!("{found} numbers have no record: {UNTRACED} says {known}, lower it")
                }
                std::cmp::Ordering::Greater => format!(
                    "{found} numbers have no record, at most {known}: cite one for each new number, as \
                     [7.6x]({DIRECTORY}FILE.json#SYSTEM,APPLICATION,SCENARIO,METRIC)"
                ),
            };
            Some(Violation::new(&file.path, 1, "number", message))
        })
        .collect();
    let gone = listed.keys().filter(|path| tree.find(path).is_none());
    violations
        .extend(gone.map(|path| Violation::new(UNTRACED, 1, "number", format!("there is no `{path}`"))));
    violations
}

/// Each file of records is called by its date, and beside it stands where and when it was measured.
pub fn records_have_a_machine(tree: &Tree) -> Vec<Violation> {
    let names = tree.files.iter().filter_map(|file| file.path.strip_prefix(DIRECTORY)?.strip_suffix(".json"));
    let records = names.filter(|name| !name.ends_with(".environment"));
    records
        .filter_map(|name| {
            let environment = tree.find(&format!("{DIRECTORY}{name}{ENVIRONMENT}")).map(|file| &*file.text);
            let says = |what: &str| environment.is_some_and(|text| text.contains(&format!("\"{what}\"")));
            let message = if !results::starts_with_date(name) {
                "expected a date and a word, such as 2026-11-22-demo"
            } else if !["date", "processor", "command"].into_iter().all(says) {
                "no date, processor and command beside it: run `cargo xtask results`"
            } else {
                return None;
            };
            Some(Violation::new(&format!("{DIRECTORY}{name}.json"), 1, "record", message))
        })
        .collect()
}

/// Lines outside of fences, without code and the targets of links, and without citations.
fn prose(text: &str) -> impl Iterator<Item = String> {
    let mut in_fence = false;
    text.lines().filter_map(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        in_fence ^= is_fence;
        (!in_fence && !is_fence).then(|| plain(line))
    })
}

fn plain(line: &str) -> String {
    let mut line = line.to_owned();
    for citation in results::citations(&line.clone()) {
        line = line.replace(&format!("[{}](", citation.text), "(");
    }
    let outside_code: String = line.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    let mut parts = outside_code.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, rest| all + rest.split_once(')').map_or("", |(_, rest)| rest))
}

/// How many numbers of performance are in a line: times, rates, shares, factors and dollars.
fn untraced(line: &str) -> usize {
    const UNITS: [&str; 9] = ["x", "%", "\u{b5}s", "us", "ms", "ns", "/s", "Mbit/s", "Gbit/s"];
    let letters: Vec<char> = line.chars().collect();
    let is_number = |at: usize| letters.get(at).is_some_and(char::is_ascii_digit);
    let mut count = 0;
    let mut at = 0;
    while at < letters.len() {
        let is_begin =
            is_number(at) && (at == 0 || !(letters[at - 1].is_alphanumeric() || letters[at - 1] == '-'));
        if !is_begin {
            at += 1;
            continue;
        }
        let has_dollar = at > 0 && letters[at - 1] == '$';
        while is_number(at) || letters.get(at).is_some_and(|c| ".,".contains(*c)) && is_number(at + 1) {
            at += 1;
        }
        let word: String = letters[at..]
            .iter()
            .skip_while(|c| **c == ' ')
            .take_while(|c| !" ,;:.)|".contains(**c))
            .collect();
        let has_unit = UNITS.contains(&&*word);
        count += usize::from(has_dollar || has_unit);
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::judge;

    const RECORDS: &str = r#"[{"experiment":"demo","system":"a/b","application":"m","scenario":"both",
        "metric":"p","unit":"ratio","value":7.62,"repetitions":1,"deviation":null}]"#;
    const PATH: &str = "docs/results/2026-11-22-demo.json";

    #[test]
    fn a_number_that_its_record_does_not_say_is_found() {
        let files = |line| [("README.md", line), (PATH, RECORDS)];
        let of = |line| judge(cited_numbers_are_the_records, &files(line));
        assert_eq!(of("[7.6x](docs/results/2026-11-22-demo.json#a/b,m,both,p)"), [""; 0]);
        let wrong = of("a\n[7.7x](docs/results/2026-11-22-demo.json#a/b,m,both,p)");
        assert_eq!(wrong, ["README.md:2: cited-number: `7.7x`: the record says 7.6x"]);
        assert!(of("[7.6x](docs/results/2026-11-22-demo.json#a/b,m,both,q)")[0].contains("has no record"));
        assert!(of("[7.6x](docs/results/2026-11-23-demo.json#a/b,m,both,p)")[0].contains("there is no"));
    }

    #[test]
    fn a_number_without_a_record_is_found_and_the_list_only_shrinks() {
        let of = |line, list| judge(numbers_have_records, &[("SPEC.md", line), (UNTRACED, list)]);
        assert_eq!(of("21 ms, 3 cores", "\"SPEC.md\" = 1"), [""; 0]);
        assert!(of("21 ms and 4x", "\"SPEC.md\" = 1")[0].contains("2 numbers have no record, at most 1"));
        assert!(of("nothing", "\"SPEC.md\" = 1")[0].contains("lower it"));
        assert!(of("", "\"docs/gone.md\" = 1")[0].contains("docs/gone.md"));
        assert_eq!(of("[7.6x](docs/results/2026-11-22-demo.json#a/b,m,both,p)", ""), [""; 0]);
        assert_eq!(
            judge(numbers_have_records, &[("docs/results/README.md", "5x"), ("HACKING.md", "7x")]),
            [""; 0]
        );
    }

    #[test]
    fn what_is_a_number_of_performance() {
        for (line, count) in [
            ("34.7x: $146.00 / $4.21", 3),
            ("99.3% \u{b1} 2.9%, 84 \u{b5}s, 9,100/s", 4),
            ("`12 ms` is code, [7%](x.md) a link to 5% of it", 2),
            ("RFC 8985, 16 connections, x86, W-5x, 2026-11-22", 0),
        ] {
            assert_eq!(prose(line).map(|line| untraced(&line)).sum::<usize>(), count, "{line}");
        }
        assert_eq!(prose("```sh\nsleep 5 ms\n```\n5 ms").map(|line| untraced(&line)).sum::<usize>(), 1);
    }

    #[test]
    fn records_without_a_machine_are_found() {
        let machine = r#"{"date": "d", "processor": "p", "command": "c"}"#;
        let beside = "docs/results/2026-11-22-demo.environment.json";
        assert_eq!(judge(records_have_a_machine, &[(PATH, RECORDS), (beside, machine)]), [""; 0]);
        assert!(judge(records_have_a_machine, &[(PATH, RECORDS)])[0].contains("no date"));
        assert!(
            judge(records_have_a_machine, &[("docs/results/demo.json", "[]")])[0].contains("expected a date")
        );
    }
}
