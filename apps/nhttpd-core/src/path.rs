//! Targets of requests: from what stands in the request line to the path of a file.

use alloc::borrow::Cow;
use alloc::vec::Vec;

/// What a target is not good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadTarget {
    /// It is no path, or not encoded as one.
    Malformed,
    /// It leads out of what is served.
    Traversal,
}

/// The path of a target in origin form or absolute form (RFC 9112 section 3.2), without its query, still
/// encoded.
pub fn raw_path(target: &str) -> Result<&str, BadTarget> {
    let origin = match after_scheme(target, "http://").or_else(|| after_scheme(target, "https://")) {
        None => target,
        Some(rest) => match rest.find(['/', '?']) {
            Some(at) if at > 0 && rest.as_bytes()[at] == b'/' => &rest[at..],
            Some(at) if at > 0 => "/",
            None if !rest.is_empty() => "/",
            _ => return Err(BadTarget::Malformed),
        },
    };
    let end = origin.find(['?', '#']).unwrap_or(origin.len());
    match origin.starts_with('/') {
        true => Ok(&origin[..end]),
        false => Err(BadTarget::Malformed),
    }
}

/// The site that a request is for, without a port: the target's, if it names one (RFC 9112 section 3.2.2),
/// and else that of the field `Host`.
pub fn host<'a>(target: &'a str, field: &'a [u8]) -> &'a [u8] {
    let named = after_scheme(target, "http://").or_else(|| after_scheme(target, "https://"));
    let authority =
        named.map_or(field, |rest| &rest.as_bytes()[..rest.find(['/', '?']).unwrap_or(rest.len())]);
    // An IPv6 address has colons of its own, within brackets (RFC 3986 section 3.2.2).
    let name = authority.iter().position(|byte| *byte == b']').map_or(0, |end| end + 1);
    let end = authority[name..].iter().position(|byte| *byte == b':').map_or(authority.len(), |at| name + at);
    &authority[..end]
}

/// The query of a target, with its question mark.
pub fn query(target: &str) -> &str {
    target.find('?').map_or("", |at| &target[at..])
}

/// The path as files are named: decoded, and checked to stay within what is served.
pub fn decode(raw: &str) -> Result<Cow<'_, [u8]>, BadTarget> {
    let decoded = match memchr::memchr(b'%', raw.as_bytes()) {
        None => Cow::Borrowed(raw.as_bytes()),
        Some(first) => Cow::Owned(decode_percent(raw.as_bytes(), first)?),
    };
    if decoded.contains(&0) {
        return Err(BadTarget::Malformed);
    }
    let leads_out = |segment: &[u8]| segment == b"." || segment == b"..";
    match decoded.split(|&byte| byte == b'/' || byte == b'\\').any(leads_out) {
        true => Err(BadTarget::Traversal),
        false => Ok(decoded),
    }
}

fn decode_percent(raw: &[u8], first: usize) -> Result<Vec<u8>, BadTarget> {
    let mut decoded = raw[..first].to_vec();
    let mut rest = &raw[first..];
    while let [byte, after @ ..] = rest {
        rest = after;
        if *byte != b'%' {
            decoded.push(*byte);
            continue;
        }
        let [high, low, after @ ..] = after else { return Err(BadTarget::Malformed) };
        decoded.push(hexadecimal(*high)? << 4 | hexadecimal(*low)?);
        rest = after;
    }
    Ok(decoded)
}

fn hexadecimal(digit: u8) -> Result<u8, BadTarget> {
    let value = char::from(digit).to_digit(16).ok_or(BadTarget::Malformed)?;
    Ok(value as u8)
}

/// What follows a scheme, whose case does not matter (RFC 9110 section 4.2.3).
fn after_scheme<'a>(target: &'a str, scheme: &str) -> Option<&'a str> {
    let (start, rest) = target.split_at_checked(scheme.len())?;
    start.eq_ignore_ascii_case(scheme).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_named_without_its_port() {
        for (target, field, expected) in [
            ("/", "a.example", "a.example"),
            ("/", "a.example:80", "a.example"),
            ("/a:b", "[::1]:80", "[::1]"),
            ("/", "[::1]", "[::1]"),
            ("/", "", ""),
            ("http://b.example:8080/x:y", "a.example", "b.example"),
            ("HTTPS://b.example?x", "a.example", "b.example"),
        ] {
            assert_eq!(host(target, field.as_bytes()), expected.as_bytes(), "{target} {field}");
        }
    }

    fn path(target: &str) -> Result<String, BadTarget> {
        let decoded = decode(raw_path(target)?)?;
        Ok(String::from_utf8_lossy(&decoded).into_owned())
    }

    #[test]
    fn a_target_is_decoded_once() {
        assert_eq!(path("/a%20b%2Fc?x=%zz").unwrap(), "/a b/c");
        assert_eq!(path("/%2541").unwrap(), "/%41");
        assert_eq!(path("http://example.org/a/b?c").unwrap(), "/a/b");
        assert_eq!(path("HTTP://example.org/a").unwrap(), "/a");
        assert_eq!(path("http://example.org").unwrap(), "/");
        assert_eq!(path("http://example.org?q").unwrap(), "/");
        assert_eq!(query("/a?b?c"), "?b?c");
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for target in ["", "*", "a", "http:///a", "http://", "/%", "/%4", "/%zz", "/%00", "/a%+1"] {
            assert_eq!(path(target), Err(BadTarget::Malformed), "{target}");
        }
    }

    #[test]
    fn no_path_leads_out() {
        for target in ["/..", "/a/../b", "/%2e%2e/a", "/..%2fa", "/.%2E", "/..\\a", "/./a", "http://x/../a"] {
            assert_eq!(path(target), Err(BadTarget::Traversal), "{target}");
        }
        assert_eq!(path("/...").unwrap(), "/...");
        assert_eq!(path("/a..b/.c").unwrap(), "/a..b/.c");
    }
}
