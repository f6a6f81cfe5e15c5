//! `nom build` and `nom bench`.

use crate::arguments::{Bench, Build};
use crate::attend::watch_signals;
use crate::demo::interruptible;
use anyhow::{Context, Result, bail};
use nom_bench::{Outcome, boot, demo, serve};
use nom_build::Project;
use nom_image::{Packing, Symbols};
use std::path::PathBuf;
use std::time::Duration;

/// `nom build`.
///
/// # Errors
/// If there is no such application, it does not build, or the image cannot be written.
pub fn build(options: &Build) -> Result<u8> {
    let project = Project::find()?;
    let manifest = project.manifest_path(&options.app)?;
    let symbols = if options.no_symbols { Symbols::Omit } else { Symbols::Keep };
    let built = project.image(&manifest, None, Packing { symbols, ..Packing::SMALL })?;
    let output = match &options.output {
        Some(output) => output.clone(),
        None => PathBuf::from(format!("{}.img", built.manifest.applications[0].name)),
    };
    std::fs::write(&output, &built.image.elf)
        .with_context(|| format!("cannot write {}", output.display()))?;
    if options.json {
        let report = serde_json::json!({ "image": output, "report": built.image.report });
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        println!("{}: {} bytes", output.display(), built.image.elf.len());
    }
    Ok(0)
}

/// `nom bench`.
///
/// # Errors
/// If there is no such bench, or it fails.
pub fn bench(options: &Bench) -> Result<u8> {
    let out = || options.out.clone().unwrap_or_else(|| PathBuf::from(format!("bench-{}", options.name)));
    let outcome = match options.name.as_str() {
        "boot" => boot::run(&boot::Options {
            out: out(),
            project: Project::find()?,
            repetitions: options.repetitions.unwrap_or(10),
        })?,
        "serve" => serve::run(&serve::Options {
            out: out(),
            project: Project::find()?,
            repetitions: options.repetitions.unwrap_or(3),
            duration: Duration::from_secs(options.seconds),
            services: options.only.clone(),
        })?,
        "table" => return table(options),
        name => bail!("no bench `{name}`: there are boot, serve and table"),
    };
    print_outcome(&outcome);
    Ok(0)
}

/// `nom bench table`.
fn table(options: &Bench) -> Result<u8> {
    let out = options.out.clone().unwrap_or_else(|| PathBuf::from("responses.toml"));
    let made = demo::table(&demo::TableOptions {
        project: Project::find()?,
        application: options.application.clone(),
        longest_us: options.longest,
        phase: Duration::from_secs(options.seconds),
        out: out.clone(),
        signal: watch_signals()?,
    });
    interruptible(made.map(|notes| {
        notes.iter().for_each(|note| eprintln!("note: {note}"));
        println!("{}", out.display());
    }))
}

/// Says what a bench found.
pub fn print_outcome(outcome: &Outcome) {
    for note in &outcome.notes {
        eprintln!("note: {note}");
    }
    for table in &outcome.tables {
        println!("{table}");
    }
    for verdict in &outcome.verdicts {
        println!("{verdict}");
    }
    println!("{}", outcome.report.display());
}
