//! Numbers as people write them, read without the tables of 10 KiB that `core` has for it: they would be a
//! fortieth of a server's image.

use minimal_lexical::parse_float;

/// The number nearest to a decimal one, such as `20`, `-0.00075` or `1e-6`; nothing, if it is not written so
/// or beyond all numbers.
pub(crate) fn parse(text: &str) -> Option<f64> {
    let (digits, exponent) = match text.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, exponent.parse().ok()?),
        None => (text, 0),
    };
    let unsigned = digits.strip_prefix(['+', '-']).unwrap_or(digits);
    let (integer, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let mut all = integer.bytes().chain(fraction.bytes());
    if integer.len() + fraction.len() == 0 || !all.all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let integer = integer.trim_start_matches('0').as_bytes();
    let fraction = fraction.trim_end_matches('0').as_bytes();
    let number: f64 = parse_float(integer.iter(), fraction.iter(), exponent);
    let number = if digits.starts_with('-') { -number } else { number };
    number.is_finite().then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_number_is_refused() {
        for text in
            ["", ".", "-", "e5", "1e", "1e5.0", "1.2.3", "0x10", "1_000", "nan", "inf", "1e999", "--1", "1 "]
        {
            assert_eq!(parse(text), None, "{text}");
        }
        for (text, number) in
            [("20", 20.0), ("+.5", 0.5), ("5.", 5.0), ("-0.00075", -0.00075), ("1E-6", 1e-6)]
        {
            assert_eq!(parse(text), Some(number));
        }
        assert_eq!(parse("1e-999"), Some(0.0));
    }

    proptest! {
        #[test]
        fn it_is_the_number_that_core_reads(bits: u64, mantissa: u64, exponent in -330_i32..320) {
            let shown = f64::from_bits(bits);
            if shown.is_finite() {
                prop_assert_eq!(parse(&shown.to_string()), Some(shown));
            }
            let text = alloc::format!("{}.{}e{exponent}", mantissa >> 32, mantissa as u32);
            let known = text.parse::<f64>().ok().filter(|number| number.is_finite());
            prop_assert_eq!(parse(&text), known);
        }
    }
}
