//! Asking price lists over HTTP, and reading what they answer.

use serde::Deserialize;
use serde::de::{DeserializeOwned, Error as _};
use std::time::Duration;
use ureq::Agent;
use ureq::http::header;

/// Largest answer that is read, in bytes.
const ANSWER_MAX: u64 = 64 << 20;
/// How much of an answer is shown that is not what was expected.
const SHOWN_MAX: usize = 60;

/// Why a source has no price to name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// Nobody answered, or not in time, or only in part.
    #[error("{url}: {reason}")]
    Unreachable {
        /// What was asked.
        url: String,
        /// What went wrong.
        reason: String,
    },
    /// The answer refuses.
    #[error("{url}: status {status}: {shown}")]
    Refused {
        /// What was asked.
        url: String,
        /// Status of the answer.
        status: u16,
        /// How its body begins.
        shown: String,
    },
    /// The answer is something else.
    #[error("{url}: expected {expected}, got `{shown}`")]
    NotThat {
        /// What was asked.
        url: String,
        /// What was expected.
        expected: &'static str,
        /// How the answer begins.
        shown: String,
    },
    /// A field of it is missing or wrong.
    #[error("{url}: field `{field}`: {detail}")]
    Field {
        /// What was asked.
        url: String,
        /// The field.
        field: String,
        /// What is wrong with it, and what was expected.
        detail: String,
    },
}

/// A client of price lists.
#[derive(Debug)]
pub struct Fetch {
    agent: Agent,
}

/// An answer, and what was asked for it.
#[derive(Debug)]
pub struct Answer {
    url: String,
    body: Vec<u8>,
}

impl Fetch {
    /// One that waits for no answer longer than `timeout`.
    pub fn new(timeout: Duration) -> Fetch {
        let config = Agent::config_builder().http_status_as_error(false).timeout_global(Some(timeout));
        Fetch { agent: config.user_agent(concat!("nom/", env!("CARGO_PKG_VERSION"))).build().into() }
    }

    /// Asks.
    ///
    /// # Errors
    /// If there is no answer, or a refusal.
    pub fn get(&self, url: &str, headers: &[(&str, &str)]) -> Result<Answer, SourceError> {
        let unreachable =
            |error: ureq::Error| SourceError::Unreachable { url: url.to_owned(), reason: error.to_string() };
        let request = self.agent.get(url).header(header::ACCEPT, "application/json, */*;q=0.5");
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let mut response = request.call().map_err(unreachable)?;
        let body = response.body_mut().with_config().limit(ANSWER_MAX).read_to_vec().map_err(unreachable)?;
        if !response.status().is_success() {
            let status = response.status().as_u16();
            return Err(SourceError::Refused { url: url.to_owned(), status, shown: shown(&body) });
        }
        Ok(Answer { url: url.to_owned(), body })
    }
}

impl Answer {
    /// Reads it as JSON.
    ///
    /// # Errors
    /// If it is something else, or a field is not as expected.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, SourceError> {
        let start = self.body.iter().find(|byte| !byte.is_ascii_whitespace());
        if !matches!(start, Some(b'{' | b'[')) {
            let (url, shown) = (self.url.clone(), shown(&self.body));
            return Err(SourceError::NotThat { url, expected: "JSON", shown });
        }
        let mut json = serde_json::Deserializer::from_slice(&self.body);
        serde_path_to_error::deserialize(&mut json)
            .map_err(|error| self.wrong(&error.path().to_string(), &error.inner().to_string()))
    }

    /// It as text.
    ///
    /// # Errors
    /// If it is none.
    pub fn text(&self) -> Result<&str, SourceError> {
        std::str::from_utf8(&self.body).map_err(|_| SourceError::NotThat {
            url: self.url.clone(),
            expected: "text",
            shown: shown(&self.body),
        })
    }

    /// Says that a field is wrong.
    pub fn wrong(&self, field: &str, detail: &str) -> SourceError {
        SourceError::Field { url: self.url.clone(), field: field.to_owned(), detail: detail.to_owned() }
    }
}

/// How a body begins, in one line.
fn shown(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(4 * SHOWN_MAX)]);
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(SHOWN_MAX).collect()
}

/// A decimal number in a string.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decimal(pub f64);

impl<'de> Deserialize<'de> for Decimal {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let number = text.trim().parse().map(Decimal);
        number.map_err(|_| D::Error::custom(format!("`{text}`, expected a decimal number in a string")))
    }
}
