//! Lines over a common axis.

use super::{Area, COLOURS, DrawError, SIZE, Scale, legend, short, svg};
use anyhow::Result;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use std::ops::Range;

/// Lines with a mark at each point.
#[derive(Clone, Debug, PartialEq)]
pub struct Lines {
    /// File name without its ending.
    pub name: String,
    /// What the figure shows.
    pub title: String,
    /// What the horizontal and the vertical axis count.
    pub axes: [String; 2],
    /// Of both axes.
    pub scale: Scale,
    /// The lines, in the order of the legend.
    pub lines: Vec<Line>,
}

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// Its points, in the order in which they are joined; on a logarithmic scale all numbers are positive.
    pub points: Vec<(f64, f64)>,
    /// A text at each point; none, or as many as points.
    pub labels: Vec<String>,
    /// Whether its points are joined.
    pub is_joined: bool,
}

impl Line {
    /// A line without texts at its points.
    pub fn plain(name: impl Into<String>, points: Vec<(f64, f64)>) -> Line {
        Line { name: name.into(), points, labels: Vec::new(), is_joined: true }
    }
}

impl Lines {
    /// Draws the figure.
    pub fn to_svg(&self) -> Result<String> {
        svg(&self.name, SIZE, |area| self.draw(area))
    }

    /// Whether there is no point.
    pub fn is_empty(&self) -> bool {
        self.lines.iter().all(|line| line.points.is_empty())
    }

    /// Draws the figure on a part of a picture.
    pub(super) fn draw(&self, area: &Area) -> Result<(), DrawError> {
        area.fill(&WHITE)?;
        let names: Vec<&str> = self.lines.iter().map(|line| line.name.as_str()).collect();
        let area = &legend::draw(area, &names)?;
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let (across, up) = (points().map(|point| point.0), points().map(|point| point.1));
        match self.scale {
            Scale::Logarithmic => self.draw_in(area, decades(across).log_scale(), decades(up).log_scale()),
            Scale::Linear => self.draw_in(area, span(across), span(up)),
        }
    }

    fn draw_in<X, Y>(&self, area: &Area, across: X, up: Y) -> Result<(), DrawError>
    where
        X: AsRangedCoord<Value = f64, CoordDescType: ValueFormatter<f64>>,
        Y: AsRangedCoord<Value = f64, CoordDescType: ValueFormatter<f64>>,
    {
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(76)
            .build_cartesian_2d(across, up)?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .x_desc(&self.axes[0])
            .y_desc(&self.axes[1])
            .x_label_formatter(&|value| short(*value))
            .y_label_formatter(&|value| short(*value))
            .label_style(("sans-serif", 13))
            .draw()?;
        for (line, colour) in self.lines.iter().zip(COLOURS.iter().cycle()) {
            let points = line.points.iter().copied();
            if line.is_joined {
                chart.draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?;
            }
            chart.draw_series(points.map(|point| Circle::new(point, 3, colour.filled())))?;
            chart.draw_series(line.points.iter().zip(&line.labels).map(|(point, label)| {
                EmptyElement::at(*point) + Text::new(label.clone(), (6, -14), ("sans-serif", 12))
            }))?;
        }
        Ok(())
    }
}

/// From a little below the smallest to a little above the largest value.
fn decades(values: impl Iterator<Item = f64> + Clone) -> Range<f64> {
    let smallest = values.clone().filter(|value| *value > 0.0).reduce(f64::min).unwrap_or(1.0);
    let largest = values.reduce(f64::max).unwrap_or(1.0).max(smallest);
    smallest / 1.25..largest * 1.25
}

/// From zero, or a little below the smallest value, to a little above the largest, or to zero.
pub(super) fn span(values: impl Iterator<Item = f64> + Clone) -> Range<f64> {
    let smallest = values.clone().fold(0.0, f64::min);
    let largest = values.fold(0.0, f64::max);
    let room = if largest > smallest { 0.12 * (largest - smallest) } else { 1.0 };
    let bottom = if smallest < 0.0 { smallest - room } else { 0.0 };
    bottom..if largest > 0.0 || smallest == 0.0 { largest + room } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_is_valid_xml_and_names_everything() {
        let points = vec![(1.0, 1e3), (64.0, 2e6)];
        let line = Line {
            name: "nom & <co>".into(),
            points,
            labels: vec!["W=0".into(), "W=5".into()],
            is_joined: false,
        };
        let lines = Lines {
            name: "sizes".into(),
            title: "Sizes".into(),
            axes: ["bytes".into(), "bit/s".into()],
            scale: Scale::Logarithmic,
            lines: vec![line],
        };
        let svg = lines.to_svg().unwrap();
        let document = roxmltree::Document::parse(&svg).unwrap();
        let text: String = document.descendants().filter_map(|node| node.text()).collect();
        for expected in ["Sizes", "bytes", "bit/s", "nom & <co>", "W=5"] {
            assert!(text.contains(expected), "{expected:?} is not in {text:?}");
        }
        let linear = Lines { scale: Scale::Linear, ..lines };
        assert!(roxmltree::Document::parse(&linear.to_svg().unwrap()).is_ok());
        let empty = Lines { lines: vec![], ..linear };
        assert!(empty.to_svg().unwrap().starts_with("<svg"));
    }

    #[test]
    fn a_range_holds_its_values() {
        assert_eq!(decades([2.0, 8.0].into_iter()), 1.6..10.0);
        assert_eq!(decades([0.0].into_iter()), 0.8..1.25);
        assert_eq!(span([50.0, 100.0].into_iter()), 0.0..112.0);
        assert_eq!(span([-100.0, -50.0].into_iter()), -112.0..0.0);
        assert_eq!(span([0.0].into_iter()), 0.0..1.0);
    }

    /// A label at the edge, in every corner, where a legend in the plot would hide one.
    #[test]
    fn no_label_is_hidden_by_the_legend() {
        let corners = vec![(1.0, 1.0), (1.0, 1e3), (1e3, 1.0), (1e3, 1e3)];
        let labels: Vec<String> = (1..=4).map(|number| format!("corner {number}")).collect();
        let line = |name: &str| Line { labels: labels.clone(), ..Line::plain(name, corners.clone()) };
        let lines = Lines {
            name: String::new(),
            title: String::new(),
            axes: ["across".into(), "up".into()],
            scale: Scale::Logarithmic,
            lines: vec![line("series 1"), line("series 2")],
        };
        let svg = lines.to_svg().unwrap();
        let document = roxmltree::Document::parse(&svg).unwrap();
        let down = |text: &str| -> Vec<f64> {
            let texts = document.descendants().filter(|node| node.has_tag_name("text"));
            let named = texts.filter(|node| node.text().is_some_and(|found| found.trim().starts_with(text)));
            named.map(|node| node.attribute("y").unwrap().parse().unwrap()).collect()
        };
        assert_eq!((down("corner").len(), down("series").len()), (8, 2));
        let lowest = down("corner").into_iter().chain(down("across")).fold(0.0, f64::max);
        assert!(down("series").iter().all(|y| *y > lowest), "{:?} and {lowest}", down("series"));
    }
}
