//! What the tests of the page need: Chromium and Python from the system, Playwright in a directory apart.

use anyhow::{Context, Result, ensure};
use nom_build::Project;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Why the tests cannot run, where [`set_up`] may not install anything.
pub const MISSING: &str =
    "no Chromium or no Python with venv: as root, apt-get install chromium python3-venv";

/// Debian's packages, without what they only recommend.
const PACKAGES: [&str; 2] = ["chromium", "python3-venv"];

/// Installs what is missing, as root; returns the Python that has Playwright. None without root.
///
/// # Errors
/// If something cannot be installed.
pub fn set_up(project: &Project) -> Result<Option<PathBuf>> {
    if !is_there() {
        if !is_root() || !runs("apt-get", &["--version"]) {
            return Ok(None);
        }
        eprintln!("nom: apt-get install {}", PACKAGES.join(" "));
        apt_get(&["update"])?;
        apt_get(&[&["install", "-y", "--no-install-recommends"][..], &PACKAGES].concat())?;
        ensure!(is_there(), "{}, even now", MISSING);
    }
    playwright(&project.root().join("tests/browser/requirements.txt"), &project.target().join("browser"))
        .map(Some)
}

fn is_there() -> bool {
    runs("chromium", &["--version"]) && runs("python3", &["-c", "import ensurepip, venv"])
}

/// Whether this process may install packages.
fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0")
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

fn apt_get<S: AsRef<OsStr>>(arguments: &[S]) -> Result<()> {
    run(Command::new("apt-get").arg("-qq").args(arguments).env("DEBIAN_FRONTEND", "noninteractive"))
}

/// Whether a program can be run at all.
fn runs(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
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
        assert!(!runs("no-such-program", &[]) && runs("true", &[]));
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
