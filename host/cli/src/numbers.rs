//! Numbers as people type them.

use std::ops::RangeInclusive;

/// Reads a whole number within `range`, and says what was expected of anything else.
pub fn whole<T: TryFrom<u64>>(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        let number = number.and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| format!("expected a whole number from {} to {}", range.start(), range.end()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_within_its_range_or_told_it() {
        let read = whole::<u32>(1..=64);
        assert_eq!((read("1"), read("64")), (Ok(1), Ok(64)));
        for text in ["0", "65", "many", "", "-1", "1.5", "1e1", "0x10", " 7", "99999999999999999999"] {
            assert_eq!(read(text), Err("expected a whole number from 1 to 64".into()), "{text}");
        }
        assert!(whole::<u8>(0..=300)("256").is_err(), "a type too small does not wrap around");
    }
}
