//! Figures as SVG.

mod bars;
mod legend;
mod lines;
mod panels;
mod stacks;

pub use bars::Bars;
pub use lines::{Line, Lines};
pub use panels::Panels;
pub use stacks::Stacks;

use anyhow::{Result, anyhow};
use plotters::prelude::*;

/// A figure of any kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Figure {
    /// Bars in groups.
    Bars(Bars),
    /// Lines over a common axis.
    Lines(Lines),
    /// Several of them, one above the other.
    Panels(Panels),
    /// Bars of parts.
    Stacks(Stacks),
}

/// How an axis maps values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// What differs by orders of magnitude stays readable; values are positive.
    Logarithmic,
    /// From zero, on either side.
    Linear,
}

impl Figure {
    /// File name without its ending.
    pub fn name(&self) -> &str {
        match self {
            Figure::Bars(bars) => &bars.name,
            Figure::Lines(lines) => &lines.name,
            Figure::Panels(panels) => &panels.name,
            Figure::Stacks(stacks) => &stacks.name,
        }
    }

    /// Draws the figure.
    pub fn to_svg(&self) -> Result<String> {
        match self {
            Figure::Bars(bars) => bars.to_svg(),
            Figure::Lines(lines) => lines.to_svg(),
            Figure::Panels(panels) => panels.to_svg(),
            Figure::Stacks(stacks) => stacks.to_svg(),
        }
    }

    /// Whether there is nothing to see.
    pub fn is_empty(&self) -> bool {
        match self {
            Figure::Bars(bars) => bars.series.is_empty(),
            Figure::Lines(lines) => lines.is_empty(),
            Figure::Panels(panels) => panels.panels.iter().all(Lines::is_empty),
            Figure::Stacks(stacks) => stacks.bars.is_empty(),
        }
    }
}

const SIZE: (u32, u32) = (860, 420);
/// Okabe and Ito's colours, which colour-blind readers can tell apart, and some more.
const COLOURS: [RGBColor; 11] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(0, 0, 0),
    RGBColor(240, 228, 66),
    RGBColor(153, 153, 153),
    RGBColor(120, 94, 60),
    RGBColor(190, 186, 218),
];
type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type DrawError = DrawingAreaErrorKind<<SVGBackend<'static> as DrawingBackend>::ErrorType>;

/// The picture that `draw` draws.
fn svg(name: &str, size: (u32, u32), draw: impl FnOnce(&Area) -> Result<(), DrawError>) -> Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        draw(&area)
            .and_then(|()| area.present())
            .map_err(|error| anyhow!("cannot draw figure {name}: {error}"))?;
    }
    Ok(svg)
}

/// A number in few characters: `1.6G`, `420`, `3m`.
fn short(value: f64) -> String {
    const STEPS: [(f64, &str); 7] =
        [(1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "\u{b5}"), (1e-9, "n")];
    let (step, name) = STEPS.into_iter().find(|(step, _)| value.abs() >= *step).unwrap_or((1.0, ""));
    let number = value / step;
    let digits = if number.abs() >= 10.0 || number.fract() == 0.0 { 0 } else { 1 };
    format!("{number:.digits$}{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, text) in
            [(1.5e9, "1.5G"), (420.0, "420"), (0.003, "3m"), (2e-7, "200n"), (0.0, "0"), (-42.5, "-42")]
        {
            assert_eq!(short(value), text);
        }
    }
}
