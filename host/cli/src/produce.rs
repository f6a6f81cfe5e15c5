//! `nom build`.

use crate::arguments::Build;
use crate::linux;
use crate::mounts::given_files;
use crate::replace::replace;
use anyhow::Result;
use nom_bench::Outcome;
use nom_build::Project;
use nom_image::{Packing, Symbols};
use std::path::PathBuf;

/// `nom build`.
///
/// # Errors
/// If there is no such application, it does not build, or the image cannot be written.
pub fn build(options: &Build) -> Result<u8> {
    let project = Project::find()?;
    let symbols = if options.no_symbols { Symbols::Omit } else { Symbols::Keep };
    let sources = (&options.linux, &options.contract);
    let bundle = match linux::subject(&project, options.app.as_deref(), &options.arguments, sources)? {
        Some(bundle) => bundle,
        None => {
            let arguments = (!options.arguments.is_empty()).then_some(options.arguments.as_slice());
            let manifest = project.manifest_path(options.linux.label(&options.app))?;
            options.contract.bundle(&manifest, arguments)?
        }
    };
    let bundle = given_files(bundle, &options.files)?;
    let built = project.pack(bundle, Packing { symbols, ..Packing::SMALL })?;
    let output = match &options.output {
        Some(output) => output.clone(),
        None => PathBuf::from(format!("{}.img", built.manifest.applications[0].name)),
    };
    replace(&output, &built.image.elf)?;
    if options.json {
        let report = serde_json::json!({ "image": output, "report": built.image.report });
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        println!("{}: {} bytes", output.display(), built.image.elf.len());
    }
    Ok(0)
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
