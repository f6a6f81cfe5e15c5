//! Units that cannot be mixed up.
//!
//! Each quantity is a type of its own around a double; only arithmetic that has a meaning exists. Every value
//! is finite, and not negative unless its type says that it may be. What would overflow saturates at the
//! greatest finite double, so that no arithmetic makes an infinity or a NaN out of checked values.

use core::ops::{Add, AddAssign, Mul, Neg, Sub};

/// A number that is no quantity of the unit.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{value} is no quantity of {unit}: expected {expected}")]
pub struct NotAQuantity {
    /// The number.
    pub value: f64,
    /// The unit's name.
    pub unit: &'static str,
    /// What would have been one.
    pub expected: &'static str,
}

fn saturated(value: f64) -> f64 {
    value.clamp(f64::MIN, f64::MAX)
}

macro_rules! quantity {
    ($($(#[$meta:meta])* $name:ident, $unit:literal, $lowest:expr, $expected:literal;)*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
        pub struct $name(f64);

        impl $name {
            /// Nothing.
            pub const ZERO: Self = Self(0.0);

            #[doc = concat!("So many ", $unit, ".")]
            ///
            /// # Errors
            #[doc = concat!("If the value is not ", $expected, ".")]
            pub fn new(value: f64) -> Result<Self, NotAQuantity> {
                if value.is_finite() && value >= $lowest {
                    return Ok(Self(value));
                }
                Err(NotAQuantity { value, unit: $unit, expected: $expected })
            }

            #[doc = concat!("The number of ", $unit, ".")]
            #[must_use]
            pub const fn get(self) -> f64 {
                self.0
            }
        }

        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(saturated(self.0 + other.0))
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                *self = *self + other;
            }
        }
    )*};
}

/// Left times right, either way round.
macro_rules! product {
    ($($left:ident * $right:ident = $product:ident;)*) => {$(
        impl Mul<$right> for $left {
            type Output = $product;
            fn mul(self, right: $right) -> $product {
                $product(saturated(self.0 * right.0))
            }
        }

        impl Mul<$left> for $right {
            type Output = $product;
            fn mul(self, left: $left) -> $product {
                left * self
            }
        }
    )*};
}

quantity! {
    /// A time in seconds.
    Seconds, "seconds", 0.0, "a finite number, at least 0";
    /// Data in units of 10^9 bits.
    Gbits, "Gbit", 0.0, "a finite number, at least 0";
    /// Requests served.
    Operations, "operations", 0.0, "a finite number, at least 0";
    /// Memory held for a time: 2^30 bytes for one second.
    GibSeconds, "GiB-seconds", 0.0, "a finite number, at least 0";
    /// Cores held for a time.
    CoreSeconds, "core-seconds", 0.0, "a finite number, at least 0";
    /// Energy.
    Joules, "joules", 0.0, "a finite number, at least 0";
    /// Data throughput: 10^9 bits in a second.
    GbitPerSecond, "Gbit/s", 0.0, "a finite number, at least 0";
    /// Throughput in requests.
    OperationsPerSecond, "operations/s", 0.0, "a finite number, at least 0";
    /// Memory held.
    Gib, "GiB", 0.0, "a finite number, at least 0";
    /// Cores held.
    Cores, "cores", 0.0, "a finite number, at least 0";
    /// Power.
    Watts, "watts", 0.0, "a finite number, at least 0";
    /// How many bytes leave the machine for one operation, headers included.
    BytesPerOperation, "bytes/operation", f64::MIN_POSITIVE, "a finite number above 0";
    /// Money; negative is a loss.
    Dollars, "$", f64::MIN, "a finite number";
    /// Money for a time; negative is a loss.
    DollarsPerSecond, "$/s", f64::MIN, "a finite number";
    /// Price or value of data.
    DollarsPerGbit, "$/Gbit", 0.0, "a finite number, at least 0";
    /// Price or value of an operation.
    DollarsPerOperation, "$/operation", 0.0, "a finite number, at least 0";
    /// Price of memory.
    DollarsPerGibSecond, "$/GiB-second", 0.0, "a finite number, at least 0";
    /// Price of a core.
    DollarsPerCoreSecond, "$/core-second", 0.0, "a finite number, at least 0";
    /// Price of energy.
    DollarsPerJoule, "$/joule", 0.0, "a finite number, at least 0";
}

