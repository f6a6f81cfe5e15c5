//! What a machine is started from, kept so that it can be started again without a build.

use anyhow::{Context, Result};
use nom_vmm::{Forward, MachineConfig};
use serde::{Deserialize, Serialize};
use std::path::Path;

const FILE: &str = "launch.json";

/// All that a start needs, but for the image, which lies beside it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Launch {
    /// The machine.
    pub config: MachineConfig,
    /// Ports of this computer that lead to it by way of its supervisor, where QEMU does not do that.
    pub published: Vec<Forward>,
}

impl Launch {
    /// Writes it to the machine's directory.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn save(&self, directory: &Path) -> Result<()> {
        let path = directory.join(FILE);
        let text = serde_json::to_vec_pretty(self)?;
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Reads it from the machine's directory.
    ///
    /// # Errors
    /// If it is not there: an older nom had started the machine.
    pub fn load(directory: &Path) -> Result<Launch> {
        let path = directory.join(FILE);
        let text = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("{} is damaged", path.display()))
    }
}
