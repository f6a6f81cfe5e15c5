//! The energy of this computer, as its processor packages count it (RAPL: Linux's
//! Documentation/power/powercap).

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// Where Linux shows the counters.
pub const POWERCAP: &str = "/sys/class/powercap";
/// Name of a processor package's zone, before its number: a second colon would be a part of the package.
const PACKAGE: &str = "intel-rapl:";

/// Counters of all packages.
#[derive(Debug)]
pub struct Energy {
    packages: Vec<Package>,
}

#[derive(Debug)]
struct Package {
    counter: PathBuf,
    /// The counter begins anew behind this.
    range_uj: u64,
    last_uj: u64,
    sum_uj: u64,
}

impl Energy {
    /// The counters below `root`, which is [`POWERCAP`].
    ///
    /// # Errors
    /// Why this computer does not tell.
    pub fn open(root: &Path) -> Result<Energy> {
        let entries = std::fs::read_dir(root).with_context(|| {
            format!("{}: this computer does not count its energy (RAPL), or hides that", root.display())
        })?;
        let is_package = |name: &str| name.strip_prefix(PACKAGE).is_some_and(|rest| !rest.contains(':'));
        let mut packages = Vec::new();
        for entry in entries.flatten() {
            if entry.file_name().to_str().is_some_and(is_package) {
                packages.push(Package::open(&entry.path())?);
            }
        }
        if packages.is_empty() {
            bail!("{}: it has no {PACKAGE}N: this computer does not count its energy (RAPL)", root.display());
        }
        Ok(Energy { packages })
    }

    /// Microjoules since this was opened.
    pub fn read(&mut self) -> u64 {
        self.packages.iter_mut().map(Package::read).sum()
    }
}

impl Package {
    fn open(directory: &Path) -> Result<Package> {
        let counter = directory.join("energy_uj");
        let (last_uj, range_uj) = (number(&counter)?, number(&directory.join("max_energy_range_uj"))?);
        Ok(Package { counter, range_uj, last_uj, sum_uj: 0 })
    }

    fn read(&mut self) -> u64 {
        // A counter that cannot be read now has not moved.
        let now_uj = number(&self.counter).unwrap_or(self.last_uj);
        let begins_anew = now_uj < self.last_uj;
        let passed = if begins_anew {
            self.range_uj.saturating_sub(self.last_uj) + now_uj
        } else {
            now_uj - self.last_uj
        };
        self.last_uj = now_uj;
        self.sum_uj += passed;
        self.sum_uj
    }
}

fn number(path: &Path) -> Result<u64> {
    let named = || format!("cannot read {} (only root may, on most computers)", path.display());
    let text = std::fs::read_to_string(path).with_context(named)?;
    text.trim().parse().with_context(|| format!("{} is `{}`, expected a number", path.display(), text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(root: &Path, zone: &str, energy: &str) {
        let zone = root.join(zone);
        std::fs::create_dir_all(&zone).expect("made");
        std::fs::write(zone.join("energy_uj"), energy).expect("written");
        std::fs::write(zone.join("max_energy_range_uj"), "1000\n").expect("written");
    }

    #[test]
    fn packages_are_summed_and_counters_begin_anew() {
        let root = tempfile::tempdir().expect("a directory");
        for (zone, energy) in [("intel-rapl:0", "900\n"), ("intel-rapl:1", "10\n"), ("intel-rapl:0:0", "7\n")]
        {
            set(root.path(), zone, energy);
        }
        let mut energy = Energy::open(root.path()).expect("two packages");
        assert_eq!(energy.read(), 0);
        set(root.path(), "intel-rapl:0", "950\n");
        assert_eq!(energy.read(), 50);
        set(root.path(), "intel-rapl:0", "20\n");
        set(root.path(), "intel-rapl:1", "15\n");
        assert_eq!(energy.read(), 50 + 70 + 5);
        set(root.path(), "intel-rapl:1", "nonsense");
        assert_eq!(energy.read(), 125, "what cannot be read has not moved");
    }

    #[test]
    fn a_computer_that_does_not_tell_says_why() {
        let root = tempfile::tempdir().expect("a directory");
        let refusal = |path: &Path| format!("{:#}", Energy::open(path).expect_err("nothing there"));
        assert!(refusal(root.path()).contains("RAPL"));
        assert!(refusal(&root.path().join("none")).contains("does not count its energy"));
        set(root.path(), "intel-rapl:0", "secret");
        assert!(refusal(root.path()).contains("energy_uj is `secret`, expected a number"));
    }
}
