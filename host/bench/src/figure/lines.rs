//! Lines over a common axis.

use super::{Area, COLOURS, DrawError, short, svg};
use anyhow::Result;
use plotters::prelude::*;
use std::ops::Range;

/// Lines with a mark at each point, both scales logarithmic.
#[derive(Clone, Debug, PartialEq)]
pub struct Lines {
    /// File name without its ending.
    pub name: String,
    /// What the figure shows.
    pub title: String,
    /// What the horizontal and the vertical axis count.
    pub axes: [String; 2],
    /// The lines, in the order of the legend.
    pub lines: Vec<Line>,
}

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// Its points, all of whose numbers are positive, in the order in which they are joined.
    pub points: Vec<(f64, f64)>,
    /// A text at each point; none, or as many as points.
    pub labels: Vec<String>,
}

impl Lines {
    /// Draws the figure.
    pub fn to_svg(&self) -> Result<String> {
        svg(&self.name, |area| self.draw(area))
    }

    fn draw(&self, area: &Area) -> Result<(), DrawError> {
        area.fill(&WHITE)?;
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let (across, up) = (range(points().map(|point| point.0)), range(points().map(|point| point.1)));
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(76)
            .build_cartesian_2d(across.log_scale(), up.log_scale())?;
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
            chart
                .draw_series(
                    LineSeries::new(line.points.iter().copied(), colour.stroke_width(2)).point_size(3),
                )?
                .label(&line.name)
                .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 10, y + 5)], colour.filled()));
            chart.draw_series(line.points.iter().zip(&line.labels).map(|(point, label)| {
                EmptyElement::at(*point) + Text::new(label.clone(), (6, -14), ("sans-serif", 12))
            }))?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .label_font(("sans-serif", 13))
            .draw()?;
        area.present()
    }
}

/// From a little below the smallest to a little above the largest value.
fn range(values: impl Iterator<Item = f64> + Clone) -> Range<f64> {
    let smallest = values.clone().filter(|value| *value > 0.0).reduce(f64::min).unwrap_or(1.0);
    let largest = values.reduce(f64::max).unwrap_or(1.0).max(smallest);
    smallest / 1.25..largest * 1.25
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_is_valid_xml_and_names_everything() {
        let points = vec![(1.0, 1e3), (64.0, 2e6)];
        let line = Line { name: "nom & <co>".into(), points, labels: vec!["W=0".into(), "W=5".into()] };
        let lines = Lines {
            name: "sizes".into(),
            title: "Sizes".into(),
            axes: ["bytes".into(), "bit/s".into()],
            lines: vec![line],
        };
        let svg = lines.to_svg().unwrap();
        let document = roxmltree::Document::parse(&svg).unwrap();
        let text: String = document.descendants().filter_map(|node| node.text()).collect();
        for expected in ["Sizes", "bytes", "bit/s", "nom & <co>", "W=5"] {
            assert!(text.contains(expected), "{expected:?} is not in {text:?}");
        }
        let empty = Lines { lines: vec![], ..lines };
        assert!(empty.to_svg().unwrap().starts_with("<svg"));
    }

    #[test]
    fn a_range_holds_its_values() {
        assert_eq!(range([2.0, 8.0].into_iter()), 1.6..10.0);
        assert_eq!(range([0.0].into_iter()), 0.8..1.25);
    }
}
