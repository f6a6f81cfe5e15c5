//! `nom strace --check`: what there is of each call that a program can make, before anything boots.

use crate::linux::{RootOptions, gathered};
use anyhow::{Result, bail};
use nom_image::CallsFound;
use nom_linux::table::{self, Standing};
use std::io::Write;

/// How many functions with calls of unknown numbers are named.
const NAMED_MAX: usize = 8;

/// Says what there is of the calls of a program.
///
/// # Errors
/// If there is no such program, or a file of it is damaged.
pub fn check(app: Option<&str>, options: &RootOptions) -> Result<u8> {
    let Some((root, command)) = gathered(app, &[], options)? else {
        bail!(
            "{}: expected the path of a Linux program, or a container image",
            options.label(&app.map(str::to_owned))
        )
    };
    let found = root.calls(&command.program)?;
    let mut out = std::io::stdout().lock();
    out.write_all(report(&command.program, &found).as_bytes())?;
    Ok(0)
}

/// What is said: refused calls first, then those that are not there, those of which something is different,
/// and those that are complete.
fn report(program: &str, found: &CallsFound) -> String {
    let mut groups: [Vec<String>; 3] = Default::default();
    let mut complete = Vec::new();
    for (number, from) in &found.calls {
        let row = table::row(u64::from(*number));
        let (group, name, how) = match row.map(|row| (row.name, row.standing)) {
            Some((name, Standing::Complete)) => {
                complete.push(name);
                continue;
            }
            Some((name, Standing::Refused(why))) => (0, name.to_owned(), why),
            None => {
                let name = table::name_of(*number).map_or_else(|| format!("call {number}"), str::to_owned);
                (1, name, "ENOSYS")
            }
            Some((name, Standing::Partial(how))) => (2, name.to_owned(), how),
        };
        groups[group].push(format!("  {name:<20} {how}; by {from}\n"));
    }
    let (all, files) = (found.calls.len(), found.files.len());
    let counts = groups.each_ref().map(Vec::len);
    let mut text = format!(
        "{program}: its {files} files can make {all} system calls: {} complete, {} partial, {} refused, \
         {} unknown\n",
        complete.len(),
        counts[2],
        counts[0],
        counts[1]
    );
    let titles = ["refused (ENOSYS), so that programs do something else", "not in the table", "partial"];
    for (title, lines) in titles.iter().zip(&groups).filter(|(_, lines)| !lines.is_empty()) {
        text.push_str(&format!("{title}:\n{}", lines.concat()));
    }
    complete.sort_unstable();
    text.push_str(&format!("complete:\n  {}\n", complete.join(" ")));
    if !found.unknown.is_empty() {
        let named: Vec<&str> = found.unknown.iter().take(NAMED_MAX).map(String::as_str).collect();
        let more = found.unknown.len() - named.len();
        let more = if more == 0 { String::new() } else { format!(", and {more} more") };
        text.push_str(&format!("calls whose numbers are computed are made by: {}{more}\n", named.join(", ")));
    }
    text.push_str(
        "This is what the code can reach; a program makes fewer. Not seen is code that is made or loaded\n\
         while it runs (--include takes libraries along), and which flags a call is made with: `nom strace`\n\
         shows those.\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_told_by_what_there_is_of_them() {
        let mut found = CallsFound::default();
        for (number, from) in
            [(0, "read (libc.so.6)"), (435, "clone3 (libc.so.6)"), (26, "msync (x)"), (1000, "y")]
        {
            found.calls.insert(number, from.to_owned());
        }
        found.unknown = (0..10).map(|number| format!("f{number}")).collect();
        let text = report("/bin/x", &found);
        assert!(text.contains("can make 4 system calls: "), "{text}");
        assert!(
            text.contains("  clone3               C libraries take `clone` instead; by clone3 (libc.so.6)\n")
        );
        assert!(text.contains("  call 1000            ENOSYS; by y\n"), "{text}");
        assert!(text.contains(" read") && text.contains("f7, and 2 more\n"), "{text}");
    }
}
