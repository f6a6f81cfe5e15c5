//! The rule that keeps the compiler's release in one place.

use super::Violation;
use super::tree::Tree;

/// Where the release is named.
const PIN: &str = "rust-toolchain.toml";
/// Files that follow it without a number of their own: they read it.
const READERS: [&str; 3] = ["nom", "host/build/src/toolchain.rs", "host/cli/src/doctor.rs"];

/// `rust-version` in Cargo.toml is the pinned release's, and who sets it up or judges it names no other.
pub fn one_release_is_named(tree: &Tree) -> Vec<Violation> {
    let Some(channel) = field(tree, PIN, "channel") else {
        return vec![Violation::new(
            PIN,
            1,
            "toolchain",
            "expected a release as `channel`, such as \"1.95.0\"",
        )];
    };
    let mut violations = Vec::new();
    let wanted = channel.rsplit_once('.').map_or(channel, |(release, _)| release);
    if field(tree, "Cargo.toml", "rust-version") != Some(wanted) {
        let message = format!("`rust-version` must be \"{wanted}\", as {PIN} pins {channel}");
        violations.push(Violation::new("Cargo.toml", 1, "toolchain", message));
    }
    for file in READERS.iter().filter_map(|path| tree.find(path)) {
        for (index, line) in file.text.lines().take_while(|line| !line.contains("cfg(test)")).enumerate() {
            let is_comment = ["#", "//"].iter().any(|start| line.trim_start().starts_with(start));
            if !is_comment && names_a_release(line) {
                let message = format!("a release of Rust: expected that it is read from {PIN}");
                violations.push(Violation::new(&file.path, index + 1, "toolchain", message));
            }
        }
    }
    violations
}

/// The string that a line `name = "..."` of a file gives.
fn field<'a>(tree: &'a Tree, path: &str, name: &str) -> Option<&'a str> {
    let lines = tree.find(path)?.text.lines();
    let mut values =
        lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix(" = \"")?.strip_suffix('"'));
    values.next()
}

/// Whether a line has something like `1.95` or `(1, 95)` in it.
fn names_a_release(line: &str) -> bool {
    let after = line.match_indices("1.").chain(line.match_indices("(1, "));
    after.into_iter().any(|(at, start)| {
        let digits = line[at + start.len()..].bytes().take_while(u8::is_ascii_digit).count();
        let is_own = !line[..at].ends_with(|before: char| before.is_ascii_digit() || before == '.');
        digits >= 2 && is_own
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::judge;

    const PINNED: (&str, &str) = (PIN, "[toolchain]\nchannel = \"1.95.0\"\n");

    #[test]
    fn the_manifest_follows_the_pin() {
        let agreeing = ("Cargo.toml", "[workspace.package]\nrust-version = \"1.95\"\n");
        assert_eq!(judge(one_release_is_named, &[PINNED, agreeing]), [""; 0]);
        let older = ("Cargo.toml", "[workspace.package]\nrust-version = \"1.94\"\n");
        assert_eq!(
            judge(one_release_is_named, &[PINNED, older]),
            ["Cargo.toml:1: toolchain: `rust-version` must be \"1.95\", as rust-toolchain.toml pins 1.95.0"]
        );
        assert_eq!(judge(one_release_is_named, &[agreeing]).len(), 1);
    }

    #[test]
    fn whoever_reads_the_pin_names_no_release() {
        let agreeing = ("Cargo.toml", "rust-version = \"1.95\"\n");
        let judged = |text| judge(one_release_is_named, &[PINNED, agreeing, ("nom", text)]);
        assert_eq!(judged("# such as 1.95.0\necho 10.1.95 11.9\n"), [""; 0]);
        assert_eq!(judged("x\nrust_minor_min=95 # of 1.95\n").len(), 1);
        assert_eq!(judged("const RUST_MIN: (u32, u32) = (1, 95);\n").len(), 1);
    }
}
