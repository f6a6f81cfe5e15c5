//! Several figures over the same axis, one above the other.

use super::{Area, DrawError, Lines, SIZE, svg};
use anyhow::Result;

/// Lines above lines, as many panels as there are.
#[derive(Clone, Debug, PartialEq)]
pub struct Panels {
    /// File name without its ending.
    pub name: String,
    /// From the top down.
    pub panels: Vec<Lines>,
}

/// Height of one panel.
const HEIGHT: u32 = 240;

impl Panels {
    /// Draws the figure.
    pub fn to_svg(&self) -> Result<String> {
        let height = HEIGHT * self.panels.len().max(1) as u32;
        svg(&self.name, (SIZE.0, height), |area| self.draw(area))
    }

    fn draw(&self, area: &Area) -> Result<(), DrawError> {
        let parts = area.split_evenly((self.panels.len().max(1), 1));
        parts.iter().zip(&self.panels).try_for_each(|(part, panel)| panel.draw(part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Line, Scale};

    #[test]
    fn every_panel_is_there() {
        let panel = |title: &str| Lines {
            name: String::new(),
            title: title.into(),
            axes: ["s".into(), "$".into()],
            scale: Scale::Linear,
            lines: vec![Line::plain("earned", vec![(0.0, 0.0), (1.0, -2.0)])],
        };
        let panels = Panels { name: "timeline".into(), panels: vec![panel("price"), panel("profit")] };
        let svg = panels.to_svg().unwrap();
        assert!(roxmltree::Document::parse(&svg).is_ok());
        assert!(svg.contains("price") && svg.contains("profit"));
        assert!(Panels { panels: vec![], ..panels }.to_svg().unwrap().starts_with("<svg"));
    }
}
