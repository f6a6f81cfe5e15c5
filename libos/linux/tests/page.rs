//! docs/linux.md says what the table of calls says. `NOM_WRITE_PAGES=1` writes it anew.

use nom_linux::table::{self, Standing, SystemCall};
use std::fmt::Write;
use std::path::Path;

const MARK: &str = "<!-- calls: made from libos/linux/src/table by tests/page.rs there -->\n";

fn table() -> String {
    let mut calls: Vec<&SystemCall> = table::all().collect();
    calls.sort_by_key(|call| call.number);
    let mut counts = [0; 3];
    let mut text = String::new();
    for call in &calls {
        let (index, standing) = match call.standing {
            Standing::Complete => (0, "complete".to_owned()),
            Standing::Partial(how) => (1, format!("partial: {how}")),
            Standing::Refused(why) => (2, format!("refused: {why}")),
        };
        counts[index] += 1;
        let arguments = call.arguments.join(", ");
        writeln!(text, "| {} | `{}({arguments})` | {standing} |", call.number, call.name).unwrap();
    }
    let [complete, partial, refused] = counts;
    format!(
        "{} calls: {complete} complete, {partial} partial, {refused} refused.\n\n\
         | number | call | what there is of it |\n|---|---|---|\n{text}",
        calls.len()
    )
}

#[test]
fn the_page_says_what_the_table_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/linux.md");
    let page = std::fs::read_to_string(&path).expect("the page");
    let (head, _) = page.split_once(MARK).expect("the mark behind which the table is");
    let expected = format!("{head}{MARK}{}", table());
    if std::env::var_os("NOM_WRITE_PAGES").is_some() {
        std::fs::write(&path, &expected).expect("it can be written");
    }
    assert!(
        std::fs::read_to_string(&path).expect("the page") == expected,
        "docs/linux.md is not what the table says: NOM_WRITE_PAGES=1 cargo test -p nom-linux --test page"
    );
}
