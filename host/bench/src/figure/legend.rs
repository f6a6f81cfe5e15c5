//! The names of a figure's series, below the figure, where they hide nothing.

use super::{Area, COLOURS, DrawError};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Height of a row of names, in pixels, as all that follows.
const ROW: u32 = 20;
/// From the left edge to the first name, which is where the plot begins.
const LEFT: i32 = 88;
/// Width of a series' mark, with the gap behind it.
const MARK: i32 = 16;
/// Gap behind a name.
const GAP: i32 = 18;
/// A letter of the font below is at most about so wide on average.
const LETTER: i32 = 7;
const FONT: (&str, u32) = ("sans-serif", 13);

/// Draws the names of series below the figure; returns what is left for it.
pub(super) fn draw<'a>(area: &Area<'a>, names: &[&str]) -> Result<Area<'a>, DrawError> {
    let (width, height) = area.dim_in_pixel();
    let (places, rows) = places(names, width as i32);
    let (figure, below) = area.split_vertically(height.saturating_sub(rows * ROW));
    let style = FONT.into_font().color(&BLACK).pos(Pos::new(HPos::Left, VPos::Center));
    for ((name, (x, row)), colour) in names.iter().zip(places).zip(COLOURS.iter().cycle()) {
        let y = (row * ROW + ROW / 2) as i32 - 4;
        below.draw(&Rectangle::new([(x, y - 5), (x + 10, y + 5)], colour.filled()))?;
        below.draw(&Text::new((*name).to_owned(), (x + MARK, y), style.clone()))?;
    }
    Ok(figure)
}

/// Where each name begins: pixels from the left, and row; and how many rows there are.
fn places(names: &[&str], width: i32) -> (Vec<(i32, u32)>, u32) {
    let (mut x, mut row) = (LEFT, 0);
    let mut places = Vec::new();
    for name in names {
        let wide = MARK + name.chars().count() as i32 * LETTER;
        if x > LEFT && x + wide > width {
            (x, row) = (LEFT, row + 1);
        }
        places.push((x, row));
        x += wide + GAP;
    }
    let rows = if names.is_empty() { 0 } else { row + 1 };
    (places, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_do_not_fit_go_to_another_row() {
        assert_eq!(places(&[], 300), (vec![], 0));
        let (found, rows) = places(&["nom", "linux", "a name that is rather long"], 300);
        assert_eq!((found, rows), (vec![(88, 0), (143, 0), (88, 1)], 2));
        let (found, rows) = places(&["a name that is much too long for the figure"], 100);
        assert_eq!((found, rows), (vec![(88, 0)], 1));
    }
}
