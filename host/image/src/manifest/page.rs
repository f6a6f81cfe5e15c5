//! The documentation page of the manifest, made from the parser's own table.

use super::fields::{Field, RawActivity, RawApplication, RawDevice, RawGrid, RawGroup, RawPeer, RawResource};
use super::utility;
use std::fmt::Write;

/// The page `docs/manifest.md`; a test holds the file to it.
pub fn page() -> String {
    let (own, of_bundles): (Vec<_>, Vec<_>) =
        RawApplication::FIELDS.iter().partition(|field| field.name != "file");
    let template = include_str!("page.md");
    [
        ("{APPLICATION}", table(own)),
        ("{DEVICE}", table(RawDevice::FIELDS.iter())),
        ("{PEER}", table(RawPeer::FIELDS.iter())),
        ("{ACTIVITY}", table(RawActivity::FIELDS.iter())),
        ("{GRID}", table(RawGrid::FIELDS.iter())),
        ("{RESOURCE}", table(RawResource::FIELDS.iter())),
        ("{GROUP}", table(RawGroup::FIELDS.iter())),
        ("{UTILITY}", table(utility::FIELDS)),
        ("{TERM}", utility::terms()),
        ("{ENTRY}", table(of_bundles)),
    ]
    .into_iter()
    .fold(template.to_owned(), |page, (mark, table)| page.replace(mark, &table))
}

fn table<'f>(fields: impl IntoIterator<Item = &'f Field>) -> String {
    let mut table = String::from("| field | value | default | meaning |\n|---|---|---|---|");
    for Field { name, expected, default, text } in fields {
        write!(table, "\n| `{name}` | {expected} | {default} | {} |", text.trim())
            .expect("a String takes everything");
    }
    table
}
