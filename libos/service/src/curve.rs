//! The share of look-ups that find something, as a function of memory.

use alloc::vec::Vec;

/// Hit ratio by bytes: through points, straight between them, from 0 at nothing, constant beyond the last.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve(Vec<(u64, f64)>);

/// Points that are no curve.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error(
    "points[{index}] is {ratio} at {bytes} bytes: expected more bytes than at the point before, and a ratio \
     from that point's to 1"
)]
pub struct NoCurve {
    /// Of the point.
    pub index: usize,
    /// Its place.
    pub bytes: u64,
    /// Its ratio.
    pub ratio: f64,
}

impl Curve {
    /// Through these points of (bytes, hit ratio).
    ///
    /// # Errors
    /// The first point that is no ratio, or has not more memory and at least as many hits as the one before.
    pub fn new(points: Vec<(u64, f64)>) -> Result<Self, NoCurve> {
        let mut before = (0, 0.0);
        for (index, &(bytes, ratio)) in points.iter().enumerate() {
            if bytes <= before.0 || !(before.1..=1.0).contains(&ratio) {
                return Err(NoCurve { index, bytes, ratio });
            }
            before = (bytes, ratio);
        }
        Ok(Self(points))
    }

    /// The hit ratio with so many bytes.
    #[must_use]
    pub fn at(&self, bytes: u64) -> f64 {
        let after = self.0.partition_point(|point| point.0 <= bytes);
        let (x0, y0) = after.checked_sub(1).map_or((0, 0.0), |before| self.0[before]);
        let Some(&(x1, y1)) = self.0.get(after) else { return y0 };
        y0 + (y1 - y0) * ((bytes - x0) as f64 / (x1 - x0) as f64)
    }

    /// The points.
    #[must_use]
    pub fn points(&self) -> &[(u64, f64)] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_goes_straight_from_point_to_point() {
        let curve = Curve::new(vec![(100, 0.2), (300, 0.6)]).expect("it grows");
        for (bytes, ratio) in [(0, 0.0), (50, 0.1), (100, 0.2), (200, 0.4), (300, 0.6), (u64::MAX, 0.6)] {
            assert!((curve.at(bytes) - ratio).abs() < 1e-12, "{bytes}: {}", curve.at(bytes));
        }
        assert_eq!(Curve::default().at(5), 0.0);
    }

    #[test]
    fn what_is_no_curve_is_refused() {
        for points in [vec![(0, 0.1)], vec![(5, 1.1)], vec![(5, f64::NAN)], vec![(5, 0.5), (6, 0.4)]] {
            assert!(Curve::new(points.clone()).is_err(), "{points:?}");
        }
        let refusal = Curve::new(vec![(5, 0.5), (5, 0.6)]).expect_err("a step").to_string();
        assert!(refusal.starts_with("points[1] is 0.6 at 5 bytes: expected more bytes"), "{refusal}");
    }
}
