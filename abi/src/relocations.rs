//! Where the kernel's image has addresses of itself, so that the loader can move it.
//!
//! The image is linked at one address; all that a move changes is the lower half of each address that it
//! contains. The list of these places is distances, each from the place before (the first from the image's
//! start): a byte, or, where that is not enough, [`FAR`] and four bytes, least significant first.

/// A distance of four bytes follows.
pub const FAR: u8 = 255;

/// Adds `slide` to each of the image's addresses that `list` names. The part of a list that is damaged, or
/// leads out of the image, is left out.
pub fn apply(image: &mut [u8], list: &[u8], slide: u32) {
    let (mut place, mut rest) = (0_usize, list);
    while let Some((distance, behind)) = next(rest) {
        place = place.saturating_add(distance);
        let Some(word) = image.get_mut(place..).and_then(<[u8]>::first_chunk_mut) else { return };
        *word = u32::from_le_bytes(*word).wrapping_add(slide).to_le_bytes();
        rest = behind;
    }
}

/// The first distance of a list, and what follows it.
fn next(list: &[u8]) -> Option<(usize, &[u8])> {
    match list.split_first()? {
        (&FAR, rest) => rest.split_first_chunk().map(|(far, rest)| (u32::from_le_bytes(*far) as usize, rest)),
        (near, rest) => Some((usize::from(*near), rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_listed_moves_and_nothing_else() {
        let mut image = [0_u8; 600];
        let places = [4, 8, 262, 596];
        for place in places {
            image[place..place + 4].copy_from_slice(&0x8011_0000_u32.to_le_bytes());
        }
        let list = [4, 4, 254, FAR, 0x4e, 1, 0, 0];
        apply(&mut image, &list, 0x20_0000);
        for place in places {
            assert_eq!(image[place..place + 4], 0x8031_0000_u32.to_le_bytes(), "at {place}");
        }
        assert_eq!(image.iter().filter(|byte| **byte != 0).count(), 2 * places.len());
    }

    #[test]
    fn no_list_leads_out_of_the_image() {
        for list in
            [&[4, 254][..], &[FAR, 1], &[FAR, 0xff, 0xff, 0xff, 0xff, FAR, 0xff, 0xff, 0xff, 0xff], &[7]]
        {
            let mut image = [0_u8; 8];
            apply(&mut image, list, u32::MAX);
        }
    }
}
