//! All generated mutants of a file in one text, of which each run switches one on: what takes its time is to
//! build, and so it is done once. Compilers refuse some of them; those are found by where the errors are.

use super::generated::Generated;
use proc_macro2::LineColumn;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// The module that knows which mutant is on. Constants are computed before anybody can know.
pub const SWITCH: &str = r#"
extern crate std as for_mutants;
/// Which mutant is on.
pub mod mutant {
    use super::for_mutants::sync::OnceLock;
    static ON: OnceLock<u32> = OnceLock::new();
    const fn never(_: u32) -> bool {
        false
    }
    fn at_run_time(number: u32) -> bool {
        let on = ON.get_or_init(|| {
            // The first test that fails is enough.
            if super::for_mutants::env::var_os("NOM_MUTANT").is_some() {
                super::for_mutants::panic::set_hook(super::for_mutants::boxed::Box::new(|what| {
                    super::for_mutants::eprintln!("{what}");
                    super::for_mutants::process::exit(101);
                }));
            }
            super::for_mutants::env::var("NOM_MUTANT").ok().and_then(|word| word.parse().ok()).unwrap_or(0)
        });
        *on == number
    }
    /// Whether it is this one.
    pub const fn is(number: u32) -> bool {
        core::intrinsics::const_eval_select((number,), never, at_run_time)
    }
}
"#;
/// What the crate needs for that.
pub const FEATURES: &str = "#![feature(core_intrinsics, const_eval_select)]\n";

/// A file with its mutants.
#[derive(Debug, Default)]
pub struct Schemata {
    pub text: String,
    /// Which lines are which mutant's.
    pub lines: BTreeMap<usize, u32>,
    /// Those that are in it.
    pub present: Vec<u32>,
}

/// Text to be put in at a place.
#[derive(Debug)]
struct Insertion {
    at: usize,
    text: String,
    /// Lines of the text, counted from 0, that are a mutant's.
    owned: Vec<(Range<usize>, u32)>,
}

/// Puts the mutants, with the numbers that they have in the run, into a file's text.
///
/// # Errors
/// If it is no Rust.
pub fn weave(text: &str, mutants: &[(u32, &Generated)]) -> syn::Result<Schemata> {
    let mut wanted: BTreeMap<(usize, usize), Vec<(u32, &Generated)>> = BTreeMap::new();
    for &(number, mutant) in mutants {
        wanted.entry(mutant.span.start.place()).or_default().push((number, mutant));
    }
    let file = syn::parse_file(text)?;
    let mut weaver = Weaver { text, wanted, before: Vec::new(), after: Vec::new(), present: Vec::new() };
    weaver.visit_file(&file);
    let Weaver { before, mut after, present, .. } = weaver;
    // What ends at one place ends from the inside out, and before anything begins there.
    after.reverse();
    after.extend(before);
    after.sort_by_key(|insertion| insertion.at);
    Ok(assemble(text, &after, present))
}

fn assemble(text: &str, insertions: &[Insertion], present: Vec<u32>) -> Schemata {
    let mut all = Schemata { present, ..Schemata::default() };
    let (mut done, mut line) = (0, 1);
    for insertion in insertions {
        let original = &text[done..insertion.at];
        line += original.matches('\n').count();
        for (range, number) in &insertion.owned {
            all.lines.extend(range.clone().map(|owned| (line + owned, *number)));
        }
        line += insertion.text.matches('\n').count();
        all.text.extend([original, &insertion.text]);
        done = insertion.at;
    }
    all.text.push_str(&text[done..]);
    all
}

struct Weaver<'a> {
    text: &'a str,
    wanted: BTreeMap<(usize, usize), Vec<(u32, &'a Generated)>>,
    before: Vec<Insertion>,
    after: Vec<Insertion>,
    present: Vec<u32>,
}

impl<'a> Weaver<'a> {
    /// Takes the mutants of some kind that begin there.
    fn take(&mut self, at: LineColumn, genre: &str) -> Vec<(u32, &'a Generated)> {
        let here = self.wanted.get(&(at.line, at.column + 1)).map(Vec::as_slice).unwrap_or_default();
        let found: Vec<_> = here.iter().filter(|(_, mutant)| mutant.genre == genre).copied().collect();
        self.present.extend(found.iter().map(|(number, _)| number));
        found
    }

