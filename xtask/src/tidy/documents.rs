//! Rules about documents.

use super::Violation;
use super::tree::{File, Tree};
use super::unsafety::DECLARED;
use crate::abi_doc;

const README_LINES_MAX: usize = 100;
const STYLE_RULES_MAX: usize = 20;
/// Documents that are read beside the code, and their widest line.
const NARROW: [&str; 2] = ["ARCHITECTURE.md", "HACKING.md"];
const COLUMNS_MAX: usize = 120;

/// README.md has at most 100 lines.
pub fn readme_is_short(tree: &Tree) -> Vec<Violation> {
    let Some(readme) = tree.find("README.md") else {
        return vec![Violation::new("README.md", 1, "readme", "missing")];
    };
    let lines = readme.text.lines().count();
    let message = format!("{lines} lines, at most {README_LINES_MAX}");
    let violation = Violation::new("README.md", README_LINES_MAX + 1, "readme", message);
    (lines > README_LINES_MAX).then_some(violation).into_iter().collect()
}

/// What is read beside the code has at most 120 columns, its tables and figures, too.
pub fn documents_are_narrow(tree: &Tree) -> Vec<Violation> {
    let narrow = tree.files.iter().filter(|file| NARROW.contains(&file.path.as_str()));
    let lines = narrow.flat_map(|file| file.text.lines().enumerate().map(move |line| (file, line)));
    let wide = lines.map(|(file, (index, line))| (file, index + 1, line.chars().count()));
    wide.filter(|(_, _, columns)| *columns > COLUMNS_MAX)
        .map(|(file, line, columns)| {
            let message = format!("{columns} columns, at most {COLUMNS_MAX}");
            Violation::new(&file.path, line, "document-width", message)
        })
        .collect()
}

/// A figure or an example begins and ends with a line of its own: what flows a document's lines anew, as
/// editors do, makes text of others.
pub fn fences_stand_alone(tree: &Tree) -> Vec<Violation> {
    const FENCE: &str = "```";
    let documents = tree.files.iter().filter(|file| file.path.ends_with(".md"));
    let lines = documents.flat_map(|file| file.text.lines().enumerate().map(move |line| (file, line)));
    let flowing =
        lines.filter(|(_, (_, line))| line.contains(FENCE) && !line.trim_start().starts_with(FENCE));
    let message = "a fence (```) within a line: it is to begin one";
    flowing.map(|(file, (index, _))| Violation::new(&file.path, index + 1, "fence", message)).collect()
}

/// README.md names the directory of every package.
pub fn readme_names_every_package(tree: &Tree) -> Vec<Violation> {
    let Some(readme) = tree.find("README.md") else {
        return Vec::new(); // `readme_is_short` says so.
    };
    let names = |package: &&str| {
        let name = package.rsplit('/').next().unwrap_or_default();
        [format!("`{name}`"), format!("`{name}/`"), format!("]({package})"), format!("`{package}`")]
    };
    // What `nom new` copies is nobody's package yet.
    let packages = tree.packages().filter(|package| !package.contains("/templates/"));
    let unnamed = packages.filter(|package| !names(package).iter().any(|n| readme.text.contains(n)));
    let message = |package| format!("no word of `{package}`: say in a sentence what it is for");
    unnamed.map(|package| Violation::new("README.md", 1, "readme-packages", message(package))).collect()
}

/// A command in HACKING.md names packages and files of tests that are there.
pub fn commands_name_what_is_there(tree: &Tree) -> Vec<Violation> {
    let Some(page) = tree.find("HACKING.md") else {
        return vec![Violation::new("HACKING.md", 1, "commands", "missing")];
    };
    let lines = page.text.lines().enumerate();
    lines
        .filter_map(|(index, line)| {
            let (_, command) = line.split_once("cargo test ")?;
            let words: Vec<&str> = command.split([' ', '`', ';']).collect();
            let after = |option| words.iter().skip_while(|word| **word != option).nth(1);
            let package = after("-p")?;
            let named = format!("name = \"{package}\"");
            let manifest = tree.files.iter().find(|file| {
                file.path.ends_with("/Cargo.toml") && file.text.lines().any(|line| line == named)
            });
            let missing = match (manifest, after("--test")) {
                (None, _) => format!("no package `{package}`"),
                (Some(manifest), Some(test)) => {
                    let tests = manifest.path.replace("Cargo.toml", "tests");
                    let paths = [format!("{tests}/{test}.rs"), format!("{tests}/{test}/main.rs")];
                    if paths.iter().any(|path| tree.find(path).is_some()) {
                        return None;
                    }
                    format!("no test `{test}` of `{package}`")
                }
                (Some(_), None) => return None,
            };
            Some(Violation::new("HACKING.md", index + 1, "commands", missing))
        })
        .collect()
}

