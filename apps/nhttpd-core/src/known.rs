//! Heads that came before, byte for byte: a client, and all of a kind, asks for the same file in the same
//! words, which need not be read again.

use crate::request::{Method, Persistence, Request};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Heads that are remembered: one for each place.
const PLACES: usize = 64;
/// Bytes at the front of a head that say where it is remembered, and so the shortest that is.
const FRONT: usize = 32;
/// The longest that is: what is longer seldom comes again.
const LONGEST: usize = 512;
/// Bytes that are compared at once.
const STEP: usize = 16;

/// What a head came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// The file that it asks for, the whole of it and on no condition.
    pub file: usize,
    pub persistence: Persistence,
}

#[derive(Debug)]
struct Known {
    head: Vec<u8>,
    meaning: Meaning,
}

/// The heads that are remembered, of those that ask for a whole file on no condition.
#[derive(Debug, Default)]
pub struct KnownHeads(Option<Box<[Option<Known>; PLACES]>>);

/// Where a head is remembered that begins with these bytes; nowhere, if it is too short.
fn place_of(bytes: &[u8]) -> Option<usize> {
    let (words, _) = bytes.get(..FRONT)?.as_chunks::<8>();
    let mixed = words.iter().fold(0_u64, |mixed, word| {
        (mixed ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_right(29)
    });
    Some(mixed as usize % PLACES)
}

/// Whether `bytes` begin with `head`, some at a time: where programs are small, the compiler's own comparison
/// takes them one by one.
fn begins_with(bytes: &[u8], head: &[u8]) -> bool {
    let Some(front) = bytes.get(..head.len()) else { return false };
    let is_same = |a: &[u8; STEP], b: &[u8; STEP]| u128::from_ne_bytes(*a) == u128::from_ne_bytes(*b);
    let ((ours, _), (theirs, _)) = (head.as_chunks(), front.as_chunks());
    // The last of them may overlap the one before.
    let ends = head.last_chunk().zip(front.last_chunk());
    ends.is_some_and(|(a, b)| is_same(a, b)) && ours.iter().zip(theirs).all(|(a, b)| is_same(a, b))
}

impl KnownHeads {
    /// If a head that is remembered stands at the front of `bytes`: how long it is, and what it came to. It
    /// ends where it ended before, at its first empty line.
    pub fn find(&self, bytes: &[u8]) -> Option<(usize, Meaning)> {
        let known = self.0.as_ref()?[place_of(bytes)?].as_ref()?;
        begins_with(bytes, &known.head).then_some((known.head.len(), known.meaning))
    }

    /// Remembers a head, up to and with its empty line, instead of the one that has its place.
    pub fn remember(&mut self, head: &[u8], request: &Request<'_>, file: usize) {
        let Some(place) = place_of(head).filter(|_| head.len() <= LONGEST && is_plain(request)) else {
            return;
        };
        let meaning = Meaning { file, persistence: request.persistence };
        let places = self.0.get_or_insert_with(|| Box::new([const { None }; PLACES]));
        let known = places[place].get_or_insert(Known { head: Vec::new(), meaning });
        known.head.clear();
        known.head.extend_from_slice(head);
        known.meaning = meaning;
    }
}

/// Whether a request is for all of a file, on no condition: its answer depends on nothing but file and date.
fn is_plain(request: &Request<'_>) -> bool {
    let fields = [request.range, request.if_range, request.if_match, request.if_none_match];
    let times = [request.if_modified_since, request.if_unmodified_since];
    request.method == Method::Get && fields.iter().chain(&times).all(Option::is_none)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request;
    use alloc::format;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_head_is_known_by_all_its_bytes(
            requests in proptest::collection::vec((0u8..90, "[a-z]{0,3}", any::<bool>()), 1..200),
            behind in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut known = KnownHeads::default();
            for (number, field, is_closing) in requests {
                let close = if is_closing { "Connection: close\r\n" } else { "" };
                let head =
                    format!("GET /file/{number} HTTP/1.1\r\nHost: a\r\nX-Y: {field}\r\n{close}\r\n");
                let request = request::parse(head.as_bytes()).expect("it is one");
                let meaning = Meaning { file: usize::from(number), persistence: request.persistence };
                let input = [head.as_bytes(), &behind].concat();
                if let Some(found) = known.find(&input) {
                    prop_assert_eq!(found, (head.len(), meaning), "{}", head);
                }
                prop_assert_eq!(known.find(&head.as_bytes()[..head.len() - 1]), None, "it has not all come");
                known.remember(head.as_bytes(), &request, usize::from(number));
                prop_assert_eq!(known.find(&input), Some((head.len(), meaning)));
            }
        }
    }

    #[test]
    fn what_depends_on_more_than_the_file_is_read_each_time() {
        let mut known = KnownHeads::default();
        for field in ["Range: bytes=0-1", "If-None-Match: *", "If-Modified-Since: x", "If-Match: \"a\""] {
            let head = format!("GET /index.html HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n");
            known.remember(head.as_bytes(), &request::parse(head.as_bytes()).expect("a request"), 0);
            assert_eq!(known.find(head.as_bytes()), None, "{field}");
        }
    }
}
