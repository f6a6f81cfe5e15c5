//! Writes what a bench found: `results.json`, `results.csv`, one SVG for each figure, and `report.html`,
//! which needs no other file.

use crate::Outcome;
use crate::environment::Environment;
use crate::figure::Figure;
use crate::record::{Record, distinct, to_csv};
use crate::table::Table;
use crate::target::{Target, Verdict};
use anyhow::{Context, Result};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Everything that a bench has to say.
#[derive(Clone, Debug)]
pub struct Report {
    /// Headline.
    pub title: String,
    /// Where it was measured.
    pub environment: Environment,
    /// What was measured.
    pub records: Vec<Record>,
    /// What the records say together, in front of everything else.
    pub tables: Vec<Table>,
    /// What had to be reached.
    pub targets: Vec<Target>,
    /// The figures.
    pub figures: Vec<Figure>,
    /// What a reader must know, and what could not be measured; one sentence each.
    pub notes: Vec<String>,
}

/// Sentences, each once.
#[derive(Clone, Debug, Default)]
pub struct Notes(Vec<String>);

impl Notes {
    /// Adds a sentence, unless it is there.
    pub fn add(&mut self, note: String) {
        if !self.0.contains(&note) {
            self.0.push(note);
        }
    }

    /// The sentences, in the order in which they came.
    pub fn into_vec(self) -> Vec<String> {
        self.0
    }
}

const STYLE: &str = "\
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}\
table{border-collapse:collapse;margin:1rem 0}\
td,th{border-bottom:1px solid #ddd;padding:.25rem .75rem;text-align:left}\
td.value,th.value{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}small{color:#777}\
.reached{color:#067647}.missed{color:#b42318;font-weight:600}svg{max-width:100%;height:auto}";

impl Report {
    /// Writes every file to `directory`, and sums up for whoever asked.
    ///
    /// # Errors
    /// See [`Report::write`].
    pub fn conclude(self, directory: &Path) -> Result<Outcome> {
        let report = self.write(directory)?;
        let verdicts = self.targets.iter().map(|target| target.sentence(&self.records)).collect();
        Ok(Outcome { report, tables: self.tables, verdicts, notes: self.notes })
    }

    /// Writes every file to `directory`, which is created, and returns the report's path.
    pub fn write(&self, directory: &Path) -> Result<PathBuf> {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot create directory {}", directory.display()))?;
        let save = |name: &str, content: &str| {
            let path = directory.join(name);
            std::fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
            Ok::<_, anyhow::Error>(path)
        };
        let drawn = self.draw()?;
        save("results.json", &(serde_json::to_string_pretty(&self.records)? + "\n"))?;
        save("results.csv", &to_csv(&self.records)?)?;
        let environment: BTreeMap<_, _> = self.environment.rows().into_iter().collect();
        save("environment.json", &(serde_json::to_string_pretty(&environment)? + "\n"))?;
        for (figure, svg) in self.figures.iter().zip(&drawn) {
            save(&format!("{}.svg", figure.name()), svg)?;
        }
        save("report.html", &self.page(&drawn).into_string())
    }

    fn draw(&self) -> Result<Vec<String>> {
        self.figures.iter().map(Figure::to_svg).collect()
    }

    fn page(&self, drawn: &[String]) -> Markup {
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (self.title) }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    h1 { (self.title) }
                    @for table in &self.tables { (table) }
                    @if !self.targets.is_empty() { (self.target_table()) }
                    @for svg in drawn { figure { (PreEscaped(svg)) } }
                    (self.record_table())
                    @if !self.notes.is_empty() {
                        h2 { "Notes" }
                        ul { @for note in &self.notes { li { (note) } } }
                    }
                    (self.machine_table())
                }
            }
        }
    }

    fn target_table(&self) -> Markup {
        html! {
            h2 { "What must be reached" }
            table {
                tr { th { "what" } th { "must be" } th { "measured" } th { "verdict" } }
                @for target in &self.targets {
                    @let verdict = target.judge(&self.records);
                    tr {
                        td { (target.claim) }
                        td { (target.limit_text()) }
                        td.value { @if let Some(record) = target.find(&self.records) { (record) } }
                        td class=(class_of(verdict)) { (verdict) }
                    }
                }
            }
        }
    }

    /// One row for each metric, one column for each system, so that neighbours can be compared.
    fn record_table(&self) -> Markup {
        let systems = distinct(self.records.iter().map(|record| &record.system));
        html! {
            h2 { "What was measured" }
            table {
                tr {
                    th { "metric" } th { "application" } th { "scenario" }
                    @for system in &systems { th { (system) } }
                }
                @for row in rows(&self.records) {
                    tr {
                        td { (row[0].metric) } td { (row[0].application) } td { (row[0].scenario) }
                        @for system in &systems {
                            @let record = row.iter().find(|record| record.system == **system);
                            td.value { @if let Some(record) = record { (cell(record)) } }
                        }
                    }
                }
            }
        }
    }

    fn machine_table(&self) -> Markup {
        html! {
            h2 { "Where" }
            table { @for (name, value) in self.environment.rows() { tr { th { (name) } td { (value) } } } }
        }
    }
}

