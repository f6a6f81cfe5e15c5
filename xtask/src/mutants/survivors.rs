//! Mutants that no test notices: the list, which may only shrink.

use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::Path;

/// The list, from the project's root.
const LIST: &str = "tests/mutants/survivors.toml";

/// Who survives.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Survivors {
    /// Names of those made by hand.
    by_hand: BTreeSet<String>,
    /// Generated ones: `FILE: what is replaced`.
    generated: BTreeSet<String>,
    /// Files of which not all generated mutants have been tried yet: who survives there is only told.
    unexamined: BTreeSet<String>,
}

/// What a run of generated mutants says about the list.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// Survivors that are not on it.
    pub new: Vec<String>,
    /// Entries that are noticed now.
    pub stale: Vec<String>,
    /// Survivors in files that are not examined yet.
    pub told: Vec<String>,
}

impl Survivors {
    /// Reads the list.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(root: &Path) -> Result<Survivors> {
        let text = std::fs::read_to_string(root.join(LIST)).with_context(|| format!("cannot read {LIST}"))?;
        toml::from_str(&text).context(LIST)
    }

    /// Whether a mutant made by hand is known to survive.
    pub fn is_by_hand(&self, name: &str) -> bool {
        self.by_hand.contains(name)
    }

    /// Compares it with what a run found, named as cargo-mutants does. Entries can be stale only if the run
    /// was `complete` for the files that it touched: one description may stand for several places.
    pub fn compare(&self, missed: &[String], caught: &[String], complete: bool) -> Differences {
        let names = |all: &[String]| all.iter().map(|one| name(one)).collect::<BTreeSet<_>>();
        let (missed, caught) = (names(missed), names(caught));
        let is_unexamined = |name: &&String| self.unexamined.iter().any(|file| name.starts_with(file));
        let unknown: Vec<&String> = missed.iter().filter(|name| !self.generated.contains(*name)).collect();
        let (told, new): (Vec<&String>, Vec<&String>) = unknown.into_iter().partition(is_unexamined);
        let stale = self.generated.iter().filter(|name| complete && caught.contains(*name));
        Differences {
            new: new.into_iter().cloned().collect(),
            stale: stale.filter(|name| !missed.contains(*name)).cloned().collect(),
            told: told.into_iter().cloned().collect(),
        }
    }
}

/// `FILE:LINE:COLUMN: what` without the place, which moves.
fn name(line: &str) -> String {
    let mut parts = line.splitn(4, ':');
    match [parts.next(), parts.next(), parts.next(), parts.next()] {
        [Some(file), Some(_), Some(_), Some(what)] => format!("{file}:{what}"),
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_held_against_what_survives() {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let list = Survivors {
            by_hand: BTreeSet::new(),
            generated: set(&["a.rs: replace < with <=", "a.rs: delete !"]),
            unexamined: set(&["b.rs"]),
        };
        let missed = ["a.rs:1:2: replace < with <=", "a.rs:7:2: replace f with ()", "b.rs:1:1: delete -"];
        let (missed, caught) = (missed.map(str::to_owned), ["a.rs:9:9: delete !".to_owned()]);
        let found = list.compare(&missed, &caught, true);
        assert_eq!(found.new, ["a.rs: replace f with ()"]);
        assert_eq!((found.stale, found.told), (vec!["a.rs: delete !".into()], vec!["b.rs: delete -".into()]));
        assert_eq!(list.compare(&[], &caught, false), Differences::default());
    }
}
