//! Every input of the corpora, through the functions that the fuzzers call.

use nom_fuzz_targets::{TARGETS, run};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("it can be listed").path()).collect();
    files.sort();
    files
}

#[test]
fn no_input_of_the_corpora_finds_anything() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut failed = Vec::new();
    for (name, _) in TARGETS {
        let inputs = files(&corpora.join(name));
        assert!(inputs.len() >= 5, "{name}: only {} inputs", inputs.len());
        for path in inputs {
            let data = std::fs::read(&path).expect("it can be read");
            if catch_unwind(AssertUnwindSafe(|| run(name, &data))).is_err() {
                failed.push(path);
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
    let directories = files(&corpora);
    assert_eq!(directories.len(), TARGETS.len(), "a corpus without a target: {directories:?}");
}

/// What no corpus has: inputs that end too early, and long ones of one byte.
#[test]
fn poor_inputs_find_nothing() {
    for (name, _) in TARGETS {
        for byte in [0, 1, 0x7f, 0xff] {
            for len in [0, 1, 2, 3, 17, 4096] {
                run(name, &vec![byte; len]);
            }
        }
    }
}
