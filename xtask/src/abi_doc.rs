//! `docs/abi.md`, made from the same tables as the kernel's handlers and the applications' stubs.

use anyhow::{Context, Result};
use nom_abi::syscall::Description;
use nom_abi::{Error, Syscall, Upcall};
use std::fmt::Write as _;
use std::path::Path;

/// Where the page is.
pub const PATH: &str = "docs/abi.md";

/// Writes the page.
///
/// # Errors
/// If it cannot be written.
pub fn write(root: &Path) -> Result<bool> {
    let path = root.join(PATH);
    std::fs::create_dir_all(root.join("docs"))?;
    std::fs::write(&path, page()).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(true)
}

const INTRODUCTION: &str = "# System calls, upcalls and errors

Made by `cargo xtask abi-doc` from the tables in `abi/src`; change them there.

A system call is the `syscall` instruction with its number in `rax` and its arguments in `rdi`, `rsi`,
`rdx`, `r10`, `r8`, `r9`. It returns an error's code, or zero, in `rax` and its value in `rdx`; `rcx` and
`r11` are lost. A call that returns an error has changed nothing. Every call can return `UnknownSyscall` (no
such number) besides the errors that it names, and `NotPermitted` for a call that the application's manifest
does not allow (`calls`; without, it may make those that its program contains, as section `.nom.calls` of the
ELF file says). Such calls are counted on the board, and said in the log ever more seldom.

The bulletin board is mapped from the start page's `board` on. Behind it lies a page for each application of
the bundle, in their order: what it uses (`Usage` in `abi/src/board.rs`: cores, preemptions, frames, cycles,
calls refused). An application reads its own, and of those that it manages; with `monitors` in its manifest,
all. The pages of others read as zeros. Who holds and runs on each processor, and how much memory is free, all
can read.
";

/// The page's text.
pub fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    let _ = writeln!(page, "\nVersion of the contract: {}.\n\n## System calls", nom_abi::VERSION);
    for row in Syscall::ALL {
        let _ = write!(page, "\n### {}\n\n{}\n", heading(row), paragraph(row.text));
    }
    page.push_str("\n## Upcalls\n\n| bit | upcall | meaning |\n|---|---|---|\n");
    for &(upcall, text) in Upcall::ALL {
        let _ = writeln!(page, "| {} | `{}` | {} |", upcall as u64, upcall.name(), cell(text));
    }
    page.push_str("\n## Errors\n\n| code | error | meaning |\n|---|---|---|\n");
    for &(error, text) in Error::ALL {
        let _ = writeln!(page, "| {} | `{}` | {} |", error as u64, error.name(), cell(text));
    }
    page
}

fn heading(row: &Description) -> String {
    format!("{} `{}({})`", row.call as u64, row.name, row.arguments.join(", "))
}

/// One line of the text's words.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn cell(text: &str) -> String {
    words(text).replace('|', "\\|")
}

/// The text in lines of at most 105 characters.
fn paragraph(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("there is always a line");
        if !last.is_empty() && last.len() + 1 + word.len() > 105 {
            lines.push(word.to_owned());
        } else {
            last.extend([if last.is_empty() { "" } else { " " }, word]);
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_every_table_is_on_the_page() {
        let page = page();
        for row in Syscall::ALL {
            assert!(page.contains(&format!("### {}\n", heading(row))), "{}", row.name);
        }
        for name in
            Upcall::ALL.iter().map(|row| row.0.name()).chain(Error::ALL.iter().map(|row| row.0.name()))
        {
            assert!(page.contains(&format!("| `{name}` |")), "{name}");
        }
    }

    #[test]
    fn paragraphs_are_wrapped_between_words() {
        let text = paragraph(&" word".repeat(50));
        assert_eq!(text.lines().count(), 3);
        assert!(text.lines().all(|line| line.len() <= 105 && line.starts_with("word")));
    }
}
