//! A table for a person: on the terminal, and in a report.

use maud::{Markup, Render, html};
use std::fmt;

/// Rows of texts under a title. The first column names the row, the others are values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    title: String,
    head: Vec<String>,
    rows: Vec<Vec<String>>,
    remarks: Vec<String>,
}

impl Table {
    /// A table without rows.
    pub fn new<S: Into<String>>(title: &str, head: impl IntoIterator<Item = S>) -> Table {
        Table { title: title.into(), head: head.into_iter().map(Into::into).collect(), ..Table::default() }
    }

    /// The same with one more row; cells that are missing are empty.
    #[must_use]
    pub fn row<S: Into<String>>(mut self, cells: impl IntoIterator<Item = S>) -> Table {
        let mut row: Vec<String> = cells.into_iter().map(Into::into).collect();
        row.resize(self.head.len(), String::new());
        self.rows.push(row);
        self
    }

    /// The same with one more sentence below it.
    #[must_use]
    pub fn remark(mut self, sentence: impl Into<String>) -> Table {
        self.remarks.push(sentence.into());
        self
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().chain([&self.head]).filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    }

    fn line(&self, cells: &[String]) -> String {
        let cell = |(column, cell): (usize, &String)| {
            let width = self.width(column);
            if column == 0 { format!("{cell:width$}") } else { format!("{cell:>width$}") }
        };
        cells.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ")
    }
}

impl fmt::Display for Table {
    /// Aligned columns, each line ended.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        for row in [&self.head].into_iter().chain(&self.rows) {
            writeln!(f, "  {}", self.line(row).trim_end())?;
        }
        self.remarks.iter().try_for_each(|remark| writeln!(f, "  {remark}"))
    }
}

impl Render for Table {
    fn render(&self) -> Markup {
        html! {
            h2 { (self.title) }
            table {
                tr { @for (column, name) in self.head.iter().enumerate() {
                    th class=[(column > 0).then_some("value")] { (name) }
                } }
                @for row in &self.rows {
                    tr { @for (column, cell) in row.iter().enumerate() {
                        td class=[(column > 0).then_some("value")] { (cell) }
                    } }
                }
            }
            @for remark in &self.remarks { p { small { (remark) } } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_short_rows_filled() {
        let table = Table::new("Profit", ["system", "penalty", "bonus"])
            .row(["linux", "-$0.10", "$12.00"])
            .row(["nom \u{b5}s", "$7.00"])
            .remark("Of one minute.");
        let expected = "Profit\n  system  penalty   bonus\n  linux    -$0.10  $12.00\n  \
                        nom \u{b5}s    $7.00\n  \
                        Of one minute.\n";
        assert_eq!(table.to_string(), expected);
        let page = table.render().into_string();
        assert!(
            page.contains("<td class=\"value\">-$0.10</td>") && page.contains("<td>linux</td>"),
            "{page}"
        );
    }
}