/// STYLE.md has at most 20 rules, each a numbered item or heading.
pub fn style_has_few_rules(tree: &Tree) -> Vec<Violation> {
    let Some(style) = tree.find("STYLE.md") else {
        return vec![Violation::new("STYLE.md", 1, "style", "missing")];
    };
    let is_rule = |line: &str| {
        let text = line.trim_start_matches(['#', ' ', '*']);
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        digits > 0 && text[digits..].starts_with(". ")
    };
    let rules = style.text.lines().filter(|line| is_rule(line)).count();
    match rules {
        0 => vec![Violation::new("STYLE.md", 1, "style", "no rule is numbered")],
        1..=STYLE_RULES_MAX => Vec::new(),
        _ => {
            let message = format!("{rules} rules, at most {STYLE_RULES_MAX}");
            vec![Violation::new("STYLE.md", 1, "style", message)]
        }
    }
}

/// Every crate that may be unsafe has a page under docs/safety, called after its directory.
pub fn safety_pages_exist(tree: &Tree) -> Vec<Violation> {
    let packages = tree.packages().filter(|package| DECLARED.contains(package));
    let pages = packages.map(|package| format!("docs/safety/{}.md", package.replace('/', "-")));
    let missing = pages.filter(|page| tree.find(page).is_none());
    missing
        .map(|page| Violation::new(&page, 1, "safety-page", "a crate that may be unsafe argues why here"))
        .collect()
}

/// Each row of each table in SPEC.md ends with a link to its check, or says `pending`.
pub fn specification_rows_have_checks(tree: &Tree) -> Vec<Violation> {
    let Some(specification) = tree.find("SPEC.md") else {
        return vec![Violation::new("SPEC.md", 1, "specification", "missing")];
    };
    let unchecked = table_rows(&specification.text).filter(|(_, row)| {
        let check = row.trim().trim_end_matches('|').rsplit('|').next().unwrap_or_default();
        !check.contains("](") && !check.contains("pending")
    });
    let message = "the last column must link the row's check, or say `pending`";
    unchecked.map(|(line, _)| Violation::new("SPEC.md", line, "specification", message)).collect()
}

/// Rows of a document's tables without their heads, with their lines' numbers.
fn table_rows(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_body = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_row = line.trim_start().starts_with('|');
        let is_rule = is_row && line.chars().all(|c| "|-: ".contains(c));
        let is_body_row = is_row && in_body;
        in_body = is_row && (in_body || is_rule);
        is_body_row.then_some((index + 1, line))
    })
}

/// docs/abi.md is what the tables in `abi` make of it.
pub fn abi_page_is_fresh(tree: &Tree) -> Vec<Violation> {
    let fresh = tree.find(abi_doc::PATH).is_some_and(|file| file.text == abi_doc::page());
    let violation = Violation::new(abi_doc::PATH, 1, "abi-page", "out of date: run `cargo xtask abi-doc`");
    (!fresh).then_some(violation).into_iter().collect()
}

/// Every relative link in a document leads to a file or directory of the project.
pub fn links_lead_somewhere(tree: &Tree) -> Vec<Violation> {
    let documents = tree.files.iter().filter(|file| file.path.ends_with(".md"));
    documents.flat_map(|file| dead_links(file, tree)).collect()
}

fn dead_links(file: &File, tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        for target in links(line).filter(|target| !target.contains(':')) {
            let path = resolve(&file.path, target.split('#').next().unwrap_or_default());
            let directory = format!("{path}/");
            if !path.is_empty()
                && !tree.files.iter().any(|f| f.path == path || f.path.starts_with(&directory))
            {
                let message = format!("there is no `{path}`");
                violations.push(Violation::new(&file.path, index + 1, "link", message));
            }
        }
    }
    violations
}

/// Targets of the links in a line.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
}

