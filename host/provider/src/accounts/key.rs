//! Keys: `nom_ROLE_ID_SECRET`. The ID finds what is stored of a key, which is a hash of the whole.

use anyhow::{Context, Result};
use nom_proto::account::Role;
use sha2::{Digest, Sha256};
use std::fmt;

/// First part of every key, by which people and scanners for leaked secrets know it.
const MARK: &str = "nom";
const ID_BYTES: usize = 6;
/// So many random bits cannot be guessed, so that a fast hash of them is as good as a slow one.
const SECRET_BYTES: usize = 16;

/// A key, as its owner has it.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    /// A fresh one.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub fn random(role: Role) -> Result<Key> {
        let (id, secret) = (random::<ID_BYTES>()?, random::<SECRET_BYTES>()?);
        Ok(Key(format!("{MARK}_{}_{id}_{secret}", role.name())))
    }

    /// The key that `word` may be; none if it does not even look like one.
    pub fn parse(word: &str) -> Option<Key> {
        let parts: Vec<&str> = word.split('_').collect();
        let [mark, role, id, secret] = parts[..] else { return None };
        let is_hex = |text: &str, bytes: usize| {
            text.len() == 2 * bytes && text.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        let fits = mark == MARK && Role::from_name(role).is_some();
        (fits && is_hex(id, ID_BYTES) && is_hex(secret, SECRET_BYTES)).then(|| Key(word.to_owned()))
    }

    /// By which it is found, and people speak of it.
    pub fn id(&self) -> &str {
        self.0.split('_').nth(2).expect("a key has four parts")
    }

    /// What is stored of it.
    pub fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_bytes()).into()
    }

    /// The key itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

/// Without the secret, so that no log has it.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.id())
    }
}

fn random<const BYTES: usize>() -> Result<String> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).context("no randomness for a key")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_was_made_and_nothing_else_is() {
        let key = Key::random(Role::Meter).expect("random");
        assert_eq!(Key::parse(key.reveal()), Some(key.clone()));
        let shown = format!("{key:?}");
        assert!(shown.contains(key.id()) && !key.reveal().contains(&shown) && shown.len() < 20, "{shown}");
        let longer = format!("{}0", key.reveal());
        let other_role = key.reveal().replace("meter", "king");
        for word in ["", "nom_meter", "nom_meter_1_2", &longer, &other_role, &key.reveal()[1..]] {
            assert_eq!(Key::parse(word), None, "{word}");
        }
    }
}
