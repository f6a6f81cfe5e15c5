//! A release on a computer that has neither the checkout nor a compiler.

use nom_build::Project;
use nom_package::{Made, Options, Programs};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a server may take until it answers.
const PATIENCE: Duration = Duration::from_secs(60);
/// All that the command may find on its search path.
const TOOLS: [&str; 2] = ["qemu-system-x86_64", "setpriv"];
/// Hides the checkout, cargo and the compilers, then becomes what follows.
const HIDE: &str = r#"for hidden in $0; do mount -t tmpfs tmpfs "$hidden" || exit 1; done; exec "$@""#;

/// A release that was made and unpacked once.
struct Installed {
    made: Made,
    again: Made,
    directory: TempDir,
}

static INSTALLED: LazyLock<Installed> = LazyLock::new(|| {
    let project = Project::find().expect("a checkout");
    let cargo =
        Command::new("cargo").current_dir(project.root()).args(["build", "-q", "-p", "nom-cli"]).status();
    assert!(cargo.expect("cargo runs").success(), "the command builds");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let make = |out: &str| {
        let command = project.target().join("debug/nom");
        let options =
            Options { out: directory.path().join(out), time: 7, programs: Programs::AsTheyAre(command) };
        nom_package::package(&project, &options).unwrap_or_else(|error| panic!("{error:#}"))
    };
    let (made, again) = (make("one"), make("other"));
    let mut tar = Command::new("tar");
    let tar = tar.arg("-C").arg(directory.path()).arg("-xzf").arg(&made.archive).status();
    assert!(tar.expect("tar runs").success());
    let tools = directory.path().join("tools");
    std::fs::create_dir(&tools).expect("made");
    for tool in TOOLS {
        let program =
            nom_vmm::accelerator::find_program(tool).unwrap_or_else(|| panic!("{tool} is installed"));
        std::os::unix::fs::symlink(program, tools.join(tool)).expect("linked");
    }
    Installed { made, again, directory }
});

impl Installed {
    fn path(&self, below: &str) -> PathBuf {
        self.directory.path().join(below)
    }

    /// The release's root.
    fn release(&self) -> PathBuf {
        self.path(&format!("nom-{}", nom_package::VERSION))
    }

    /// `nom` of the release at `release`, with no environment but a search path and a home, and, as root,
    /// with no checkout and no compiler.
    fn nom(&self, release: &Path, arguments: &[&str]) -> Command {
        let command = release.join("bin/nom");
        let mut nom = match hidden() {
            Some(hidden) => {
                let mut unshare = Command::new("/usr/bin/unshare");
                unshare.args(["--mount", "--propagation", "private", "/bin/sh", "-c", HIDE, &hidden]);
                unshare.arg("/usr/bin/env").arg(format!("PATH={}", self.path("tools").display()));
                unshare.arg(command);
                unshare
            }
            None => Command::new(command),
        };
        nom.args(arguments).current_dir(self.directory.path()).stdin(Stdio::null()).env_clear();
        nom.env("PATH", "/usr/bin:/bin").env("HOME", self.path("home"));
        nom
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.nom(&self.release(), arguments).output().expect("it starts")
    }

