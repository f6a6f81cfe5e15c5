//! Figures as people read them.

/// A number with three significant digits or, from 1000 on, with commas and no fraction.
pub fn number(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if !value.is_finite() => "?".to_owned(),
        0.0 => "0".to_owned(),
        999.5.. => grouped(value),
        99.95.. => format!("{value:.0}"),
        9.995.. => format!("{value:.1}"),
        0.9995.. => format!("{value:.2}"),
        0.001.. => {
            let digits = 2 - size.log10().floor() as i32;
            format!("{value:.*}", usize::try_from(digits).unwrap_or(0))
        }
        _ => format!("{value:.2e}"),
    }
}

fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::from(if value < 0.0 { "-" } else { "" });
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A price: as many digits as it has, since it is somebody's list price.
pub fn price(dollars: f64) -> String {
    match dollars.abs() {
        0.0 | 0.0001..1e9 => format!("{dollars}"),
        _ => format!("{dollars:e}"),
    }
}

/// A latency in nanoseconds, in the unit that suits it.
pub fn latency(nanoseconds: u64) -> String {
    let value = nanoseconds as f64;
    match nanoseconds {
        0..1_000 => format!("{nanoseconds} ns"),
        1_000..1_000_000 => format!("{} us", number(value / 1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", number(value / 1e6)),
        _ => format!("{} s", number(value / 1e9)),
    }
}

/// A rate in bits per second.
pub fn bits(per_second: f64) -> String {
    let (unit, size) = match per_second {
        1e9.. => ("Gbit/s", 1e9),
        1e6.. => ("Mbit/s", 1e6),
        1e3.. => ("kbit/s", 1e3),
        _ => ("bit/s", 1.0),
    };
    format!("{} {unit}", number(per_second / size))
}

/// Bytes in MiB, or GiB.
pub fn bytes(bytes: u64) -> String {
    match bytes >> 30 {
        0 => format!("{} MiB", number(bytes as f64 / f64::from(1 << 20))),
        _ => format!("{} GiB", number(bytes as f64 / f64::from(1 << 30))),
    }
}

/// A stretch of time in whole seconds, minutes or hours.
pub fn stretch(seconds: f64) -> String {
    match seconds {
        ..120.0 => format!("{:.0} s", seconds.max(0.0).floor()),
        ..7200.0 => format!("{:.0} min", (seconds / 60.0).floor()),
        ..172_800.0 => format!("{:.0} h", (seconds / 3600.0).floor()),
        _ => format!("{:.0} days", (seconds / 86_400.0).floor()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_that_count() {
        for (value, text) in [
            (0.0, "0"),
            (0.5, "0.500"),
            (0.01234, "0.0123"),
            (0.000_012_34, "1.23e-5"),
            (1.0, "1.00"),
            (9.999, "10.0"),
            (-12.345, "-12.3"),
            (99.96, "100"),
            (999.9, "1,000"),
            (1_234_567.8, "1,234,568"),
            (-41_200.0, "-41,200"),
            (f64::NAN, "?"),
        ] {
            assert_eq!(number(value), text, "{value}");
        }
    }

    #[test]
    fn units_suit_the_figure() {
        assert_eq!(
            [0, 999, 1_500, 412_000, 41_200_000, 2_000_000_000].map(latency),
            ["0 ns", "999 ns", "1.50 us", "412 us", "41.2 ms", "2.00 s"]
        );
        assert_eq!(
            [12.0, 9_600.0, 3.8e8, 2e9].map(bits),
            ["12.0 bit/s", "9.60 kbit/s", "380 Mbit/s", "2.00 Gbit/s"]
        );
        assert_eq!([12 << 20, 3 << 29].map(bytes), ["12.0 MiB", "1.50 GiB"]);
        assert_eq!(
            [0.4, 119.0, 121.0, 7300.0, 1e6].map(stretch),
            ["0 s", "119 s", "2 min", "2 h", "11 days"]
        );
        assert_eq!([1.0, 0.05, 10.25, 0.000_002].map(price), ["1", "0.05", "10.25", "2e-6"]);
    }
}
