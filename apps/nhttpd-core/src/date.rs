//! Dates of HTTP (RFC 9110 section 5.6.7).

/// `Sun, 06 Nov 1994 08:49:37 GMT`.
pub type HttpDate = [u8; 29];

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAY: u64 = 24 * 60 * 60;

/// Seconds since 1970 up to which a date has a year of four digits.
const LAST: u64 = 253_402_300_799;

/// Writes seconds since 1970 as a date.
pub fn format(unix: u64) -> HttpDate {
    let unix = unix.min(LAST);
    let (days, second) = (unix / DAY, unix % DAY);
    let (year, month, day) = civil(days);
    let mut date = *b"ddd, 00 mmm 0000 00:00:00 GMT";
    date[0..3].copy_from_slice(DAYS[(days % 7) as usize].as_bytes());
    date[8..11].copy_from_slice(MONTHS[month as usize].as_bytes());
    digits(&mut date[5..7], day);
    digits(&mut date[12..16], year);
    digits(&mut date[17..19], second / 3600);
    digits(&mut date[20..22], second / 60 % 60);
    digits(&mut date[23..25], second % 60);
    date
}

/// Reads a date in any of the three forms that a server must understand, as seconds since 1970. `now` places
/// years of two digits. `None` if it is no date, or before 1970.
pub fn parse(text: &[u8], now: u64) -> Option<u64> {
    let text = core::str::from_utf8(text).ok()?;
    let words: [&str; 6] = {
        let mut words = text.split_ascii_whitespace();
        core::array::from_fn(|_| words.next().unwrap_or(""))
    };
    match words {
        // Sun, 06 Nov 1994 08:49:37 GMT
        [weekday, day, month, year, time, "GMT"] if weekday.ends_with(',') => {
            seconds(number(year, 4)?, month, number(day, 2)?, time)
        }
        // Sunday, 06-Nov-94 08:49:37 GMT
        [weekday, date, time, "GMT", "", ""] if weekday.ends_with(',') => {
            let mut parts = date.split('-');
            let (day, month, year) = (parts.next()?, parts.next()?, parts.next()?);
            let year = full_year(number(year, 2)?, now);
            seconds(year, month, number(day, 2)?, time)
        }
        // Sun Nov  6 08:49:37 1994
        [_, month, day, time, year, ""] => seconds(number(year, 4)?, month, number(day, day.len())?, time),
        _ => None,
    }
}

/// A year of two digits that seems more than 50 years ahead is the past one (RFC 9110 section 5.6.7).
fn full_year(two_digits: u64, now: u64) -> u64 {
    let (this_year, ..) = civil(now / DAY);
    let year = this_year / 100 * 100 + two_digits;
    if year > this_year + 50 { year - 100 } else { year }
}

fn number(text: &str, len: usize) -> Option<u64> {
    let is_number = text.len() == len && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

fn seconds(year: u64, month: &str, day: u64, time: &str) -> Option<u64> {
    let month = MONTHS.iter().position(|name| *name == month)? as u64;
    let mut parts = time.split(':').map(|part| number(part, 2));
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    let in_range = year >= 1970 && (1..=31).contains(&day) && hour < 24 && minute < 60 && second <= 60;
    if !in_range || parts.next().is_some() {
        return None;
    }
    Some(days(year, month, day)? * DAY + hour * 3600 + minute * 60 + second)
}

/// Days from 1970 to a date, the month counted from 0; `None` if the month has no such day.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    // The year begins in March here, so that the day that leap years add is its last (Hinnant,
    // `chrono`-compatible low-level date algorithms).
    let (year, shifted) = if month < 2 { (year - 1, month + 10) } else { (year, month - 2) };
    let day_of_year = (153 * shifted + 2) / 5 + day - 1;
    let days = 365 * year + year / 4 - year / 100 + year / 400 + day_of_year;
    let days = days.checked_sub(719_468)?;
    (civil(days).2 == day).then_some(days)
}

/// Year, month from 0 and day of a number of days since 1970; the inverse of [`days`].
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = (shifted + 2) % 12;
    (era * 400 + year_of_era + u64::from(month < 2), month, day)
}

fn digits(place: &mut [u8], mut number: u64) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: u64 = 1_800_000_000;

    #[test]
    fn the_three_forms_say_the_same() {
        let forms =
            ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"];
        for form in forms {
            assert_eq!(parse(form.as_bytes(), NOW), Some(784_111_777), "{form}");
        }
        assert_eq!(&format(784_111_777), forms[0].as_bytes());
        assert_eq!(&format(0), b"Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(&format(951_782_400), b"Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(&format(u64::MAX), b"Fri, 31 Dec 9999 23:59:59 GMT");
    }

    #[test]
    fn what_is_no_date_is_none() {
        let bad = [
            "",
            "GMT",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 31 Feb 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:49 GMT",
            "Sun, 06 Nov 94 08:49:37 GMT",
            "Sun, 06 Nov 1969 08:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 06 nov 1994 08:49:37 GMT",
            "Sun, +6 Nov 1994 08:49:37 GMT",
        ];
        for text in bad {
            assert_eq!(parse(text.as_bytes(), NOW), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_date_is_read_as_it_was_written(unix in 0..=LAST) {
            prop_assert_eq!(parse(&format(unix), NOW), Some(unix));
        }

        #[test]
        fn any_text_is_survived(text in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _maybe = parse(&text, NOW);
        }
    }
}
