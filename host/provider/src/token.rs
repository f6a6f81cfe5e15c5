//! The operator's token: who knows it may set prices and write the ledger.

use anyhow::{Context, Result, ensure};
use std::fmt;
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use subtle::ConstantTimeEq;

const RANDOM_BYTES: usize = 16;
/// Fewer characters than this could be guessed.
const LENGTH_MIN: usize = 16;
const LENGTH_MAX: u64 = 4096;

/// A secret word.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// A fresh one of 128 random bits.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub fn random() -> Result<Token> {
        let mut bytes = [0; RANDOM_BYTES];
        getrandom::fill(&mut bytes).context("no randomness for a token")?;
        Ok(Token(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// A chosen one.
    ///
    /// # Errors
    /// If it is too short, or has characters that do not go into a header.
    pub fn new(word: &str) -> Result<Token> {
        let fits = word.len() >= LENGTH_MIN && word.bytes().all(|byte| byte.is_ascii_graphic());
        ensure!(fits, "token: expected at least {LENGTH_MIN} printable ASCII characters without blanks");
        Ok(Token(word.to_owned()))
    }

    /// The one in the file at `path`; if there is no such file, it is made, for its owner alone to read.
    ///
    /// # Errors
    /// If the file can be neither read nor made, or holds no token.
    pub fn from_file(path: &Path) -> Result<Token> {
        let named = || format!("token file {}", path.display());
        let create = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        match create {
            Ok(mut file) => {
                let token = Token::random()?;
                writeln!(file, "{}", token.0).with_context(named)?;
                Ok(token)
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                let mut text = String::new();
                let file = OpenOptions::new().read(true).open(path).with_context(named)?;
                file.take(LENGTH_MAX).read_to_string(&mut text).with_context(named)?;
                Token::new(text.trim()).with_context(named)
            }
            Err(error) => Err(error).with_context(named),
        }
    }

    /// Whether `word` is it, in a time that says nothing of where they differ.
    pub fn is(&self, word: &str) -> bool {
        self.0.as_bytes().ct_eq(word.as_bytes()).into()
    }

    /// The word itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

/// Without the secret, so that no log has it.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_token_is_made_once_for_its_owner_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("token");
        let made = Token::from_file(&path).expect("made");
        assert_eq!(Token::from_file(&path).expect("read"), made);
        let mode = path.metadata().expect("it exists").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_ne!(made, Token::random().expect("random"));
    }

    #[test]
    fn only_the_whole_word_is_it() {
        let token = Token::new("0123456789abcdef").expect("long enough");
        assert!(token.is("0123456789abcdef"));
        for other in ["", "0123456789abcde", "0123456789abcdeg", "0123456789abcdef0"] {
            assert!(!token.is(other), "{other}");
        }
        assert_eq!(format!("{token:?}"), "Token");
    }

    #[test]
    fn what_could_be_guessed_is_no_token() {
        for word in ["", "short", "with a blank in it", "0123456789abcde\u{e9}"] {
            assert!(Token::new(word).is_err(), "{word}");
        }
    }
}
