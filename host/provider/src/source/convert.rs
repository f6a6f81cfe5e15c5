//! Units of others in nom's: dollars for a core-second, a GiB-second, a Gbit, a joule.

/// Seconds of an hour.
const HOUR: f64 = 3600.0;
/// Gbit of 10^9 bytes.
const GBIT_PER_GB: f64 = 8.0;
/// Gbit of 2^30 bytes.
const GBIT_PER_GIB: f64 = 8.0 * 1.073_741_824;
/// Joules of a MWh.
const JOULES_PER_MWH: f64 = 3.6e9;
/// Bytes of a Gbit.
const BYTES_PER_GBIT: f64 = 1.25e8;
/// Bytes of a GiB.
const BYTES_PER_GIB: f64 = 1_073_741_824.0;

/// $/s from $/h.
pub fn per_second(per_hour: f64) -> f64 {
    per_hour / HOUR
}

/// $/Gbit from the price of 10^9 bytes.
pub fn per_gbit_from_gb(per_gb: f64) -> f64 {
    per_gb / GBIT_PER_GB
}

/// $/Gbit from the price of 2^30 bytes.
pub fn per_gbit_from_gib(per_gib: f64) -> f64 {
    per_gib / GBIT_PER_GIB
}

/// $/joule from another currency's price of a MWh.
pub fn per_joule(per_mwh: f64, dollars_per_currency: f64) -> f64 {
    per_mwh * dollars_per_currency / JOULES_PER_MWH
}

/// $/GiB-second from $/byte-second.
pub fn per_gib(per_byte: f64) -> f64 {
    per_byte * BYTES_PER_GIB
}

/// $/Gbit from $/byte.
pub fn per_gbit(per_byte: f64) -> f64 {
    per_byte * BYTES_PER_GBIT
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 1e-12, "{found} is not {expected}");
    }

    #[test]
    fn conversions_are_those_of_the_textbooks() {
        close(per_second(3.6), 0.001);
        close(per_gbit_from_gb(0.08), 0.01);
        close(per_gbit_from_gib(0.09), 0.09 / 8.589_934_592);
        // 100 EUR/MWh at 1.08 $/EUR are 0.108 $/kWh, and a kWh has 3.6 million joules.
        close(per_joule(100.0, 1.08), 0.108 / 3.6e6);
        // A GB-month of 2^30 bytes for 30 days, priced for its byte-second.
        close(per_gib(0.28 / 2_783_138_807_808_000.0), 0.28 / 2_592_000.0);
        close(per_gbit(8e-9), 1.0);
    }
}
