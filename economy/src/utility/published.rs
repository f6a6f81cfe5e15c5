//! The three utility functions of nom (VEE'16), equations 2, 3 and 4, exactly as published.

use super::Latency;
use super::normal::exceedance;
use crate::units::{
    DollarsPerGbit, DollarsPerOperation, DollarsPerSecond, GbitPerSecond, OperationsPerSecond, Seconds,
};
use core::ops::Mul;

/// A throughput, and the money that one unit of it is worth or costs.
pub trait Throughput: Copy + Mul<Self::Price, Output = DollarsPerSecond> {
    /// Money for one unit.
    type Price: Copy;

    /// The price's number.
    fn number(price: Self::Price) -> f64;

    /// What comes in if each unit brings `value` dollars, which may be less than nothing.
    fn times(self, value: f64) -> DollarsPerSecond;
}

macro_rules! throughput {
    ($($rate:ident: $price:ident;)*) => {$(
        impl Throughput for $rate {
            type Price = $price;

            fn number(price: $price) -> f64 {
                price.get()
            }

            fn times(self, value: f64) -> DollarsPerSecond {
                let amount = (self.get() * value).clamp(f64::MIN, f64::MAX);
                DollarsPerSecond::new(amount).unwrap_or(DollarsPerSecond::ZERO)
            }
        }
    )*};
}

throughput! {
    GbitPerSecond: DollarsPerGbit;
    OperationsPerSecond: DollarsPerOperation;
}

/// A parameter that no utility function can have.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{field} is {value}: expected {expected}")]
pub struct BadParameter {
    /// The parameter, as the paper's symbol is called in a file.
    pub field: &'static str,
    /// The number given.
    pub value: f64,
    /// What would have done.
    pub expected: &'static str,
}

pub(super) fn checked(
    field: &'static str,
    value: f64,
    is_good: impl Fn(f64) -> bool,
    expected: &'static str,
) -> Result<f64, BadParameter> {
    if is_good(value) { Ok(value) } else { Err(BadParameter { field, value, expected }) }
}

const AT_LEAST_ZERO: &str = "a finite number, at least 0";

pub(super) fn at_least_zero(field: &'static str, value: f64) -> Result<f64, BadParameter> {
    checked(field, value, |value| value.is_finite() && value >= 0.0, AT_LEAST_ZERO)
}

/// Equation 2: users are compensated for every latency sample that violates the objective.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Penalty {
    factor: f64,
    objective: Seconds,
}

impl Penalty {
    /// `factor` is X, `objective` L0.
    ///
    /// # Errors
    /// If `factor` is neither 0 nor at least 2. Between them the function breaks the utility function axiom:
    /// beyond the objective more jitter brings N down toward 1/2, and X * N < 1 would pay for it.
    pub fn new(factor: f64, objective: Seconds) -> Result<Self, BadParameter> {
        let is_good = |value: f64| value == 0.0 || (value >= 2.0 && value.is_finite());
        let expected = "0, or a finite number from 2 up (between them, more jitter could earn more)";
        Ok(Self { factor: checked("factor", factor, is_good, expected)?, objective })
    }

    /// X.
    #[must_use]
    pub fn factor(&self) -> f64 {
        self.factor
    }

    /// L0.
    #[must_use]
    pub fn objective(&self) -> Seconds {
        self.objective
    }

    /// The same for a machine on which everything takes `factor` times as long.
    pub(super) fn slowed(&self, factor: f64) -> Result<Self, BadParameter> {
        let objective = at_least_zero("objective", self.objective.get() * factor)?;
        Self::new(self.factor, Seconds::new(objective).expect("checked"))
    }

    /// The share of the full value that is paid: 1 - min(1, X * N(L0, L, sigma)).
    #[must_use]
    pub fn share(&self, latency: Latency) -> f64 {
        let late = exceedance(self.objective, latency.mean(), latency.jitter());
        1.0 - (self.factor * late).min(1.0)
    }