product! {
    GbitPerSecond * Seconds = Gbits;
    OperationsPerSecond * Seconds = Operations;
    Gib * Seconds = GibSeconds;
    Cores * Seconds = CoreSeconds;
    Watts * Seconds = Joules;
    Gbits * DollarsPerGbit = Dollars;
    Operations * DollarsPerOperation = Dollars;
    GibSeconds * DollarsPerGibSecond = Dollars;
    CoreSeconds * DollarsPerCoreSecond = Dollars;
    Joules * DollarsPerJoule = Dollars;
    GbitPerSecond * DollarsPerGbit = DollarsPerSecond;
    OperationsPerSecond * DollarsPerOperation = DollarsPerSecond;
    Gib * DollarsPerGibSecond = DollarsPerSecond;
    Cores * DollarsPerCoreSecond = DollarsPerSecond;
    Watts * DollarsPerJoule = DollarsPerSecond;
    DollarsPerSecond * Seconds = Dollars;
}

macro_rules! signed {
    ($($name:ident)*) => {$(
        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(saturated(self.0 - other.0))
            }
        }

        impl Neg for $name {
            type Output = Self;
            fn neg(self) -> Self {
                Self(-self.0)
            }
        }
    )*};
}

signed! { Dollars DollarsPerSecond }

impl Seconds {
    /// So many microseconds.
    #[must_use]
    pub fn from_micros(micros: u32) -> Self {
        Self(f64::from(micros) / 1e6)
    }
}

impl BytesPerOperation {
    fn gbit(self) -> f64 {
        self.0 * 8.0 / 1e9
    }

    /// The data that so many operations send.
    #[must_use]
    pub fn data_rate(self, operations: OperationsPerSecond) -> GbitPerSecond {
        GbitPerSecond(saturated(operations.0 * self.gbit()))
    }

    /// The operations for which so much data is sent.
    #[must_use]
    pub fn operation_rate(self, data: GbitPerSecond) -> OperationsPerSecond {
        OperationsPerSecond(saturated(data.0 / self.gbit()))
    }

    /// What an operation costs or is worth if its data does.
    #[must_use]
    pub fn per_operation(self, price: DollarsPerGbit) -> DollarsPerOperation {
        DollarsPerOperation(saturated(price.0 * self.gbit()))
    }

    /// What data costs or is worth if the operation that sends it does.
    #[must_use]
    pub fn per_gbit(self, price: DollarsPerOperation) -> DollarsPerGbit {
        DollarsPerGbit(saturated(price.0 / self.gbit()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_quantity_is_refused_by_name() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0] {
            assert!(DollarsPerGbit::new(value).is_err(), "{value}");
        }
        let refusal = Seconds::new(-2.0).expect_err("time does not run backwards").to_string();
        assert_eq!(refusal, "-2 is no quantity of seconds: expected a finite number, at least 0");
        assert!(BytesPerOperation::new(0.0).is_err());
        assert!(Dollars::new(-3.0).is_ok(), "a loss is money too");
        assert!(Dollars::new(f64::NAN).is_err());
    }

    #[test]
    fn prices_convert_between_data_and_operations() {
        let size = BytesPerOperation::new(1250.0).expect("positive");
        let price = DollarsPerGbit::new(20.0).expect("positive");
        let rate = OperationsPerSecond::new(100_000.0).expect("positive");
        assert_eq!(size.data_rate(rate).get(), 1.0);
        assert!((size.operation_rate(size.data_rate(rate)).get() / 1e5 - 1.0).abs() < 1e-12);
        let (by_data, by_operation) = (size.data_rate(rate) * price, rate * size.per_operation(price));
        assert!((by_data - by_operation).get().abs() < 1e-9);
        assert!((size.per_gbit(size.per_operation(price)).get() - 20.0).abs() < 1e-12);
    }

    #[test]
    fn greatness_saturates_instead_of_becoming_infinite() {
        let most = DollarsPerSecond::new(f64::MAX).expect("finite");
        let long = Seconds::new(f64::MAX).expect("finite");
        assert_eq!((most * long).get(), f64::MAX);
        assert_eq!((-most - most).get(), f64::MIN);
    }
}
