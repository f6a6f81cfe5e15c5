//! `KIND:ARGUMENT,OPTION=VALUE,...`: a source in one line.

use std::collections::BTreeMap;
use std::time::Duration;

/// A line that names no source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("source `{source_text}`: {field} is `{found}`, expected {expected}")]
pub struct BadSource {
    /// The line.
    pub source_text: String,
    /// What in it is wrong.
    pub field: String,
    /// What it is.
    pub found: String,
    /// What was expected.
    pub expected: String,
}

/// A year: whoever waits longer has mistaken the unit.
const SECONDS_MAX: f64 = 365.0 * 86_400.0;

/// A line in its parts. What is not taken out of it is unknown.
#[derive(Clone, Debug)]
pub struct Spec {
    text: String,
    pub kind: String,
    pub argument: String,
    options: BTreeMap<String, String>,
}

impl Spec {
    /// Takes a line apart.
    ///
    /// # Errors
    /// If it has no such parts.
    pub fn parse(text: &str) -> Result<Spec, BadSource> {
        let shape = "KIND:ARGUMENT,OPTION=VALUE,...";
        let (kind, rest) = text.split_once(':').ok_or_else(|| bad(text, "the line", text, shape))?;
        let mut parts = rest.split(',');
        let argument = parts.next().unwrap_or_default().trim();
        if argument.is_empty() {
            return Err(bad(text, "the argument", "", shape));
        }
        let mut options = BTreeMap::new();
        for part in parts {
            let (key, value) =
                part.split_once('=').ok_or_else(|| bad(text, "an option", part, "OPTION=VALUE"))?;
            if options.insert(key.trim().to_owned(), value.trim().to_owned()).is_some() {
                return Err(bad(text, key, value, "each option once"));
            }
        }
        let (kind, argument) = (kind.trim().to_owned(), argument.to_owned());
        Ok(Spec { text: text.to_owned(), kind, argument, options })
    }

    /// Says that a part is wrong.
    pub fn bad(&self, field: &str, found: &str, expected: &str) -> BadSource {
        bad(&self.text, field, found, expected)
    }

    /// Takes out an option that need not be there.
    pub fn take(&mut self, key: &str) -> Option<String> {
        self.options.remove(key)
    }

    /// Takes out an option that has to be there.
    ///
    /// # Errors
    /// If it is absent.
    pub fn required(&mut self, key: &str, expected: &str) -> Result<String, BadSource> {
        self.take(key).ok_or_else(|| self.bad(&format!("option `{key}`"), "", expected))
    }

    /// Takes out a number above 0, if it is there.
    ///
    /// # Errors
    /// If it is no such number.
    pub fn number(&mut self, key: &str) -> Result<Option<f64>, BadSource> {
        let Some(text) = self.take(key) else { return Ok(None) };
        let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
        let expected = "a number above 0";
        number.map(Some).ok_or_else(|| self.bad(&format!("option `{key}`"), &text, expected))
    }

    /// Takes out a number above 0 that has to be there.
    ///
    /// # Errors
    /// If it is absent or no such number.
    pub fn required_number(&mut self, key: &str, expected: &str) -> Result<f64, BadSource> {
        self.number(key)?.ok_or_else(|| self.bad(&format!("option `{key}`"), "", expected))
    }

    /// Takes out a time in seconds.
    ///
    /// # Errors
    /// If it is no time.
    pub fn seconds(&mut self, key: &str, otherwise: f64) -> Result<Duration, BadSource> {
        let seconds = self.number(key)?.unwrap_or(otherwise);
        if seconds > SECONDS_MAX {
            return Err(self.bad(
                &format!("option `{key}`"),
                &seconds.to_string(),
                "at most a year of seconds",
            ));
        }
        Ok(Duration::from_secs_f64(seconds))
    }

    /// The base of all URLs: option `url`, for other places with the same interface.
    pub fn base_url(&mut self, otherwise: &str) -> String {
        let url = self.take("url").unwrap_or_else(|| otherwise.to_owned());
        url.trim_end_matches('/').to_owned()
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// If an option is left that nobody knows.
    pub fn finish(self) -> Result<(), BadSource> {
        match self.options.keys().next() {
            None => Ok(()),
            Some(key) => Err(self.bad("an option", key, "one that this kind of source has")),
        }
    }
}

fn bad(text: &str, field: &str, found: &str, expected: &str) -> BadSource {
    BadSource {
        source_text: text.to_owned(),
        field: field.to_owned(),
        found: found.to_owned(),
        expected: expected.to_owned(),
    }
}
