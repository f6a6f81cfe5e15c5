//! A machine's power button, by QEMU's monitor.

use crate::command::file;
use crate::qmp::Monitor;
use anyhow::Result;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// How long until it is pressed again: a guest that boots does not notice the first time, and nobody minds a
/// second.
const AGAIN: Duration = Duration::from_millis(100);
/// How long QEMU may take to answer before it is asked anew.
const PATIENCE: Duration = Duration::from_secs(1);

/// Presses the power button again and again until it is dropped.
#[derive(Debug)]
pub(crate) struct Finger(Arc<AtomicBool>);

impl Finger {
    /// Begins with the machine in `directory`; whoever waits for its end need not wait for this.
    pub fn press(directory: &Path) -> Finger {
        let lifted = Arc::new(AtomicBool::new(false));
        let (directory, is_lifted) = (directory.to_owned(), lifted.clone());
        std::thread::spawn(move || press_until_lifted(directory, &is_lifted));
        Finger(lifted)
    }
}

impl Drop for Finger {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn press_until_lifted(directory: PathBuf, is_lifted: &AtomicBool) {
    while !is_lifted.load(Relaxed) {
        // QEMU is not there yet, or gone before its answer is out, or another client holds its monitor: only
        // the machine's end counts.
        let _ = press_once(&directory);
        std::thread::sleep(AGAIN);
    }
}

fn press_once(directory: &Path) -> Result<()> {
    let mut monitor = Monitor::connect_within(PATIENCE, directory, file::MONITOR)?;
    let status = monitor.execute("query-status", json!({}))?;
    // A guest that stands still, as before or in a debugger, cannot hear a button.
    let command = if status["running"] == json!(true) { "system_powerdown" } else { "quit" };
    monitor.execute(command, json!({})).map(drop)
}
