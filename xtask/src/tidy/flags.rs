//! No `bool` is an argument of a public function of the economy and of the library OS: where it is called,
//! `true` says nothing. An enum says it, or two functions do.

use super::Violation;
use super::tree::Tree;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Functions that take one, by the file's path and their name: switches, nearly all. None is to be added.
const KNOWN: &[(&str, &str)] = &[
    ("economy/src/controller/change.rs", "consider"),
    ("libos/earn/src/solvency.rs", "new"),
    ("libos/net/src/batch.rs", "reason"),
    ("libos/net/src/frame.rs", "put_checksum"),
    ("libos/net/src/packet.rs", "answer"),
    ("libos/net/src/packet.rs", "udp"),
    ("libos/net/src/stack/moves.rs", "set_admitting"),
    ("libos/net/src/tcp/congestion.rs", "timed_out"),
    ("libos/net/src/tcp/flight.rs", "lose_all"),
    ("libos/net/src/tcp/undo.rs", "new"),
    ("libos/serve/src/plan.rs", "next"),
    ("libos/socket/src/stream.rs", "new"),
    ("libos/sys/src/devices.rs", "mask_interrupt"),
    ("libos/virtio/src/memory.rs", "set_scarce"),
    ("libos/virtio/src/net/control.rs", "set_all_multicast"),
    ("libos/virtio/src/net/control.rs", "set_promiscuous"),
    ("libos/virtio/src/pool.rs", "set_scarce"),
    ("libos/virtio/src/queue.rs", "table_entry"),
];

/// No public function of `economy` or `libos` takes a `bool`, but for those of [`KNOWN`].
pub fn arguments_say_what_they_mean(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    let is_covered = |path: &str| {
        (path.starts_with("economy/src/") || path.starts_with("libos/") && path.contains("/src/"))
            && !path.ends_with("tests.rs")
            && !path.contains("/tests/")
    };
    for file in tree.rust().filter(|file| is_covered(&file.path)) {
        let mut visitor = Arguments { path: &file.path, violations: &mut violations };
        if let Some(syntax) = &file.syntax {
            visitor.visit_file(syntax);
        }
    }
    violations
}

struct Arguments<'v> {
    path: &'v str,
    violations: &'v mut Vec<Violation>,
}

impl Arguments<'_> {
    fn check(&mut self, signature: &syn::Signature) {
        let name = signature.ident.to_string();
        let takes_one = signature.inputs.iter().any(|input| match input {
            syn::FnArg::Typed(argument) => is_bool(&argument.ty),
            syn::FnArg::Receiver(_) => false,
        });
        if takes_one && !KNOWN.contains(&(self.path, &name)) {
            let message = format!("`{name}` takes a `bool`: take an enum, or make it two functions");
            self.violations.push(Violation::new(self.path, signature.span().start().line, "bool", message));
        }
    }
}

fn is_bool(ty: &syn::Type) -> bool {
    matches!(ty, syn::Type::Path(path) if path.path.is_ident("bool"))
}

impl<'ast> Visit<'ast> for Arguments<'_> {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        if matches!(function.vis, syn::Visibility::Public(_)) {
            self.check(&function.sig);
        }
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if matches!(function.vis, syn::Visibility::Public(_)) {
            self.check(&function.sig);
        }
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        if matches!(item.vis, syn::Visibility::Public(_)) {
            item.items.iter().for_each(|item| {
                if let syn::TraitItem::Fn(function) = item {
                    self.check(&function.sig);
                }
            });
        }
        visit::visit_item_trait(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::super::judge;
    use super::*;

    #[test]
    fn a_bool_as_argument_of_a_public_function_is_found() {
        let text = "pub fn a(on: bool) {} fn b(on: bool) {} trait U { fn g(on: bool); } pub struct S; \
                    impl S { pub fn c(&self, on: bool) {} fn d(&self, on: bool) {} pub fn e(&self) -> bool \
                    { true } } pub trait T { fn f(on: bool); }";
        let found =
            judge(arguments_say_what_they_mean, &[("libos/x/src/lib.rs", text), ("host/x/src/lib.rs", text)]);
        let named: Vec<_> = found.iter().filter_map(|line| line.split('`').nth(1)).collect();
        assert_eq!(named, ["a", "c", "f"], "{found:?}");
        let known = [("libos/net/src/batch.rs", "pub fn reason(ring_threatened: bool) {}")];
        assert!(judge(arguments_say_what_they_mean, &known).is_empty());
    }
}