/// The path that `target` means in the document at `document`.
fn resolve(document: &str, target: &str) -> String {
    if target.is_empty() {
        return String::new();
    }
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::judge;

    #[test]
    fn the_readme_is_there_and_short() {
        assert_eq!(judge(readme_is_short, &[]).len(), 1);
        assert_eq!(judge(readme_is_short, &[("README.md", &"a\n".repeat(100))]), [""; 0]);
        assert_eq!(judge(readme_is_short, &[("README.md", &"a\n".repeat(101))]).len(), 1);
    }

    #[test]
    fn a_package_that_the_readme_forgets_is_found() {
        let packages =
            ["libos/net/Cargo.toml", "abi/Cargo.toml", "host/vmm/Cargo.toml"].map(|path| (path, "[package]"));
        let files = |readme| [&packages[..], &[("README.md", readme)]].concat();
        let whole = "[`abi/`](abi) is the contract, `net` the stack, `vmm` runs";
        assert_eq!(judge(readme_names_every_package, &files(whole)), [""; 0]);
        let found =
            judge(readme_names_every_package, &files("[`abi/`](abi) is the contract, `net` the stack"));
        assert!(found.len() == 1 && found[0].contains("`host/vmm`"), "{found:?}");
    }

    #[test]
    fn commands_that_name_nothing_are_found() {
        let files = |page| {
            let manifest = ("libos/net/Cargo.toml", "[package]\nname = \"nom-net\"\n");
            [manifest, ("libos/net/tests/moves.rs", ""), ("HACKING.md", page)]
        };
        let right = "cargo test -p nom-net --test moves\n`cargo test -p nom-net`\n";
        assert_eq!(judge(commands_name_what_is_there, &files(right)), [""; 0]);
        for (wrong, named) in
            [("cargo test -p nom-nets", "`nom-nets`"), ("cargo test -p nom-net --test move", "`move`")]
        {
            let found = judge(commands_name_what_is_there, &files(wrong));
            assert!(found.len() == 1 && found[0].contains(named), "{wrong}: {found:?}");
        }
        assert_eq!(judge(commands_name_what_is_there, &[]).len(), 1);
    }

    #[test]
    fn wide_lines_of_a_narrow_document_are_found() {
        let (fits, wide) = ("é".repeat(120), "é".repeat(121));
        assert_eq!(judge(documents_are_narrow, &[("ARCHITECTURE.md", &fits), ("SPEC.md", &wide)]), [""; 0]);
        let found = judge(documents_are_narrow, &[("HACKING.md", &format!("{fits}\n{wide}\n"))]);
        assert_eq!(found, ["HACKING.md:2: document-width: 121 columns, at most 120"]);
    }

    #[test]
    fn a_fence_within_a_line_is_found() {
        let right = "# Figure\n```\n a ─► b\n```\n1. An example:\n   ```sh\n   ls\n   ```\n";
        assert_eq!(judge(fences_stand_alone, &[("docs/a.md", right)]), [""; 0]);
        let found = judge(fences_stand_alone, &[("docs/a.md", "# Figure ``` a ─► b\n``` Text\n")]);
        assert_eq!(found, ["docs/a.md:1: fence: a fence (```) within a line: it is to begin one"]);
    }

    #[test]
    fn numbered_rules_are_counted() {
        let rules = |count: usize| (1..=count).map(|n| format!("{n}. Rule.\n   More.\n")).collect::<String>();
        assert_eq!(judge(style_has_few_rules, &[("STYLE.md", &rules(20))]), [""; 0]);
        assert_eq!(judge(style_has_few_rules, &[("STYLE.md", &rules(21))]).len(), 1);
        assert_eq!(judge(style_has_few_rules, &[("STYLE.md", "# Style\n")]).len(), 1);
        assert_eq!(judge(style_has_few_rules, &[]).len(), 1);
    }

    #[test]
    fn unsafe_crates_have_pages() {
        let manifest = ("libos/sys/Cargo.toml", "[package]");
        assert_eq!(judge(safety_pages_exist, &[manifest, ("docs/safety/libos-sys.md", "")]), [""; 0]);
        assert!(
            judge(safety_pages_exist, &[manifest])[0].starts_with("docs/safety/libos-sys.md:1: safety-page")
        );
    }

    #[test]
    fn rows_of_the_specification_have_checks() {
        let text = "| what | must | check |\n|---|---|---|\n\
                    | a | 1 | [test](t.rs) |\n| b | 2 | pending |\n| c | 3 | |\n\
                    \nText | with bars.\n\n| x | y |\n|---|---|\n| d | none |\n";
        let found = judge(specification_rows_have_checks, &[("SPEC.md", text)]);
        assert_eq!(found.len(), 2);
        assert!(found[0].starts_with("SPEC.md:5: ") && found[1].starts_with("SPEC.md:11: "), "{found:?}");
    }

    #[test]
    fn a_stale_abi_page_is_found() {
        assert_eq!(judge(abi_page_is_fresh, &[("docs/abi.md", &abi_doc::page())]), [""; 0]);
        assert_eq!(judge(abi_page_is_fresh, &[("docs/abi.md", "old")]).len(), 1);
        assert_eq!(judge(abi_page_is_fresh, &[]).len(), 1);
    }

    #[test]
    fn dead_links_are_found() {
        let text = "[a](b.md) [c](../x/y.rs#L3) [d](https://a.b/c) [e](#here) [f](../x)\n[g](no.md)\n";
        let files = [("docs/a.md", text), ("docs/b.md", ""), ("x/y.rs", "")];
        assert_eq!(judge(links_lead_somewhere, &files), ["docs/a.md:2: link: there is no `docs/no.md`"]);
    }
}
