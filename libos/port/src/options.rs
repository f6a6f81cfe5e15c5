//! What is wrong with a command line: the errors of every application's options.

use alloc::borrow::{Cow, ToOwned};
use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

/// What is wrong with a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionError {
    /// There is no such option.
    Unknown {
        /// What stood there.
        option: String,
        /// The options that there are.
        known: &'static str,
    },
    /// An argument that belongs to no option.
    Stray(String),
    /// An option lacks its value; says which.
    Missing(String),
    /// A value is not what its option takes.
    Bad {
        /// The option.
        option: &'static str,
        /// What stood there.
        value: String,
        /// What should have.
        expected: Cow<'static, str>,
    },
}

impl OptionError {
    /// A value that is not what `option` takes.
    pub fn bad(option: &'static str, value: &str, expected: impl Into<Cow<'static, str>>) -> OptionError {
        OptionError::Bad { option, value: value.to_owned(), expected: expected.into() }
    }

    /// An option without its value, as the parser of the command line said it.
    pub fn missing(error: impl fmt::Display) -> OptionError {
        OptionError::Missing(error.to_string())
    }
}

/// The value of `option` as a number that is at least `least`.
///
/// # Errors
/// [`OptionError::Bad`], with what was `expected`.
pub fn number<N: FromStr + PartialOrd>(
    option: &'static str,
    value: &str,
    least: N,
    expected: &'static str,
) -> Result<N, OptionError> {
    let number = value.parse().ok().filter(|number| *number >= least);
    number.ok_or_else(|| OptionError::bad(option, value, expected))
}

impl fmt::Display for OptionError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionError::Unknown { option, known } => {
                write!(out, "unknown option {option}; known are {known}")
            }
            OptionError::Stray(argument) => {
                write!(out, "unexpected argument '{argument}': only options are taken")
            }
            OptionError::Missing(what) => out.write_str(what),
            OptionError::Bad { option, value, expected } => {
                write!(out, "{option} '{value}': expected {expected}")
            }
        }
    }
}

impl core::error::Error for OptionError {}
