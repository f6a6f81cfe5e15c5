//! Rules about `unsafe`: where it may be, and that it is argued.

use super::Violation;
use super::tree::{File, Tree};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::visit::{self, Visit};

/// Packages that may be unsafe: those of ARCHITECTURE.md, the kernel itself for one attribute, its
/// self-check, which reads what processors read, the device that drivers are tested with, and the guest
/// tests, which misbehave on purpose.
pub const DECLARED: [&str; 10] = [
    "loader",
    "kernel",
    "kernel/x86",
    "kernel/selfcheck",
    "libos/sys",
    "libos/linux-host",
    "libos/virtio",
    "libos/rt",
    "libos/virtio-fake",
    "tests/guest",
];

/// The attribute of all other crates.
const FORBID: &str = "#![forbid(unsafe_code)]";

/// Every crate that is not declared unsafe forbids it, in each of its roots.
pub fn other_crates_forbid_it(tree: &Tree) -> Vec<Violation> {
    let others = tree.packages().filter(|package| !DECLARED.contains(package));
    let roots = others.flat_map(|package| tree.crate_roots(package));
    let message = || format!("`{FORBID}` is missing: only declared crates may be unsafe");
    roots
        .filter(|file| !file.text.lines().any(|line| line.trim() == FORBID))
        .map(|file| Violation::new(&file.path, 1, "forbid-unsafe", message()))
        .collect()
}

/// A crate that may be unsafe says so in the first lines of its documentation.
pub fn declared_crates_say_so(tree: &Tree) -> Vec<Violation> {
    let declared = tree.packages().filter(|package| DECLARED.contains(package));
    let libraries = declared.filter_map(|package| tree.find(&format!("{package}/src/lib.rs")));
    let silent = libraries.filter(|file| {
        let mut documentation = file.text.lines().take_while(|line| line.starts_with("//!"));
        !documentation.any(|line| line.contains("unsafe"))
    });
    let message = "the crate's documentation must say that it may be unsafe";
    silent.map(|file| Violation::new(&file.path, 1, "declare-unsafe", message)).collect()
}

/// Every unsafe block and implementation has a `// SAFETY:` comment, every unsafe function a section
/// `# Safety`.
pub fn unsafe_code_is_argued(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in tree.rust() {
        let Ok(tokens) = file.text.parse::<TokenStream>() else { continue };
        let lines: Vec<&str> = file.text.lines().collect();
        let mut uses = Vec::new();
        find_uses(tokens, &mut uses);
        let unargued = uses.into_iter().filter(|&line| !is_argued(&lines, line, "SAFETY:"));
        violations.extend(unargued.map(|line| {
            Violation::new(&file.path, line, "safety-comment", "`// SAFETY:` is missing right above")
        }));
        violations.extend(undocumented_functions(file, &lines));
    }
    violations
}

/// Lines of every `unsafe` block and implementation, those in macros too.
fn find_uses(tokens: TokenStream, lines: &mut Vec<usize>) {
    let mut previous: Option<TokenTree> = None;
    for token in tokens {
        if let Some(TokenTree::Ident(word)) = &previous
            && word == "unsafe"
            && begins_block_or_implementation(&token)
        {
            lines.push(word.span().start().line);
        }
        if let TokenTree::Group(group) = &token {
            find_uses(group.stream(), lines);
        }
        previous = Some(token);
    }
}

fn begins_block_or_implementation(token: &TokenTree) -> bool {
    match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Ident(word) => word == "impl",
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    }
}

/// Whether `argument` is in the comment on line `line` (counted from 1), or right above the statement that
/// the line is in.
fn is_argued(lines: &[&str], line: usize, argument: &str) -> bool {
    let has = |text: &str| text.split_once("//").is_some_and(|(_, comment)| comment.contains(argument));
    let is_comment = |text: &str| text.trim_start().starts_with("//");
    let begins_here = |text: &str| text.trim_end().ends_with([';', '{', '}']) || text.trim().is_empty();
    if has(lines[line - 1]) {
        return true;
    }
    let above = lines[..line - 1].iter().rev();
    let mut seen_comment = false;
    for text in above {
        if has(text) {
            return true;
        }
        // Above a comment that is not the argument, there is only more of that comment.
        if (seen_comment && !is_comment(text)) || (!is_comment(text) && begins_here(text)) {
            return false;
        }
        seen_comment |= is_comment(text);
    }
    false
}

/// Unsafe functions without a `# Safety` section; those that implement a trait have the trait's.
fn undocumented_functions(file: &File, lines: &[&str]) -> Vec<Violation> {
    let mut visitor = UnsafeFunctions::default();
    if let Some(syntax) = &file.syntax {
        visitor.visit_file(syntax);
    }
    let documented = |line: usize| {
        let above = lines[..line - 1].iter().rev().map(|text| text.trim_start());
        let mut own = above.take_while(|text| text.starts_with("//") || text.starts_with('#'));
        own.any(|text| text.contains("# Safety") || text.contains("SAFETY:"))
    };
    let undocumented = visitor.functions.into_iter().filter(|(line, _)| !documented(*line));
    undocumented
        .map(|(line, name)| {
            let message = format!("`{name}` is unsafe: its documentation needs a section `# Safety`");
            Violation::new(&file.path, line, "safety-section", message)
        })
        .collect()
}

