//! What may be the name of a machine, an application, an activity or an account: one rule, so that whoever
//! makes a record knows beforehand whether the ledger takes it.

/// Most characters of a name.
pub(crate) const NAME_MAX: usize = 128;

/// Whether people can read it and stores can keep it.
pub(crate) fn is_name(word: &str) -> bool {
    is_text(word, NAME_MAX)
}

/// What is expected of a name.
pub(crate) fn expected() -> String {
    expected_text(NAME_MAX)
}

/// The same as [`is_name`] for what may have another length, such as an id that has a name in it.
pub(crate) fn is_text(word: &str, length_max: usize) -> bool {
    (1..=length_max).contains(&word.chars().count()) && !word.chars().any(char::is_control)
}

/// What is expected of such a text.
pub(crate) fn expected_text(length_max: usize) -> String {
    format!("1 to {length_max} characters, none of them a control character")
}
