//! The operator's token: who knows it may set prices and write the ledger.

use crate::secret_file;
use anyhow::{Context, Result, ensure};
use std::fmt;
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;
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
        secret_file::make(path, || Ok(Token::random()?.0 + "\n")).with_context(named)?;
        Token::read(path)
    }

    /// The one in the file at `path`.
    ///
    /// # Errors
    /// If the file cannot be read, or holds no token.
    pub fn read(path: &Path) -> Result<Token> {
        let named = || format!("token file {}", path.display());
        let mut text = String::new();
        let file = OpenOptions::new().read(true).open(path).with_context(named)?;
        file.take(LENGTH_MAX).read_to_string(&mut text).with_context(named)?;
        Token::new(text.trim()).with_context(named)
    }

    /// Puts a fresh one into the file at `path`, in place of the one there.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn rotate(path: &Path) -> Result<Token> {
        let named = || format!("token file {}", path.display());
        let token = Token::random()?;
        let mut draft = path.as_os_str().to_owned();
        draft.push(".new");
        let write = || -> std::io::Result<()> {
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
            writeln!(file, "{}", token.0)?;
            file.sync_all()?;
            std::fs::rename(&draft, path)
        };
        write().with_context(named)?;
        Ok(token)
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

/// The operator's token as a running provider knows it: what is in its file now, so that a new one holds as
/// soon as it is written there.
#[derive(Debug)]
pub(crate) struct OperatorToken {
    file: Option<PathBuf>,
    held: Mutex<(Option<SystemTime>, Token)>,
}

impl OperatorToken {
    /// The token, and the file that it was read from.
    pub fn new(token: Token, file: Option<PathBuf>) -> OperatorToken {
        let modified = file.as_deref().and_then(modified);
        OperatorToken { file, held: Mutex::new((modified, token)) }
    }

    /// Whether `word` is it.
    pub fn is(&self, word: &str) -> bool {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &self.file {
            let modified = modified(file);
            // A file that is gone or holds none leaves the last one in force.
            if modified != held.0
                && let Ok(token) = Token::read(file)
            {
                *held = (modified, token);
            }
        }
        held.1.is(word)
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|metadata| metadata.modified()).ok()
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
    fn a_new_token_holds_as_soon_as_it_is_in_the_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("token");
        let old = Token::from_file(&path).expect("made");
        let known = OperatorToken::new(old.clone(), Some(path.clone()));
        assert!(known.is(old.reveal()));
        // Times of files are coarse.
        let past = SystemTime::now() - std::time::Duration::from_secs(9);
        std::fs::File::options().write(true).open(&path).and_then(|f| f.set_modified(past)).expect("set");
        assert!(known.is(old.reveal()));
        let new = Token::rotate(&path).expect("written");
        assert!(known.is(new.reveal()) && !known.is(old.reveal()));
        assert_eq!(path.metadata().expect("it exists").permissions().mode() & 0o777, 0o600);
        std::fs::write(&path, "short").expect("written");
        assert!(known.is(new.reveal()), "what is no token changes nothing");
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
