//! Bars in groups.

use super::lines::span;
use super::{Area, COLOURS, DrawError, SIZE, Scale, legend, short, svg};
use crate::record::{Record, Unit, distinct};
use anyhow::Result;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Bars in groups, one bar of each series in a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// File name without its ending.
    pub name: String,
    /// What the figure shows.
    pub title: String,
    /// What the vertical axis counts.
    pub axis: String,
    /// Of the vertical axis.
    pub scale: Scale,
    /// Names of the series, in the order of their bars.
    pub series: Vec<String>,
    /// Each group's name and one value for each series; none where there is no measurement.
    pub groups: Vec<(String, Vec<Option<f64>>)>,
}

/// Share of a group's width that its bars fill.
const FILLED: f64 = 0.8;

/// Share of a linear scale that is left free for the values on the bars.
const VALUES: f64 = 0.1;

impl Bars {
    /// One group for each of `metrics` (with its label), one series for each system that has a record of one
    /// of them in `unit`, on a logarithmic scale. The texts are [`Bars::name`], [`Bars::title`] and
    /// [`Bars::axis`].
    pub fn of_records(
        texts: [&str; 3],
        records: &[Record],
        unit: Unit,
        metrics: &[(String, String)],
    ) -> Bars {
        let named = |record: &&Record| metrics.iter().any(|(metric, _)| record.metric == *metric);
        let shown: Vec<&Record> = records.iter().filter(|record| record.unit == unit).filter(named).collect();
        let series = distinct(shown.iter().map(|record| &record.system));
        let value = |metric: &String, system: &String| {
            let record = shown.iter().find(|record| record.metric == *metric && record.system == *system);
            record.map(|record| record.value)
        };
        let values = |metric| series.iter().map(|system| value(metric, system)).collect();
        let groups = metrics.iter().map(|(metric, label)| (label.clone(), values(metric))).collect();
        let [name, title, axis] = texts.map(String::from);
        let series = series.into_iter().cloned().collect();
        Bars { name, title, axis, scale: Scale::Logarithmic, series, groups }
    }

    /// Draws the figure.
    pub fn to_svg(&self) -> Result<String> {
        svg(&self.name, SIZE, |area| self.draw(area))
    }

    fn draw(&self, area: &Area) -> Result<(), DrawError> {
        area.fill(&WHITE)?;
        let names: Vec<&str> = self.series.iter().map(String::as_str).collect();
        let area = &legend::draw(area, &names)?;
        match self.scale {
            Scale::Logarithmic => {
                let (floor, ceiling) = self.decades();
                self.draw_in(area, (floor..ceiling).log_scale(), [floor, floor])
            }
            Scale::Linear => {
                let span = span(self.groups.iter().flat_map(|(_, values)| values).flatten().copied());
                let bottom = span.start;
                let top = span.end + VALUES * (span.end - span.start);
                self.draw_in(area, bottom..top, [0.0, bottom])
            }
        }
    }

    /// Bars stand on `base`; names of groups stand below `bottom`.
    fn draw_in<Y>(&self, area: &Area, up: Y, [base, bottom]: [f64; 2]) -> Result<(), DrawError>
    where
        Y: AsRangedCoord<Value = f64, CoordDescType: ValueFormatter<f64>>,
    {
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(32)
            .y_label_area_size(76)
            .build_cartesian_2d(0.0..self.groups.len() as f64, up)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .disable_x_axis()
            .light_line_style(WHITE)
            .y_desc(&self.axis)
            .y_label_formatter(&|value| short(*value))
            .label_style(("sans-serif", 13))
            .draw()?;
        for index in 0..self.series.len() {
            let colour = COLOURS[index % COLOURS.len()];
            let bars = self.rectangles(index, base);
            chart.draw_series(bars.iter().map(|bar| Rectangle::new(*bar, colour.filled())))?;
            chart.draw_series(bars.iter().map(|[(left, _), (right, end)]| {
                // Outside of the bar, whichever way it points.
                let side = if *end < base { VPos::Top } else { VPos::Bottom };
                let style = ("sans-serif", 12).into_font().color(&BLACK).pos(Pos::new(HPos::Center, side));
                Text::new(short(*end), ((left + right) / 2.0, *end), style)
            }))?;
        }
        // Names of many groups would run into one another.
        let size = if self.groups.len() > 6 { 11 } else { 13 };
        let name = ("sans-serif", size).into_font().color(&BLACK).pos(Pos::new(HPos::Center, VPos::Top));
        chart.draw_series(self.groups.iter().enumerate().map(|(group, (label, _))| {
            EmptyElement::at((group as f64 + 0.5, bottom)) + Text::new(label.clone(), (0, 8), name.clone())
        }))?;
        Ok(())
    }