    fn source(&self, span: impl Spanned) -> &'a str {
        &self.text[span.span().byte_range()]
    }

    /// `(if is(1) { ... } else if is(2) { ... } else { what stood there })`.
    fn choose(&mut self, place: Range<usize>, label: &str, choices: &[(u32, String)]) {
        if choices.is_empty() {
            return;
        }
        let (mut text, mut owned) = (format!("{label}("), Vec::new());
        for (number, choice) in choices {
            let first = text.matches('\n').count();
            write!(text, "if crate::mutant::is({number}) {{\n{choice}\n}} else ").expect("it is a string");
            owned.push((first..text.matches('\n').count(), *number));
        }
        text.push('{');
        self.before.push(Insertion { at: place.start, text, owned });
        self.insert_after(place.end, "\n})");
    }

    fn insert_after(&mut self, at: usize, text: &str) {
        self.after.push(Insertion { at, text: text.to_owned(), owned: Vec::new() });
    }

    fn body(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let returns = match &signature.output {
            syn::ReturnType::Type(_, returns) => self.source(returns),
            syn::ReturnType::Default => "",
        };
        let Some(first) = block.stmts.first() else { return };
        // All that is returned must have one type, which nobody can name.
        if returns.contains("impl ") {
            return;
        }
        for (number, mutant) in self.take(first.span().start(), "FnValue") {
            let text = format!("\nif crate::mutant::is({number}) {{ return {}; }}\n", mutant.replacement);
            let owned = vec![(1..2, number)];
            self.before.push(Insertion { at: first.span().byte_range().start, text, owned });
        }
    }
}

/// Whether a condition binds something: it cannot stand in parentheses.
fn binds(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) => binds(&binary.left) || binds(&binary.right),
        _ => false,
    }
}

