//! AWS Signature Version 4 of a GET request ("Create a signed AWS API request" of the IAM user guide).

use hmac::{Hmac, Mac};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest, Sha256};
use std::fmt;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// All but the unreserved characters of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Who signs.
#[derive(Clone)]
pub struct Credentials {
    pub access_key: String,
    pub secret_key: String,
    /// Of temporary credentials.
    pub session_token: Option<String>,
}

/// Without the secrets.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

/// What is signed: a request without a body.
#[derive(Debug)]
pub struct Request<'r> {
    pub path: &'r str,
    /// Names and values, not encoded.
    pub query: &'r [(&'r str, &'r str)],
    /// Names in small letters, and values; `host` and `x-amz-date` have to be among them.
    pub headers: &'r [(&'r str, &'r str)],
    pub region: &'r str,
    pub service: &'r str,
    /// `20150830T123600Z`.
    pub time: &'r str,
}

/// The query of a URL in canonical form: encoded, in order.
pub fn canonical_query(query: &[(&str, &str)]) -> String {
    let encode = |text: &str| utf8_percent_encode(text, RESERVED).to_string();
    let mut pairs: Vec<String> =
        query.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
    pairs.sort();
    pairs.join("&")
}

impl Request<'_> {
    /// The value of its header `Authorization`.
    pub fn authorization(&self, credentials: &Credentials) -> String {
        let scope = format!("{}/{}/{}/aws4_request", self.date(), self.region, self.service);
        let to_sign = format!("{ALGORITHM}\n{}\n{scope}\n{}", self.time, hex_digest(&self.canonical()));
        let signature = hex(&hmac(&self.key(&credentials.secret_key), &to_sign));
        let (key, signed) = (&credentials.access_key, self.signed_headers());
        format!("{ALGORITHM} Credential={key}/{scope}, SignedHeaders={signed}, Signature={signature}")
    }

    fn date(&self) -> &str {
        self.time.split('T').next().unwrap_or_default()
    }

    fn key(&self, secret: &str) -> Vec<u8> {
        let start = format!("AWS4{secret}").into_bytes();
        [self.date(), self.region, self.service, "aws4_request"]
            .iter()
            .fold(start, |key, part| hmac(&key, part))
    }

    fn sorted_headers(&self) -> Vec<(&str, &str)> {
        let mut headers = self.headers.to_vec();
        headers.sort();
        headers
    }

    fn signed_headers(&self) -> String {
        self.sorted_headers().iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";")
    }

    fn canonical(&self) -> String {
        let header = |(name, value): &(&str, &str)| format!("{name}:{}\n", value.trim());
        let headers: String = self.sorted_headers().iter().map(header).collect();
        let (query, signed, body) = (canonical_query(self.query), self.signed_headers(), hex_digest(""));
        format!("GET\n{}\n{query}\n{headers}\n{signed}\n{body}", self.path)
    }
}

fn hmac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn hex_digest(text: &str) -> String {
    hex(&Sha256::digest(text))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of AWS's published test suite.
    fn credentials() -> Credentials {
        Credentials {
            access_key: "AKIDEXAMPLE".into(),
            secret_key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into(),
            session_token: None,
        }
    }

    fn signature(query: &[(&str, &str)]) -> String {
        let request = Request {
            path: "/",
            query,
            headers: &[("x-amz-date", "20150830T123600Z"), ("host", "example.amazonaws.com")],
            region: "us-east-1",
            service: "service",
            time: "20150830T123600Z",
        };
        let header = request.authorization(&credentials());
        assert!(header.contains("SignedHeaders=host;x-amz-date, "), "{header}");
        header.rsplit('=').next().unwrap_or_default().to_owned()
    }

    #[test]
    fn signatures_are_those_of_the_published_suite() {
        // get-vanilla
        assert_eq!(signature(&[]), "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
        // get-vanilla-query-order-key-case
        assert_eq!(
            signature(&[("Param2", "value2"), ("Param1", "value1")]),
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"
        );
    }

    #[test]
    fn the_key_is_that_of_the_published_example() {
        let request = Request {
            path: "/",
            query: &[],
            headers: &[],
            region: "us-east-1",
            service: "iam",
            time: "20150830T123600Z",
        };
        let key = hex(&request.key("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"));
        assert_eq!(key, "c4afb1cc5771d871763a393e44b703571b55cc28424d1a5e86da6ed3c154a4b9");
    }

    #[test]
    fn a_query_is_encoded_as_rfc_3986_says() {
        assert_eq!(
            canonical_query(&[("b", "Linux/UNIX (x)"), ("a", "~-_.")]),
            "a=~-_.&b=Linux%2FUNIX%20%28x%29"
        );
        assert!(!format!("{:?}", credentials()).contains("EXAMPLEKEY"));
    }
}