    /// The corner on the base, and the opposite one, of each bar of series `index`.
    fn rectangles(&self, index: usize, base: f64) -> Vec<[(f64, f64); 2]> {
        let width = FILLED / self.series.len() as f64;
        let groups = self.groups.iter().enumerate();
        let bar = |(group, (_, values)): (usize, &(String, Vec<Option<f64>>))| {
            let left = group as f64 + (1.0 - FILLED) / 2.0 + index as f64 * width;
            let value = (*values.get(index)?)?;
            let end = if self.scale == Scale::Logarithmic { value.max(base) } else { value };
            Some([(left, base), (left + width * 0.95, end)])
        };
        groups.filter_map(bar).collect()
    }

    /// The ends of the scale: below the smallest value, above the largest with room for its text, and so
    /// far apart that the marks between them do not crowd.
    fn decades(&self) -> (f64, f64) {
        let positive =
            || self.groups.iter().flat_map(|(_, values)| values).flatten().filter(|value| **value > 0.0);
        let smallest = positive().copied().reduce(f64::min).unwrap_or(1.0);
        let largest = positive().copied().reduce(f64::max).unwrap_or(1.0);
        let top = largest.log10().ceil() + 0.3;
        let bottom = (smallest.log10().floor() - 0.3).min(top - 3.0);
        (10f64.powf(bottom), 10f64.powf(top))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Key, Samples};

    fn bars() -> Bars {
        Bars {
            name: "costs".into(),
            title: "Costs <of> a & b".into(),
            axis: "cycles".into(),
            scale: Scale::Logarithmic,
            series: vec!["nom".into(), "linux".into()],
            groups: vec![
                ("system call".into(), vec![Some(100.0), Some(1200.0)]),
                ("upcall".into(), vec![Some(2000.0), None]),
            ],
        }
    }

    #[test]
    fn figure_is_valid_xml_and_names_everything() {
        let svg = bars().to_svg().unwrap();
        let text: String = roxmltree::Document::parse(&svg)
            .unwrap()
            .descendants()
            .filter_map(|node| node.text())
            .collect::<Vec<_>>()
            .join(" ");
        for expected in ["Costs <of> a & b", "cycles", "nom", "linux", "system call", "upcall", "1.2k"] {
            assert!(text.contains(expected), "{expected:?} is not in {text:?}");
        }
    }

    #[test]
    fn bar_is_drawn_only_where_something_was_measured() {
        assert_eq!(bars().rectangles(0, 1.0).len(), 2);
        assert_eq!(bars().rectangles(1, 1.0).len(), 1);
        let [(left, bottom), (right, top)] = bars().rectangles(1, 1.0)[0];
        assert!(0.5 <= left && right < 0.9, "second series, right half of the first group");
        assert_eq!((bottom, top), (1.0, 1200.0));
    }

    #[test]
    fn records_become_groups_of_metrics_and_series_of_systems() {
        let mut samples = Samples::new("boot");
        for (system, metric, unit, value) in [
            ("nom", "exit", Unit::Cycles, 1.0),
            ("linux", "exit", Unit::Cycles, 2.0),
            ("linux", "entry", Unit::Cycles, 3.0),
            ("probe", "exit", Unit::Seconds, 4.0),
        ] {
            let (application, scenario, metric) = ("hello", "tcg".into(), metric.into());
            samples.push(Key { system: system.into(), application, scenario, metric, unit }, value);
        }
        let metrics =
            [("entry", "Entry"), ("exit", "Exit")].map(|(metric, label)| (metric.into(), label.into()));
        let bars = Bars::of_records(["a", "b", "c"], &samples.records(), Unit::Cycles, &metrics);
        assert_eq!(bars.series, ["nom", "linux"]);
        let expected = [("Entry", [None, Some(3.0)]), ("Exit", [Some(1.0), Some(2.0)])];
        assert_eq!(bars.groups, expected.map(|(label, values)| (label.to_owned(), values.to_vec())));
    }

    #[test]
    fn a_loss_hangs_below_zero() {
        let groups = vec![("penalty".into(), vec![Some(-5.0), Some(20.0)])];
        let bars = Bars { scale: Scale::Linear, groups, ..bars() };
        let [(_, base), (_, end)] = bars.rectangles(0, 0.0)[0];
        assert_eq!((base, end), (0.0, -5.0));
        let svg = bars.to_svg().unwrap();
        assert!(svg.contains("\n-5\n"), "{svg}");
    }

    #[test]
    fn empty_figure_is_still_a_figure() {
        let empty = Bars { groups: vec![], ..bars() };
        assert!(empty.to_svg().unwrap().starts_with("<svg"));
    }
}
