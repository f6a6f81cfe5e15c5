//! The project's mechanical rules. Each is a function from the sources to what breaks it, with a test of its
//! own; STYLE.md says what they are for.

mod attacks;
mod dependencies;
mod documents;
mod flags;
mod functions;
mod names;
mod numbers;
mod size;
mod text;
mod toolchain;
mod tree;
mod unsafety;

use anyhow::Result;
use std::fmt;
use std::path::Path;
use tree::Tree;

/// A place where the sources break a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// File, from the project's root.
    pub file: String,
    /// Line, counted from 1.
    pub line: usize,
    /// The rule's name.
    pub rule: &'static str,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl Violation {
    fn new(file: &str, line: usize, rule: &'static str, message: impl Into<String>) -> Violation {
        Violation { file: file.to_owned(), line, rule, message: message.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: {}: {}", self.file, self.line, self.rule, self.message)
    }
}

type Rule = fn(&Tree) -> Vec<Violation>;

const RULES: &[Rule] = &[
    attacks::attacks_name_what_is_there,
    dependencies::arrows_point_down,
    documents::abi_page_is_fresh,
    documents::commands_name_what_is_there,
    documents::documents_are_narrow,
    documents::fences_stand_alone,
    documents::links_lead_somewhere,
    documents::readme_is_short,
    documents::readme_names_every_package,
    documents::safety_pages_exist,
    documents::specification_rows_have_checks,
    documents::style_has_few_rules,
    flags::arguments_say_what_they_mean,
    functions::functions_are_short,
    functions::sources_parse,
    names::types_have_names_of_their_own,
    numbers::cited_numbers_are_the_records,
    numbers::numbers_have_records,
    numbers::records_have_a_machine,
    size::kernel_is_small,
    size::controller_is_small,
    text::files_are_short,
    text::lines_are_short,
    text::no_leftovers,
    text::whitespace_is_plain,
    toolchain::one_release_is_named,
    unsafety::declared_crates_say_so,
    unsafety::other_crates_forbid_it,
    unsafety::unsafe_code_is_argued,
];

/// Prints every violation; `false` if there is one.
///
/// # Errors
/// If the sources cannot be read.
pub fn run(root: &Path) -> Result<bool> {
    let tree = Tree::read(root)?;
    let mut violations: Vec<Violation> = RULES.iter().flat_map(|rule| rule(&tree)).collect();
    violations.sort();
    violations.iter().for_each(|violation| println!("{violation}"));
    println!("tidy: {} files, {} rules, {} violations", tree.files.len(), RULES.len(), violations.len());
    Ok(violations.is_empty())
}

/// Violations of one rule in a tree of these files, for the rules' own tests.
#[cfg(test)]
fn judge(rule: Rule, files: &[(&str, &str)]) -> Vec<String> {
    let tree = Tree::of(files.iter().map(|&(path, text)| (path.to_owned(), text.to_owned())));
    rule(&tree).iter().map(Violation::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_reads_like_a_compilers_message() {
        let violation = Violation::new("a/b.rs", 3, "line-length", "too long");
        assert_eq!(violation.to_string(), "a/b.rs:3: line-length: too long");
    }
}
