//! `--gdb`: a script that loads symbols and connects.

use crate::arguments::Symbols;
use crate::store::{Machine, Store};
use anyhow::{Context, Result};
use nom_vmm::ControlLine;
use std::fmt::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

const SCRIPT: &str = "nom.gdb";
/// The kernel's way into an application, for the first time on a core.
const ENTRY: &str = "enter_application";
const APPLICATIONS: &str = "applications.gdb";

/// A port of the loopback interface that nobody listens at.
///
/// # Errors
/// If there is none.
pub fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("no free port for the debugger")?;
    Ok(listener.local_addr()?.port())
}

/// Writes the debugger's script of a machine, and says how to use it.
///
/// # Errors
/// If the script cannot be written.
pub fn write_script(directory: &Path, name: &str, port: u16, kernel: Option<&Path>) -> Result<()> {
    let path = directory.join(SCRIPT);
    let nom = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("nom"));
    std::fs::write(&path, script(directory, name, port, kernel, &nom))
        .with_context(|| format!("cannot write {}", path.display()))?;
    eprintln!("{name} waits for a debugger; in another terminal:\n  gdb -x {}", path.display());
    Ok(())
}

fn script(directory: &Path, name: &str, port: u16, kernel: Option<&Path>, nom: &Path) -> String {
    let mut text = String::from("set pagination off\nset confirm off\nset architecture i386:x86-64\n");
    if let Some(kernel) = kernel {
        let _ = writeln!(text, "file {}", kernel.display());
    }
    let _ = writeln!(text, "target remote 127.0.0.1:{port}");
    let applications = directory.join(APPLICATIONS);
    let (nom, applications) = (nom.display(), applications.display());
    let _ = write!(
        text,
        "define nom-applications\n  shell '{nom}' symbols {name}\n  source {applications}\nend\n\
         document nom-applications\nLoads the symbols of all applications that were started.\nend\n\
         define nom-start\n  thbreak {ENTRY}\n  continue\n  nom-applications\nend\n\
         document nom-start\nBoots until the first application begins, and loads its symbols.\nend\n\
         echo Type `nom-start` to go to where the first application begins, with its symbols loaded;\\n\n\
         echo `nom-applications` loads the symbols of those that were started since.\\n\n"
    );
    text
}

/// `nom symbols`: writes the list that the debugger's script reads.
///
/// # Errors
/// If there is no such machine, or the list cannot be written.
pub fn symbols(options: &Symbols) -> Result<u8> {
    let machine = Store::open()?.find(&options.name)?;
    let path = machine.directory.join(APPLICATIONS);
    std::fs::write(&path, application_list(&machine))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(0)
}

fn application_list(machine: &Machine) -> String {
    let mut text = String::new();
    for line in machine.control() {
        if let Some((program, base)) = started(&line, &machine.record.programs) {
            let _ = writeln!(text, "add-symbol-file {} -o {base:#x}", program.display());
        }
    }
    text
}

/// The program that a control line says was started, and where it was placed.
fn started<'p>(line: &ControlLine, programs: &'p [(String, PathBuf)]) -> Option<(&'p Path, u64)> {
    let app = line.field("app").filter(|_| line.word == "started")?;
    let (_, program) = programs.iter().find(|(name, _)| name == app)?;
    Some((program, line.number("base")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_loads_the_kernel_and_connects() {
        let script = script(Path::new("/vm"), "a-1", 1234, Some(Path::new("/k")), Path::new("/bin/nom"));
        assert!(script.contains("file /k\ntarget remote 127.0.0.1:1234\n"), "{script}");
        assert!(script.contains("shell '/bin/nom' symbols a-1\n  source /vm/applications.gdb"), "{script}");
    }

    #[test]
    fn started_applications_are_loaded_where_they_are() {
        let programs = [("hello".to_owned(), PathBuf::from("/elf"))];
        let at = |line: &str| started(&line.parse().expect("any line reads"), &programs);
        assert_eq!(at("started app=hello base=0x700012340000"), Some((Path::new("/elf"), 0x7000_1234_0000)));
        assert_eq!(at("started app=other base=0x7000"), None);
        assert_eq!(at("exited app=hello status=0"), None);
    }
}
