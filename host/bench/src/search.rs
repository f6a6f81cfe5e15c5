//! Finds the smallest of something that works, by trying.

use anyhow::Result;

/// The smallest number above `too_few` that works, if each number above one that works does so too.
pub fn smallest(too_few: u64, enough: u64, mut works: impl FnMut(u64) -> Result<bool>) -> Result<u64> {
    let (mut fails, mut known) = (too_few, enough);
    while fails + 1 < known {
        let middle = fails + (known - fails) / 2;
        match works(middle)? {
            true => known = middle,
            false => fails = middle,
        }
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_finds_every_border() {
        for border in 4..=20 {
            assert_eq!(smallest(3, 20, |n| Ok(n >= border)).unwrap(), border);
        }
        assert_eq!(smallest(0, 1, |_| unreachable!("one is known to work")).unwrap(), 1);
    }

    #[test]
    fn search_ends_at_an_error() {
        assert!(smallest(0, 8, |_| anyhow::bail!("no QEMU")).is_err());
    }
}