fn cell(record: &Record) -> Markup {
    html! {
        (record)
        @if let Some(deviation) = record.deviation {
            " " small {
                "\u{b1} " (format!("{:.1}", 100.0 * deviation / record.value)) "% of " (record.repetitions)
            }
        }
    }
}

fn class_of(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Reached => "reached",
        Verdict::Missed | Verdict::TooNoisy | Verdict::NotMeasured => "missed",
    }
}

/// The records in groups that differ in their system only, in order of first appearance; ratios of two
/// systems join the group of what they compare.
fn rows(records: &[Record]) -> Vec<Vec<&Record>> {
    let mut rows: Vec<Vec<&Record>> = Vec::new();
    for record in records {
        let same = |row: &&mut Vec<&Record>| {
            let Record { metric, application, scenario, .. } = row[0];
            (metric, application, scenario) == (&record.metric, &record.application, &record.scenario)
        };
        match rows.iter_mut().find(same) {
            Some(row) => row.push(record),
            None => rows.push(vec![record]),
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Bars, Scale};
    use crate::record::{Key, Samples, Unit};
    use crate::target::Limit;

    fn report() -> Report {
        let mut samples = Samples::new("boot");
        for (system, value) in [("nom", 1e-3), ("nom", 2e-3), ("linux", 1.0)] {
            let (application, scenario, metric) = ("hello", "tcg".into(), "exit_time".into());
            samples.push(
                Key { system: system.into(), application, scenario, metric, unit: Unit::Seconds },
                value,
            );
        }
        let mut records = samples.records();
        records.push(records[0].ratio_to(&records[1]).unwrap());
        Report {
            title: "nom <boot>".into(),
            environment: Environment {
                date: "2026-01-01T00:00:00Z".into(),
                command: "nom bench boot & more".into(),
                processor: "CPU".into(),
                processors: 2,
                memory_bytes: 1 << 30,
                host_kernel: "6.1".into(),
                qemu: "QEMU 7.2".into(),
                accelerator: "tcg".into(),
            },
            tables: vec![Table::new("What it earned", ["system", "profit"]).row(["nom & co", "$1.00"])],
            targets: vec![Target {
                claim: "at most 1/20 of Linux's time",
                system: "nom/linux",
                of: None,
                metric: "exit_time",
                unit: Unit::Ratio,
                limit: Limit::AtMost(0.05),
            }],
            figures: vec![Figure::Bars(Bars {
                name: "exit".into(),
                title: "Exit".into(),
                axis: "s".into(),
                scale: Scale::Logarithmic,
                series: vec!["nom".into()],
                groups: vec![("exit".into(), vec![Some(1e-3)])],
            })],
            notes: vec!["a < b".into()],
            records,
        }
    }

    /// The page as XML: HTML's void elements, which are all in the head, are the only difference.
    fn parse(page: &str) -> String {
        let mut xml = page.to_owned();
        for void in [
            r#"<meta charset="utf-8">"#,
            r#"<meta name="viewport" content="width=device-width, initial-scale=1">"#,
        ] {
            assert!(xml.contains(void));
            xml = xml.replace(void, "");
        }
        let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
        let document = roxmltree::Document::parse_with_options(&xml, options).expect("well-formed page");
        for node in document.descendants() {
            let fetched = node.attributes().find(|attribute| ["src", "href"].contains(&attribute.name()));
            assert_eq!(fetched, None, "the page needs another file");
            assert!(!["script", "link", "img", "iframe"].contains(&node.tag_name().name()));
        }
        let texts = document.descendants().filter_map(|node| node.text());
        texts.collect::<Vec<_>>().join("|")
    }

    #[test]
    fn page_is_well_formed_and_needs_no_other_file() {
        let report = report();
        let text = parse(&report.page(&report.draw().unwrap()).into_string());
        for expected in [
            "nom <boot>",
            "nom bench boot & more",
            "What it earned",
            "nom & co",
            "a < b",
            "reached",
            "at most 0.0500",
            "1.50 ms",
            "QEMU 7.2",
        ] {
            assert!(text.contains(expected), "{expected:?} is not in {text:?}");
        }
    }

    #[test]
    fn systems_share_a_row_with_their_ratio() {
        let report = report();
        let rows = rows(&report.records);
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].len(), 3);
    }

    #[test]
    fn every_file_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = report().write(&directory.path().join("deep/er")).unwrap();
        let out = path.parent().unwrap();
        for name in ["results.json", "results.csv", "exit.svg", "report.html"] {
            assert!(out.join(name).metadata().unwrap().len() > 0, "{name}");
        }
        let json = std::fs::read_to_string(out.join("results.json")).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Record>>(&json).unwrap(), report().records);
    }

    #[test]
    fn directory_that_cannot_be_made_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = report().write(&file.path().join("out")).unwrap_err();
        assert!(error.to_string().contains(file.path().to_str().unwrap()));
    }
}