    /// What `nom` prints, which ends well.
    fn prints(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "nom {arguments:?}: {complaint}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// What `nom` complains of, which fails.
    fn fails(&self, release: &Path, arguments: &[&str]) -> String {
        let output = self.nom(release, arguments).output().expect("it starts");
        assert_eq!(output.status.code(), Some(125), "nom {arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

/// Directories that a release must do without, separated by spaces; none if this process may not mount.
fn hidden() -> Option<String> {
    let may = Command::new("unshare").args(["--mount", "true"]).stderr(Stdio::null()).status();
    may.ok().filter(std::process::ExitStatus::success)?;
    let project = Project::find().expect("a checkout");
    let home = std::env::home_dir().expect("a home");
    let directories = [project.root().to_owned(), home.join(".cargo"), home.join(".rustup")];
    let there: Vec<String> =
        directories.iter().filter(|path| path.is_dir()).map(|path| path.display().to_string()).collect();
    Some(there.join(" "))
}

#[test]
fn a_release_runs_applications_without_a_compiler() {
    assert_eq!(INSTALLED.prints(&["run", "hello", "--", "out", "there"]), "Hello from nom! out there\n");
    let image = INSTALLED.path("hello.img");
    INSTALLED.prints(&["build", "hello", "-o", &image.display().to_string()]);
    let ready = INSTALLED.release().join("lib/nom/images/hello.img");
    assert_eq!(std::fs::read(image).expect("an image"), std::fs::read(ready).expect("the ready one"));
    assert!(INSTALLED.prints(&["--help"]).contains("nom run hello"));
    let checks = INSTALLED.prints(&["doctor"]);
    assert!(checks.contains("release") && checks.contains("as packed"), "{checks}");
    assert!(!checks.contains("rust"), "no compiler is missed: {checks}");
}

#[test]
fn a_release_serves_and_is_managed() {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port").local_addr().expect("its").port();
    let forward = format!("127.0.0.1:{port}:11211");
    let name = format!("release-{}", std::process::id());
    INSTALLED.prints(&["run", "-d", "--name", &name, "-p", &forward, "memcached"]);
    let answer = ask(port, b"set a 0 0 3\r\nyes\r\nget a\r\nquit\r\n");
    let listed = INSTALLED.prints(&["ps"]);
    let logs = INSTALLED.prints(&["logs", &name]);
    INSTALLED.prints(&["stop", &name]);
    assert_eq!(answer, "STORED\r\nVALUE a 0 3\r\nyes\r\nEND\r\n");
    assert!(listed.contains(&name) && listed.contains("memcached"), "{listed}");
    assert!(logs.contains("serves at"), "{logs}");
    assert!(!INSTALLED.prints(&["ps"]).contains(&name));
}

/// What the server answers until it closes the connection; QEMU takes connections before it serves.
fn ask(port: u16, request: &[u8]) -> String {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        let mut answer = String::new();
        let asked = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).and_then(|mut stream| {
            stream.write_all(request)?;
            stream.read_to_string(&mut answer)
        });
        if asked.is_ok() && !answer.is_empty() {
            return answer;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("port {port} does not answer");
}

#[test]
fn a_manifest_of_ones_own_runs_a_program_of_the_release() {
    let manifest = INSTALLED.path("own.toml");
    let text = "name = 'own'\nprogram = 'nom-hello'\narguments = ['by', 'my', 'own', 'manifest']\n\
                environment = { colour = 'blue' }\n";
    std::fs::write(&manifest, text).expect("written");
    let path = manifest.display().to_string();
    assert_eq!(INSTALLED.prints(&["run", &path]), "Hello from nom! by my own manifest\n");

    let contract = INSTALLED.path("contract.toml");
    let text = format!(
        "inherit = ['{}']\nname = 'earns'\nutility = {{ unit = 'Gbit', \
         term = [{{ function = 'value', alpha = 20 }}] }}\n",
        INSTALLED.release().join("lib/nom/apps/memcached/app.toml").display()
    );
    std::fs::write(&contract, text).expect("written");
    let image = INSTALLED.path("earns.img").display().to_string();
    INSTALLED.prints(&["build", &contract.display().to_string(), "-o", &image]);

    let other = INSTALLED.path("other.toml");
    std::fs::write(&other, "name = 'other'\nprogram = 'nom-helo'\n").expect("written");
    let said = INSTALLED.fails(&INSTALLED.release(), &["run", &other.display().to_string()]);
    assert!(said.contains("other.toml:2: program `nom-helo`") && said.contains("did you mean `nom-hello`?"));
    assert_eq!(said.matches("nom-hello").count(), 1, "said once: {said}");
}

#[test]
fn what_a_release_cannot_do_says_so() {
    for arguments in [&["test"][..], &["tidy"], &["fuzz", "tcp"], &["bench", "boot"], &["demo"], &["package"]]
    {
        let said = INSTALLED.fails(&INSTALLED.release(), arguments);
        assert!(said.contains("needs a checkout of nom") && said.contains(arguments[0]), "{said}");
    }
}

#[test]
fn a_damaged_release_names_the_file() {
    let release = INSTALLED.path("damaged");
    let copied = Command::new("cp").arg("-a").arg(INSTALLED.release()).arg(&release).status();
    assert!(copied.expect("cp runs").success());
    for file in ["programs/nom-hello", "kernel", "loader"] {
        let path = release.join("lib/nom").join(file);
        let before = std::fs::read(&path).expect("read");
        let mut damaged = before.clone();
        damaged[1000] ^= 1;
        std::fs::write(&path, damaged).expect("written");
        let said = INSTALLED.fails(&release, &["run", "hello"]);
        assert!(said.contains(&format!("lib/nom/{file} is damaged")) && said.contains("install"), "{said}");
        std::fs::write(&path, before).expect("written");
    }
    std::fs::remove_file(release.join("lib/nom/kernel")).expect("removed");
    let said = INSTALLED.fails(&release, &["run", "hello"]);
    assert!(said.contains("cannot read") && said.contains("lib/nom/kernel"), "{said}");
}

/// What a disk does that is full, without one: no file may grow beyond 4 KiB.
const FULL: &str = r#"trap "" XFSZ; ulimit -f 8; exec "$@""#;

#[test]
fn an_image_that_cannot_be_written_leaves_the_old_one() {
    let directory = INSTALLED.path("full");
    std::fs::create_dir(&directory).expect("made");
    let image = directory.join("hello.img");
    std::fs::write(&image, "the old one").expect("written");
    let mut shell = Command::new("sh");
    shell.args(["-c", FULL, "sh"]).arg(INSTALLED.release().join("bin/nom")).args(["build", "hello", "-o"]);
    let output = shell.arg(&image).env_remove("NOM_ROOT").output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("cannot write") && said.contains("full/hello.img"), "{said}");
    assert_eq!(std::fs::read_to_string(&image).expect("there"), "the old one");
    assert_eq!(std::fs::read_dir(&directory).expect("read").count(), 1, "nothing else is left");
}

/// A program that is damaged stands for one that would have to be built: root is asked for before.
#[test]
fn a_process_asks_for_root_before_it_is_built() {
    let release = INSTALLED.path("of-others");
    let copied = Command::new("cp").arg("-a").arg(INSTALLED.release()).arg(&release).status();
    assert!(copied.expect("cp runs").success());
    std::fs::write(release.join("lib/nom/processes/nom-memcached"), "damaged").expect("written");
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(INSTALLED.directory.path(), open).expect("everybody may read");
    let is_root = std::fs::metadata("/proc/self").expect("it is there").uid() == 0;
    let mut nom = Command::new(if is_root { "setpriv" } else { "env" });
    if is_root {
        nom.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    }
    nom.arg(release.join("bin/nom")).args(["run", "--host", "memcached"]).env_remove("NOM_ROOT");
    let output = nom.env("HOME", "/nonexistent").current_dir("/").output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("--host") && said.contains("needs root") && !said.contains("damaged"), "{said}");
}

#[test]
fn two_packagings_give_the_same_bytes() {
    let Installed { made, again, .. } = &*INSTALLED;
    for (one, other) in [(&made.archive, &again.archive), (&made.debian, &again.debian)] {
        assert!(
            std::fs::read(one).expect("read") == std::fs::read(other).expect("read"),
            "{}",
            one.display()
        );
    }
}
