//! What the registers of a real-time clock mean.

/// One reading of a clock of the kind of Motorola's MC146818.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Seconds, minutes, hours, day of the month, month, year of the century, as the registers hold them.
    pub fields: [u8; 6],
    /// Register B: bit 1 says 24 hours, bit 2 binary numbers.
    pub status: u8,
}

impl Reading {
    /// Seconds since 1970, of a year from 2000 to 2099; `None` if it is no time: all ones, for example, where
    /// there is no clock.
    pub fn seconds(&self) -> Option<u64> {
        let is_afternoon = self.fields[2] & 0x80 != 0;
        let mut fields = self.fields;
        fields[2] &= 0x7f;
        if self.status & 4 == 0 {
            fields = fields.map(|field| (field >> 4) * 10 + (field & 15));
        }
        if self.status & 2 == 0 {
            fields[2] = fields[2] % 12 + if is_afternoon { 12 } else { 0 };
        }
        let [second, minute, hour, day, month, year] = fields.map(u64::from);
        let is_time = second < 60 && minute < 60 && hour < 24;
        let is_date = (1..=31).contains(&day) && (1..=12).contains(&month) && year < 100;
        let in_day = hour * 3600 + minute * 60 + second;
        (is_time && is_date).then(|| days(2000 + year, month, day) * 86_400 + in_day)
    }
}

/// Days from 1970 to a date of the Gregorian calendar. The year begins in March, so that a leap day ends it.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year / 4 - year / 100 + year / 400;
    // Five months from March have 153 days, and so on.
    365 * year + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(fields: [u8; 6], status: u8) -> Option<u64> {
        Reading { fields, status }.seconds()
    }

    #[test]
    fn known_times_are_read() {
        // 2026-11-21 16:30:05, as `date -u +%s` has it.
        assert_eq!(seconds([0x05, 0x30, 0x16, 0x21, 0x11, 0x26], 2), Some(1_795_278_605));
        assert_eq!(seconds([5, 30, 16, 21, 11, 26], 6), Some(1_795_278_605));
        assert_eq!(seconds([0x05, 0x30, 0x84, 0x21, 0x11, 0x26], 0), Some(1_795_278_605), "4 p.m.");
        assert_eq!(seconds([0, 0, 0, 29, 2, 24], 6), Some(1_709_164_800), "a leap day");
        assert_eq!(seconds([0, 0, 0x12, 0x01, 0x01, 0x00], 0), Some(946_684_800), "midnight is 12 a.m.");
    }

    #[test]
    fn behind_the_last_of_each_is_no_time() {
        for (place, last) in [59, 59, 23, 31, 12, 99].into_iter().enumerate() {
            let mut fields = [0, 0, 0, 1, 1, 0];
            fields[place] = last;
            assert!(seconds(fields, 6).is_some(), "{fields:?}");
            fields[place] += 1;
            assert_eq!(seconds(fields, 6), None, "{fields:?}");
        }
        assert_eq!(seconds([0, 0, 0, 1, 0, 0], 6), None, "there is no month 0");
    }

    #[test]
    fn no_clock_is_no_time() {
        assert_eq!(seconds([0xff; 6], 0xff), None);
        assert_eq!(seconds([0; 6], 6), None, "there is no day 0");
    }
}