#[derive(Default)]
struct UnsafeFunctions {
    functions: Vec<(usize, String)>,
    in_trait_implementation: bool,
}

impl UnsafeFunctions {
    fn check(&mut self, visibility: Option<&syn::Visibility>, signature: &syn::Signature) {
        use syn::spanned::Spanned;
        if signature.unsafety.is_some() && !self.in_trait_implementation {
            let start = visibility.filter(|v| !matches!(v, syn::Visibility::Inherited)).map(Spanned::span);
            let line = start.unwrap_or_else(|| signature.span()).start().line;
            self.functions.push((line, signature.ident.to_string()));
        }
    }
}

impl<'ast> Visit<'ast> for UnsafeFunctions {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.check(Some(&function.vis), &function.sig);
        visit::visit_item_fn(self, function);
    }

    fn visit_item_impl(&mut self, implementation: &'ast syn::ItemImpl) {
        let outer = std::mem::replace(&mut self.in_trait_implementation, implementation.trait_.is_some());
        visit::visit_item_impl(self, implementation);
        self.in_trait_implementation = outer;
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.check(Some(&function.vis), &function.sig);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        self.check(None, &function.sig);
        visit::visit_trait_item_fn(self, function);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::judge;

    fn argued(text: &str) -> Vec<String> {
        judge(unsafe_code_is_argued, &[("a.rs", text)])
    }

    #[test]
    fn an_unsafe_block_needs_its_argument() {
        for fine in [
            "fn f() {\n    // SAFETY: x is valid.\n    unsafe { g() }\n}",
            "fn f() {\n    // SAFETY: a long\n    // argument.\n    let y =\n        unsafe { g() };\n}",
            "fn f() {\n    unsafe { g() } // SAFETY: x.\n}",
            "// SAFETY: no state.\nunsafe impl Send for S {}",
            "fn f() { let s = \"unsafe { }\"; } // unsafe { }",
            "unsafe extern \"C\" { safe fn a(); }",
            "type F = unsafe fn();",
        ] {
            assert_eq!(argued(fine), [""; 0], "{fine}");
        }
        for wrong in [
            "fn f() {\n    unsafe { g() }\n}",
            "fn f() {\n    // SAFETY: of another.\n    unsafe { g() };\n    unsafe { g() }\n}",
            "fn f() {\n    // SAFETY: of the first.\n    a();\n    // Another.\n    unsafe { g() }\n}",
            "unsafe impl Send for S {}",
            "macro_rules! m { () => { unsafe { g() } } }",
        ] {
            assert_eq!(argued(wrong).len(), 1, "{wrong}");
        }
    }

    #[test]
    fn an_unsafe_function_needs_its_section() {
        for fine in [
            "/// Does.\n///\n/// # Safety\n/// `x` is valid.\n#[inline]\npub unsafe fn f() {}",
            "unsafe impl G for S {\n    unsafe fn f() {}\n} // SAFETY: never.",
        ] {
            let found = argued(fine);
            assert!(!found.iter().any(|message| message.contains("safety-section")), "{found:?}");
        }
        for wrong in
            ["/// Does.\npub unsafe fn f() {}", "impl S { unsafe fn f() {} }", "trait T { unsafe fn f(); }"]
        {
            assert!(argued(wrong)[0].contains("safety-section"), "{wrong}");
        }
    }

    #[test]
    fn every_root_of_an_undeclared_crate_forbids_unsafe_code() {
        let files = [
            ("abi/Cargo.toml", "[package]"),
            ("abi/src/lib.rs", "#![forbid(unsafe_code)]"),
            ("abi/src/bin/a.rs", ""),
            ("libos/sys/Cargo.toml", "[package]"),
            ("libos/sys/src/lib.rs", ""),
        ];
        let found = judge(other_crates_forbid_it, &files);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("abi/src/bin/a.rs:1: forbid-unsafe"));
    }

    #[test]
    fn a_declared_crate_says_so() {
        let manifest = ("libos/sys/Cargo.toml", "[package]");
        let said = ("libos/sys/src/lib.rs", "//! All that is\n//! `unsafe`.\n");
        let unsaid = ("libos/sys/src/lib.rs", "//! All.\n\n// unsafe\n");
        assert_eq!(judge(declared_crates_say_so, &[manifest, said]), [""; 0]);
        assert_eq!(judge(declared_crates_say_so, &[manifest, unsaid]).len(), 1);
    }
}
