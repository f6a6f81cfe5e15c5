//! Rules about functions.

use super::Violation;
use super::tree::Tree;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

const LINES_MAX: usize = 70;

/// Every Rust file has correct syntax, or the other rules would overlook it.
pub fn sources_parse(tree: &Tree) -> Vec<Violation> {
    let broken = tree.rust().filter(|file| file.syntax.is_none());
    broken.map(|file| Violation::new(&file.path, 1, "syntax", "this is not Rust")).collect()
}

/// No function has more than 70 lines from its signature to its closing brace.
pub fn functions_are_short(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in tree.rust() {
        let mut visitor = Lengths { path: &file.path, violations: &mut violations };
        if let Some(syntax) = &file.syntax {
            visitor.visit_file(syntax);
        }
    }
    violations
}

struct Lengths<'v> {
    path: &'v str,
    violations: &'v mut Vec<Violation>,
}

impl Lengths<'_> {
    fn check(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let (first, last) = (signature.span().start().line, body.span().end().line);
        let lines = last + 1 - first;
        if lines > LINES_MAX {
            let message = format!("`{}` has {lines} lines, at most {LINES_MAX}", signature.ident);
            self.violations.push(Violation::new(self.path, first, "function-length", message));
        }
    }
}

impl<'ast> Visit<'ast> for Lengths<'_> {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.check(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.check(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(body) = &function.default {
            self.check(&function.sig, body);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::judge;

    #[test]
    fn long_functions_are_found_wherever_they_are() {
        let body = |lines: usize| format!("{{{}}}", "\n".repeat(lines - 1));
        let text = format!(
            "/// Documented.\n#[inline]\nfn a() {}\nimpl S {{ fn b() {} }}\ntrait T {{ fn c() {} fn d(); }}",
            body(71),
            body(70),
            body(72),
        );
        assert_eq!(
            judge(functions_are_short, &[("a.rs", &text)]),
            [
                "a.rs:3: function-length: `a` has 71 lines, at most 70",
                "a.rs:144: function-length: `c` has 72 lines, at most 70",
            ]
        );
    }

    #[test]
    fn a_file_that_is_no_rust_is_found() {
        assert_eq!(
            judge(sources_parse, &[("a.rs", "fn a("), ("b.rs", "")]),
            ["a.rs:1: syntax: this is not Rust"]
        );
    }
}