    /// T * (alpha * (1 - min(1, X * N(L0, L, sigma))) - P).
    pub fn profit<T: Throughput>(
        &self,
        throughput: T,
        alpha: T::Price,
        latency: Latency,
        price: T::Price,
    ) -> DollarsPerSecond {
        throughput.times(T::number(alpha) * self.share(latency)) - throughput * price
    }
}

/// Equation 3: users are refunded in proportion to mean latency, at most what they paid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Refund {
    slope: f64,
}

impl Refund {
    /// `slope` is beta: dollars for one unit of throughput and one second of latency.
    ///
    /// # Errors
    /// If it is negative or not finite.
    pub fn new(slope: f64) -> Result<Self, BadParameter> {
        Ok(Self { slope: at_least_zero("slope", slope)? })
    }

    /// Beta.
    #[must_use]
    pub fn slope(&self) -> f64 {
        self.slope
    }

    /// The latency from which on everything is refunded, in seconds; infinite if it never is.
    pub(super) fn all_refunded(&self, alpha: f64) -> f64 {
        if self.slope > 0.0 { alpha / self.slope } else { f64::INFINITY }
    }

    /// The same for a machine on which everything takes `factor` times as long.
    pub(super) fn slowed(&self, factor: f64) -> Result<Self, BadParameter> {
        Self::new(self.slope / factor)
    }

    /// What one unit brings: max(0, alpha - beta * L).
    #[must_use]
    pub fn value(&self, alpha: f64, latency: Latency) -> f64 {
        (alpha - self.slope * latency.mean().get()).max(0.0)
    }

    /// T * (max(0, alpha - beta * L) - P).
    pub fn profit<T: Throughput>(
        &self,
        throughput: T,
        alpha: T::Price,
        latency: Latency,
        price: T::Price,
    ) -> DollarsPerSecond {
        throughput.times(self.value(T::number(alpha), latency)) - throughput * price
    }
}

/// Equation 4: users pay a bonus that decays with mean latency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bonus {
    extent: f64,
    cap: f64,
}

impl Bonus {
    /// `extent` is gamma: dollar-seconds for one unit of throughput; `cap` is delta, dollars for one unit;
    /// infinite if there is no limit, as in the paper's experiments.
    ///
    /// # Errors
    /// If either is negative or NaN, or `extent` is infinite.
    pub fn new(extent: f64, cap: f64) -> Result<Self, BadParameter> {
        let extent = at_least_zero("extent", extent)?;
        let cap = checked("cap", cap, |value| value >= 0.0, "a number, at least 0")?;
        Ok(Self { extent, cap })
    }

    /// Gamma.
    #[must_use]
    pub fn extent(&self) -> f64 {
        self.extent
    }

    /// Delta, or infinity.
    #[must_use]
    pub fn cap(&self) -> f64 {
        self.cap
    }

    /// The latency below which the bonus is capped, in seconds.
    pub(super) fn capped_below(&self) -> f64 {
        if self.cap > 0.0 { self.extent / self.cap } else { f64::INFINITY }
    }

    /// The same for a machine on which everything takes `factor` times as long.
    pub(super) fn slowed(&self, factor: f64) -> Result<Self, BadParameter> {
        Self::new(self.extent * factor, self.cap)
    }

    /// What one unit brings: alpha + min(gamma / L, delta).
    #[must_use]
    pub fn value(&self, alpha: f64, latency: Latency) -> f64 {
        alpha + (self.extent / latency.mean().get()).min(self.cap)
    }

    /// T * (alpha + min(gamma / L, delta) - P).
    pub fn profit<T: Throughput>(
        &self,
        throughput: T,
        alpha: T::Price,
        latency: Latency,
        price: T::Price,
    ) -> DollarsPerSecond {
        throughput.times(self.value(T::number(alpha), latency)) - throughput * price
    }
}

#[cfg(test)]
mod tests;
