//! `nom new`: an application of one's own, outside of the checkout; and its tests.

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use nom_build::Project;
use std::fs;
use std::path::{Path, PathBuf};

/// `nom new`.
#[derive(Debug, Args)]
#[command(after_help = "The last part of DIR is the name of package, program and application.
docs/write-your-own.md goes on from there.

Examples:
  nom new hello
  nom new --template service ../kv; nom run ../kv; nom test ../kv")]
pub struct New {
    /// Directory to make, outside of nom's checkout.
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// What to begin with.
    #[arg(long, value_enum, default_value_t = Template::Hello)]
    pub template: Template,
}

/// What an application begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Template {
    /// A program that prints.
    Hello,
    /// A server on the program's own network stack, with a test in the simulator.
    Service,
}

macro_rules! files {
    ($template:literal: $($path:literal)+) => {
        &[
            // Not called `Cargo.toml` there, where it would be a package of this workspace.
            ("Cargo.toml", include_str!(concat!("../templates/", $template, "/package.toml"))),
            $(($path, include_str!(concat!("../templates/", $template, "/", $path)))),+
        ]
    };
}

impl Template {
    /// Paths and texts of its files.
    fn files(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Template::Hello => {
                files!("hello": "app.toml" "src/lib.rs" "src/main.rs" "tests/greeting.rs")
            }
            Template::Service => {
                files!("service": "app.toml" "src/lib.rs" "src/main.rs" "tests/simulated.rs")
            }
        }
    }
}

/// What templates call the package, as cargo and as Rust write it, and the checkout.
const NAME: &str = "application-name";
const NAME_IN_RUST: &str = "application_name";
const CHECKOUT: &str = "/path/of/nom";

/// Words that are no names of packages: Rust's, and packages that every application is made of.
const RESERVED: &str = "\
     abstract alloc as async await become box break const continue core crate do dyn else enum \
     extern false final fn for gen if impl in let loop macro match mod move mut nom-app nom-sim \
     override priv proc-macro pub ref return self static std struct super test trait true try type \
     typeof unsafe unsized use virtual where while yield";

/// Most bytes of a name, as manifests have it.
const NAME_MAX: usize = 31;

/// `nom new`.
///
/// # Errors
/// If the name is no package's, there is something already, or a file cannot be written; nothing is left
/// then.
pub fn new(options: &New) -> Result<u8> {
    let directory = std::path::absolute(&options.directory)?;
    make(&Project::find_checkout("`nom new`")?, &directory, options.template)?;
    let shown = options.directory.display();
    println!("{shown} is there. Go on with:");
    println!("  nom run {shown}           # on nom");
    println!("  nom run --host {shown}    # as a Linux process (as root, if it has a network)");
    println!("  nom test {shown}          # its tests");
    Ok(0)
}

fn make(project: &Project, directory: &Path, template: Template) -> Result<()> {
    let name = directory.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    check_name(name)?;
    if directory.starts_with(project.root()) {
        bail!("{}: inside of nom's checkout, expected a directory elsewhere", directory.display());
    }
    fs::create_dir(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    fill(project, directory, name, template).inspect_err(|_| {
        // What could not be written whole is not left in parts.
        let _ = fs::remove_dir_all(directory);
    })
}

fn fill(project: &Project, directory: &Path, name: &str, template: Template) -> Result<()> {
    let checkout = project.root().to_str().context("the checkout's path is not text in UTF-8")?;
    for (path, text) in template.files() {
        let path = directory.join(path);
        let text = text.replace(NAME, name).replace(NAME_IN_RUST, &name.replace('-', "_"));
        let parent = path.parent().expect("a file is in a directory");
        fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
        fs::write(&path, text.replace(CHECKOUT, checkout))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    fs::write(directory.join(".gitignore"), "/target/\n").context("cannot write .gitignore")?;
    // The versions that the checkout was tested with; cargo leaves out what is not needed.
    let lock = |directory: &Path| directory.join("Cargo.lock");
    fs::copy(lock(project.root()), lock(directory)).context("cannot copy Cargo.lock")?;
    Ok(())
}

fn check_name(name: &str) -> Result<()> {
    let is_name = name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_');
    if !is_name || name.len() > NAME_MAX {
        bail!("`{name}`: expected 1 to {NAME_MAX} of a-z, 0-9, `-` and `_`, a letter first");
    }
    if RESERVED.split(' ').any(|word| word == name) {
        bail!("`{name}`: a reserved word, expected another name");
    }
    Ok(())
}

/// Whether the words behind `nom test` name a package of one's own rather than suites, which may be called as
/// directories of the checkout are.
pub fn is_own(arguments: &[String]) -> bool {
    let first = arguments.first().map(Path::new).filter(|first| first.join("Cargo.toml").is_file());
    let Some(Ok(directory)) = first.map(Path::canonicalize) else { return false };
    !Project::find().is_ok_and(|project| directory.starts_with(project.root()))
}

/// `nom test DIR`: runs the tests of the package there; what follows goes to `cargo test`.
///
/// # Errors
/// If the package cannot be read, or cargo not be run.
pub fn test(arguments: &[String]) -> Result<u8> {
    let (directory, rest) = arguments.split_first().context("expected a directory")?;
    let passed = Project::find_checkout("`nom test`")?.test_own(Path::new(directory), rest)?;
    Ok(if passed { 0 } else { 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_name_of_a_package_is_refused() {
        for name in ["kv", "a", "my-app_2", &"x".repeat(31)] {
            check_name(name).expect(name);
        }
        for name in ["", "2kv", "-kv", "Kv", "k v", "k.v", "ümlaut", &"x".repeat(32), "match", "nom-app"] {
            let error = check_name(name).expect_err(name).to_string();
            assert!(error.contains(&format!("`{name}`")) && error.contains("expected"), "{error}");
        }
    }

    #[test]
    fn a_suite_is_no_package_of_ones_own() {
        let project = Project::find().expect("a checkout");
        let own = tempfile::tempdir().expect("a temporary directory");
        fs::write(own.path().join("Cargo.toml"), "").expect("written");
        let is_own = |path: &Path| is_own(&[path.display().to_string()]);
        assert!(is_own(own.path()) && !is_own(&own.path().join("absent")));
        assert!(!is_own(&project.root().join("sim")), "`nom test sim` in the checkout is a suite");
    }

    #[test]
    fn what_is_there_stays_as_it_is() {
        let project = Project::find().expect("a checkout");
        let root = tempfile::tempdir().expect("a temporary directory");
        let directory = root.path().join("kv");
        make(&project, &directory, Template::Service).expect("made");
        let read = |path: &str| fs::read_to_string(directory.join(path)).expect(path);
        assert!(read("Cargo.toml").contains(&format!("path = \"{}/sim\"", project.root().display())));
        assert!(read("src/main.rs").contains("use kv::{Lines"));
        fs::write(directory.join("src/main.rs"), "mine").expect("written");
        let error = format!("{:#}", make(&project, &directory, Template::Hello).expect_err("refused"));
        assert!(error.contains("kv") && error.contains("exists"), "{error}");
        assert_eq!(read("src/main.rs"), "mine");
        for place in ["absent/kv".into(), project.root().join("kv")] {
            make(&project, &root.path().join(place), Template::Hello).expect_err("refused");
        }
        assert!(!project.root().join("kv").exists());
    }
}
