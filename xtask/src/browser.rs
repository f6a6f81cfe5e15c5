//! What the tests of the page need: Chromium and Python from the system, Playwright in a directory apart.

use anyhow::{Context, Result, ensure};
use nom_build::Project;
use nom_build::debian::{self, Tool};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the system brings.
pub const TOOLS: [Tool; 2] = [
    Tool::new("chromium", &["chromium", "--version"]),
    Tool::new("python3-venv", &["python3", "-c", "import ensurepip, venv"]),
];

/// Installs what is missing, as root; returns the Python that has Playwright.
///
/// # Errors
/// If something cannot be installed.
pub fn set_up(project: &Project) -> Result<PathBuf> {
    debian::set_up(&TOOLS)?;
    playwright(&project.root().join("tests/browser/requirements.txt"), &project.target().join("browser"))
}

/// The Python of an environment with what is required; it is made anew when that changes.
fn playwright(requirements: &Path, environment: &Path) -> Result<PathBuf> {
    let wanted = std::fs::read_to_string(requirements)
        .with_context(|| format!("cannot read {}", requirements.display()))?;
    let python = environment.join("bin/python");
    // Written last: an environment that was interrupted has none.
    let made = environment.join("requirements.txt");
    if std::fs::read_to_string(&made).is_ok_and(|made| made == wanted) {
        return Ok(python);
    }
    eprintln!("nom: installing {}", wanted.split_whitespace().collect::<Vec<_>>().join(" "));
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(environment))?;
    run(Command::new(&python).args(["-m", "pip", "install", "--quiet", "--requirement"]).arg(requirements))?;
    std::fs::write(&made, wanted).with_context(|| format!("cannot write {}", made.display()))?;
    Ok(python)
}

/// Runs a command whose output is of no interest unless it fails.
fn run(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {command:?}"))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed: {}", complaint.trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_fails_is_named_with_its_reason() {
        let error = run(Command::new("sh").args(["-c", "echo no room >&2; exit 1"])).expect_err("it fails");
        assert!(error.to_string().contains("no room"), "{error}");
    }

    #[test]
    fn an_environment_that_is_up_to_date_is_kept() {
        let root = std::env::temp_dir().join(format!("nom-browser-{}", std::process::id()));
        std::fs::create_dir_all(&root).expect("made");
        let requirements = root.join("wanted.txt");
        for file in [&requirements, &root.join("requirements.txt")] {
            std::fs::write(file, "playwright==1\n").expect("written");
        }
        let python = playwright(&requirements, &root).expect("nothing to do");
        assert_eq!(python, root.join("bin/python"));
        assert!(!python.exists(), "nothing was installed");
        std::fs::remove_dir_all(&root).expect("removed");
    }
}
