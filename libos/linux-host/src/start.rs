//! What Linux tells the program at its start, and how the program ends.

use std::panic::{UnwindSafe, catch_unwind};
use std::sync::LazyLock;

pub use nom_port::termination::Termination;

/// Status of a program that panicked.
pub(crate) const PANICKED: u8 = 101;

static ARGUMENTS: LazyLock<Vec<String>> =
    LazyLock::new(|| std::env::args_os().skip(1).map(|text| text.to_string_lossy().into_owned()).collect());

static ENVIRONMENT: LazyLock<Vec<(String, String)>> = LazyLock::new(|| {
    let entries = std::env::vars_os();
    entries
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .collect()
});

/// The arguments, in order; the program's name is not one of them.
pub fn args() -> impl Iterator<Item = &'static str> {
    ARGUMENTS.iter().map(String::as_str)
}

/// The environment, as names and values.
pub fn vars() -> impl Iterator<Item = (&'static str, &'static str)> {
    ENVIRONMENT.iter().map(|(name, value)| (name.as_str(), value.as_str()))
}

/// The value of an environment variable.
pub fn var(name: &str) -> Option<&'static str> {
    vars().find_map(|(key, value)| (key == name).then_some(value))
}

static ARCHIVE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let Some(path) = var("files") else { return Vec::new() };
    std::fs::read(path).unwrap_or_else(|error| panic!("the archive of files {path}: {error}"))
});

/// The archive of the files that go along with the program, which the environment's `files` names; nothing
/// if it names none.
///
/// # Panics
/// If it cannot be read.
pub fn archive() -> &'static [u8] {
    &ARCHIVE
}

/// Runs the program's main function and ends the program as [`crate::main!`] says.
pub fn run<T: Termination>(main: impl FnOnce() -> T + UnwindSafe) -> ! {
    let status = catch_unwind(|| main().status(crate::console::print)).unwrap_or(PANICKED);
    crate::exit(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_found_by_its_whole_name() {
        let path = std::env::var("PATH").expect("tests have a path");
        assert_eq!(var("PATH"), Some(path.as_str()));
        assert_eq!(var("PAT"), None);
    }
}
