//! Bars of parts, one on top of the other.

use super::{Area, COLOURS, DrawError, SIZE, legend, short, svg};
use anyhow::Result;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Bars that are made of parts.
#[derive(Clone, Debug, PartialEq)]
pub struct Stacks {
    /// File name without its ending.
    pub name: String,
    /// What the figure shows.
    pub title: String,
    /// What the vertical axis counts.
    pub axis: String,
    /// Names of the parts, from below.
    pub parts: Vec<String>,
    /// Each bar's name and how much of each part it has.
    pub bars: Vec<(String, Vec<f64>)>,
}

/// Share of a bar's place that it fills.
const FILLED: f64 = 0.5;
/// Share of the scale that is left free for the sums on the bars.
const SUMS: f64 = 0.1;

impl Stacks {
    /// Draws the figure.
    pub fn to_svg(&self) -> Result<String> {
        svg(&self.name, SIZE, |area| self.draw(area))
    }

    fn draw(&self, area: &Area) -> Result<(), DrawError> {
        area.fill(&WHITE)?;
        let names: Vec<&str> = self.parts.iter().map(String::as_str).collect();
        let area = &legend::draw(area, &names)?;
        let highest = self.bars.iter().map(|(_, values)| values.iter().sum()).fold(1.0, f64::max);
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(32)
            .y_label_area_size(76)
            .build_cartesian_2d(0.0..self.bars.len().max(1) as f64, 0.0..highest * (1.0 + SUMS))?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .disable_x_axis()
            .light_line_style(WHITE)
            .y_desc(&self.axis)
            .y_label_formatter(&|value| short(*value))
            .label_style(("sans-serif", 13))
            .draw()?;
        for part in 0..self.parts.len() {
            let colour = COLOURS[part % COLOURS.len()];
            chart.draw_series(
                self.pieces(part).into_iter().map(|piece| Rectangle::new(piece, colour.filled())),
            )?;
        }
        let style = |side| ("sans-serif", 13).into_font().color(&BLACK).pos(Pos::new(HPos::Center, side));
        chart.draw_series(self.bars.iter().enumerate().map(|(index, (_, values))| {
            let sum: f64 = values.iter().sum();
            Text::new(format!("{sum:.0}"), (index as f64 + 0.5, sum), style(VPos::Bottom))
        }))?;
        chart.draw_series(self.bars.iter().enumerate().map(|(index, (label, _))| {
            EmptyElement::at((index as f64 + 0.5, 0.0)) + Text::new(label.clone(), (0, 8), style(VPos::Top))
        }))?;
        Ok(())
    }

    /// Two opposite corners of part `part` of each bar.
    fn pieces(&self, part: usize) -> Vec<[(f64, f64); 2]> {
        let bars = self.bars.iter().enumerate();
        let piece = |(index, (_, values)): (usize, &(String, Vec<f64>))| {
            let value = *values.get(part)?;
            let below: f64 = values[..part].iter().sum();
            let left = index as f64 + (1.0 - FILLED) / 2.0;
            Some([(left, below), (left + FILLED, below + value)])
        };
        bars.filter_map(piece).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stacks() -> Stacks {
        Stacks {
            name: "parts".into(),
            title: "Parts".into(),
            axis: "instructions".into(),
            parts: vec!["in".into(), "out".into()],
            bars: vec![("get".into(), vec![100.0, 40.0]), ("page".into(), vec![7.0, 300.0])],
        }
    }

    #[test]
    fn a_part_stands_on_the_one_before() {
        assert_eq!(stacks().pieces(1), [[(0.25, 100.0), (0.75, 140.0)], [(1.25, 7.0), (1.75, 307.0)]]);
    }

    #[test]
    fn the_figure_names_parts_and_bars_and_tells_sums() {
        let svg = stacks().to_svg().unwrap();
        for expected in ["\nin\n", "\nout\n", "\nget\n", "\n140\n", "\n307\n"] {
            assert!(svg.contains(expected), "{expected:?} is not in {svg}");
        }
        let empty = Stacks { bars: vec![], ..stacks() };
        assert!(empty.to_svg().unwrap().starts_with("<svg"));
    }
}
