//! The kernel and the controller stay small.

use super::Violation;
use super::tree::{File, Tree};
use syn::spanned::Spanned;

const KERNEL_MAX: usize = 8500;
const CONTROLLER_MAX: usize = 1200;
/// A kernel that tests itself, which never ships.
const TEST_BUILD: &str = "kernel/selfcheck/";

/// The kernel has at most 8,500 lines of code: what ships counts, without comments and empty lines. A line
/// has at most 110 columns, as everywhere.
pub fn kernel_is_small(tree: &Tree) -> Vec<Violation> {
    let is_shipped = |path: &str| path.starts_with("kernel/") && !path.starts_with(TEST_BUILD);
    let lines = lines_of(tree, is_shipped);
    let message = format!("the kernel has {lines} lines of code, at most {KERNEL_MAX}");
    (lines > KERNEL_MAX).then(|| Violation::new("kernel", 1, "kernel-size", message)).into_iter().collect()
}

/// The controller of the working point has at most 1,200 lines of code, counted alike.
pub fn controller_is_small(tree: &Tree) -> Vec<Violation> {
    const PATH: &str = "economy/src/controller";
    let lines = lines_of(tree, |path| path.starts_with(PATH));
    let message = format!("the controller has {lines} lines of code, at most {CONTROLLER_MAX}");
    (lines > CONTROLLER_MAX)
        .then(|| Violation::new(PATH, 1, "controller-size", message))
        .into_iter()
        .collect()
}

/// Lines of code, without tests, of the source files whose paths are in a part of the tree.
fn lines_of(tree: &Tree, is_in: impl Fn(&str) -> bool) -> usize {
    let files: Vec<&File> = tree.files.iter().filter(|file| is_in(&file.path)).collect();
    let test_modules: Vec<String> = files.iter().flat_map(|file| test_modules(file)).collect();
    let is_counted = |file: &&&File| {
        let is_source = [".rs", ".S", ".ld"].iter().any(|ending| file.path.ends_with(ending));
        let is_test = file.path.contains("/tests/")
            || test_modules.iter().any(|module| {
                let rest = file.path.strip_prefix(module.as_str());
                rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
            });
        is_source && !is_test
    };
    files.iter().filter(is_counted).map(|file| code_lines(file)).sum()
}

/// Paths, without `.rs`, of the modules in files of their own that a file declares for tests only.
fn test_modules(file: &File) -> Vec<String> {
    let path = file.path.trim_end_matches(".rs");
    let directory = ["lib", "main", "mod"].iter().find_map(|root| path.strip_suffix(&format!("/{root}")));
    let items = file.syntax.iter().flat_map(|syntax| &syntax.items);
    let modules = items.filter_map(|item| match item {
        syn::Item::Mod(module) if module.content.is_none() && module.attrs.iter().any(is_test_only) => {
            Some(format!("{}/{}", directory.unwrap_or(path), module.ident))
        }
        _ => None,
    });
    modules.collect()
}

/// Lines of code that are not in a module of tests.
fn code_lines(file: &File) -> usize {
    let items = file.syntax.iter().flat_map(|syntax| &syntax.items);
    let modules = items.filter_map(|item| match item {
        syn::Item::Mod(module) if module.attrs.iter().any(is_test_only) => Some(module.span()),
        _ => None,
    });
    let tests: Vec<_> = modules.map(|span| span.start().line..=span.end().line).collect();
    let lines =
        file.text.lines().zip(1..).filter(|(_, number)| !tests.iter().any(|test| test.contains(number)));
    lines.filter(|(line, _)| !line.trim().is_empty() && !line.trim_start().starts_with("//")).count()
}

/// Whether the attribute is `#[cfg(test)]`.
fn is_test_only(attribute: &syn::Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute.parse_args::<syn::Ident>().is_ok_and(|condition| condition == "test")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::judge;

    #[test]
    fn a_controller_that_grows_is_told() {
        let lines = "const A: u8 = 0;\n".repeat(1200);
        let fine =
            [("economy/src/controller/a.rs", lines.as_str()), ("economy/src/b.rs", "const B: u8 = 0;")];
        assert_eq!(judge(controller_is_small, &fine), [""; 0]);
        let large = [fine[0], ("economy/src/controller/mod.rs", "const B: u8 = 0;")];
        let told =
            "economy/src/controller:1: controller-size: the controller has 1201 lines of code, at most 1200";
        assert_eq!(judge(controller_is_small, &large), [told]);
    }

    #[test]
    fn tests_do_not_count() {
        let lines = "const A: u8 = 0;\n".repeat(8500);
        let tested =
            format!("{lines}\n// A comment.\n#[cfg(test)]\nmod tests {{\n}}\n#[cfg(test)] mod fake;");
        let fine = [
            ("kernel/src/a.rs", tested.as_str()),
            ("kernel/src/a/fake.rs", &lines),
            ("kernel/src/a/fake/more.rs", &lines),
            ("kernel/tests/b.rs", &lines),
            ("kernel/selfcheck/src/b.rs", &lines),
            ("abi/b.rs", &lines),
        ];
        assert_eq!(judge(kernel_is_small, &fine), [""; 0]);
        let large = [("kernel/src/a.rs", tested.as_str()), ("kernel/x86/src/boot.S", "hlt\n\n")];
        assert_eq!(
            judge(kernel_is_small, &large),
            ["kernel:1: kernel-size: the kernel has 8501 lines of code, at most 8500"]
        );
    }
}