impl<'a> Visit<'a> for Weaver<'_> {
    fn visit_item_fn(&mut self, function: &'a syn::ItemFn) {
        self.body(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'a syn::ImplItemFn) {
        self.body(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'a syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.body(&function.sig, block);
        }
        visit::visit_trait_item_fn(self, function);
    }

    // Constants are computed before it is known which mutant is on.
    fn visit_item_const(&mut self, _: &'a syn::ItemConst) {}
    fn visit_impl_item_const(&mut self, _: &'a syn::ImplItemConst) {}
    fn visit_item_static(&mut self, _: &'a syn::ItemStatic) {}

    fn visit_expr_binary(&mut self, binary: &'a syn::ExprBinary) {
        if !binds(&binary.left) && !binds(&binary.right) {
            let (left, right) = (self.source(&binary.left), self.source(&binary.right));
            let found = self.take(binary.op.span().start(), "BinaryOperator");
            let choose = |(number, mutant): &(u32, &Generated)| {
                (*number, format!("{left}\n{}\n{right}", mutant.replacement))
            };
            let choices: Vec<_> = found.iter().map(choose).collect();
            self.choose(binary.span().byte_range(), "", &choices);
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_unary(&mut self, unary: &'a syn::ExprUnary) {
        let inner = self.source(&unary.expr);
        let found = self.take(unary.op.span().start(), "UnaryOperator");
        let choices: Vec<_> = found.iter().map(|(number, _)| (*number, inner.to_owned())).collect();
        self.choose(unary.span().byte_range(), "", &choices);
        visit::visit_expr_unary(self, unary);
    }

    /// An arm that may be passed over counts for nothing, and each value must have one that counts.
    fn visit_expr_match(&mut self, choice: &'a syn::ExprMatch) {
        let is_rest = |arm: &syn::Arm| arm.guard.is_none() && matches!(arm.pat, syn::Pat::Wild(_));
        if !choice.arms.iter().any(is_rest) {
            for arm in &choice.arms {
                let start = arm.span().start();
                if let Some(here) = self.wanted.get_mut(&(start.line, start.column + 1)) {
                    here.retain(|(_, mutant)| mutant.genre != "MatchArm");
                }
            }
        }
        visit::visit_expr_match(self, choice);
    }

    fn visit_arm(&mut self, arm: &'a syn::Arm) {
        let mut conditions = String::new();
        for (number, _) in self.take(arm.span().start(), "MatchArm") {
            write!(conditions, "!crate::mutant::is({number}) && ").expect("it is a string");
        }
        match &arm.guard {
            None if conditions.is_empty() => {}
            None => {
                let text = format!(" if {}true ", conditions);
                self.insert_after(arm.pat.span().byte_range().end, &text);
            }
            Some((_, guard)) => {
                for (number, mutant) in self.take(guard.span().start(), "MatchArmGuard") {
                    let sign = if mutant.replacement == "true" { "" } else { "!" };
                    let joint = if mutant.replacement == "true" { "||" } else { "&&" };
                    write!(conditions, "({sign}crate::mutant::is({number}) {joint} ")
                        .expect("it is a string");
                }
                let place = guard.span().byte_range();
                let ends = ")".repeat(conditions.matches('(').count() - conditions.matches("is(").count());
                if !conditions.is_empty() {
                    self.before.push(Insertion {
                        at: place.start,
                        text: format!("{conditions}("),
                        owned: Vec::new(),
                    });
                    self.insert_after(place.end, &format!("){ends}"));
                }
            }
        }
        visit::visit_arm(self, arm);
    }

    fn visit_expr_struct(&mut self, literal: &'a syn::ExprStruct) {
        if let Some(rest) = &literal.rest {
            let (rest, path) = (self.source(rest), self.source(&literal.path));
            for field in &literal.fields {
                let name = self.source(&field.member);
                let found = self.take(field.span().start(), "StructField");
                let choice = format!("let rest: {path} = {rest}; rest.{name}");
                let choices: Vec<_> = found.iter().map(|(number, _)| (*number, choice.clone())).collect();
                let label = if field.colon_token.is_some() { String::new() } else { format!("{name}: ") };
                self.choose(field.expr.span().byte_range(), &label, &choices);
            }
        }
        visit::visit_expr_struct(self, literal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
const TWICE: u32 = 1 + 1;
fn f(a: u32, b: u32) -> u32 {
    let both = a + b;
    match both {
        0 if a == b => 7,
        1 => TWICE,
        _ => S { x: a, ..S::new() }.x,
    }
}
fn all() -> impl Iterator<Item = u32> {
    0..!4
}
";

    fn mutant(genre: &str, start: (usize, usize), replacement: &str) -> Generated {
        let span = serde_json::json!({
            "start": { "line": start.0, "column": start.1 },
            "end": { "line": start.0, "column": start.1 + 1 },
        });
        let all = serde_json::json!({
            "name": "", "package": "", "file": "", "genre": genre, "replacement": replacement, "span": span,
        });
        serde_json::from_value(all).expect("it has all fields")
    }

    fn woven(mutants: &[Generated]) -> Schemata {
        let numbered: Vec<(u32, &Generated)> = (1..).zip(mutants).collect();
        let woven = weave(TEXT, &numbered).expect("it is Rust");
        syn::parse_file(&woven.text).unwrap_or_else(|error| panic!("{error}:\n{}", woven.text));
        woven
    }

    #[test]
    fn each_kind_is_switched_where_it_stands() {
        for (genre, start, replacement, expected) in [
            ("FnValue", (3, 5), "0", "if crate::mutant::is(1) { return 0; }\nlet both"),
            ("BinaryOperator", (3, 18), "-", "(if crate::mutant::is(1) {\na\n-\nb\n} else {a + b\n})"),
            ("UnaryOperator", (11, 8), "", "(if crate::mutant::is(1) {\n4\n} else {!4\n})"),
            ("MatchArm", (6, 9), "", "1 if !crate::mutant::is(1) && true  =>"),
            ("MatchArm", (5, 9), "", "0 if !crate::mutant::is(1) && (a == b) =>"),
            ("MatchArmGuard", (5, 14), "true", "if (crate::mutant::is(1) || (a == b)) =>"),
            ("MatchArmGuard", (5, 14), "false", "if (!crate::mutant::is(1) && (a == b)) =>"),
            (
                "StructField",
                (7, 18),
                "",
                "x: (if crate::mutant::is(1) {\nlet rest: S = S::new(); rest.x\n} else {a",
            ),
        ] {
            let woven = woven(&[mutant(genre, start, replacement)]);
            let text = woven.text.replace("\n\nif", "\nif").replace("\n\n", "\n");
            assert!(text.contains(expected), "{genre}:\n{text}");
            assert_eq!(woven.present, [1]);
        }
    }

    #[test]
    fn what_cannot_be_switched_is_left_out() {
        let constant = mutant("BinaryOperator", (1, 22), "-");
        let opaque = mutant("FnValue", (11, 5), "::std::iter::empty()");
        let woven = woven(&[constant, opaque]);
        assert_eq!((woven.text.as_str(), woven.present.len()), (TEXT, 0));
    }

    #[test]
    fn an_error_in_a_line_is_the_mutants_whose_line_it_is() {
        let mutants = [
            mutant("FnValue", (3, 5), "nonsense()"),
            mutant("BinaryOperator", (3, 18), "-"),
            mutant("BinaryOperator", (3, 18), "*"),
        ];
        let woven = woven(&mutants);
        let line = |text: &str| 1 + woven.text.lines().position(|line| line == text).expect(text);
        assert_eq!(woven.lines.get(&line("if crate::mutant::is(1) { return nonsense(); }")), Some(&1));
        assert_eq!([line("-"), line("*")].map(|line| woven.lines.get(&line)), [Some(&2), Some(&3)]);
        assert_eq!(woven.lines.get(&line("    match both {")), None);
    }
}
