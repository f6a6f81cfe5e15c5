//! `nom manual`: the manual's pages, made from the definition of the command line.

use anyhow::Result;
use clap::Command;
use clap_mangen::Man;
use std::io::Write;

/// What ends a page.
const PAGE_END: &[u8] = b"\x0c";

/// Prints the page of the command, and one for each of its own.
///
/// # Errors
/// If nobody reads it.
pub fn print(command: Command) -> Result<u8> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    print_page(&command, &mut std::io::stdout().lock())?;
    Ok(0)
}

/// The page of a command and those of its own commands.
fn print_page(command: &Command, out: &mut dyn Write) -> Result<()> {
    let source = concat!("nom ", env!("CARGO_PKG_VERSION"));
    Man::new(command.clone()).source(source).render(out)?;
    out.write_all(PAGE_END)?;
    command.get_subcommands().filter(|part| !part.is_hide_set()).try_for_each(|part| print_page(part, out))
}
