//! Rules that tell activities apart: whom a client, or a single request, is served for.
//!
//! Rules stand in an order, and the first that holds decides. Some of what a rule asks is known as soon as
//! somebody connects (the port, the client's address), the rest only when a request was read (the site, the
//! path, the key). [`Rules::of_connection`] looks at the former once a connection and leaves a [`Class`];
//! [`Rules::of_request`] looks only at the rules that are left.

use crate::activity::{Activity, FIRST_NAMED, OTHERS, RESERVED};
use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;
use nom_port::buffer::Asked;

/// Most rules: a [`Class`] has a bit for each.
pub const RULES_MAX: usize = 64;

/// Longest name of an activity, and longest site, path or key prefix of a rule, in bytes.
const TEXT_MAX: usize = 250;

/// Addresses that begin with the same bits (RFC 4632 section 3.1, RFC 4291 section 2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressPrefix {
    address: IpAddr,
    bits: u8,
}

impl AddressPrefix {
    fn has(&self, address: IpAddr) -> bool {
        let (ours, theirs, width) = match (self.address, address) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => (ours.to_bits().into(), theirs.to_bits().into(), 32),
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => (ours.to_bits(), theirs.to_bits(), 128),
            _ => return false,
        };
        let differing: u128 = ours ^ theirs;
        differing.checked_shr(width - u32::from(self.bits)).unwrap_or(0) == 0
    }

    fn includes(&self, other: &AddressPrefix) -> bool {
        self.bits <= other.bits && self.has(other.address)
    }
}

impl FromStr for AddressPrefix {
    type Err = ();

    fn from_str(text: &str) -> Result<AddressPrefix, ()> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u8>().map_err(drop)?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(drop)?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(width);
        (bits <= width).then_some(AddressPrefix { address, bits }).ok_or(())
    }
}

impl fmt::Display for AddressPrefix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.address, self.bits)
    }
}

/// Who is served for an activity: everybody of whom all that is given holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// The activity's name. Several rules may have the same.
    pub name: String,
    /// The port at which the client asks.
    pub port: Option<u16>,
    /// Where the client is.
    pub clients: Option<AddressPrefix>,
    /// The site that the request is for, letters of either case.
    pub host: Option<String>,
    /// What the path of the page begins with.
    pub path: Option<String>,
    /// What the key begins with.
    pub key: Option<String>,
}

impl Rule {
    fn holds_for_connection(&self, port: u16, client: IpAddr) -> bool {
        self.port.is_none_or(|ours| ours == port) && self.clients.is_none_or(|clients| clients.has(client))
    }

    fn is_of_requests(&self) -> bool {
        self.host.is_some() || self.path.is_some() || self.key.is_some()
    }

    fn holds_for_request(&self, asked: Asked<'_>) -> bool {
        match asked {
            Asked::Key(key) => {
                self.host.is_none()
                    && self.path.is_none()
                    && self.key.as_ref().is_none_or(|prefix| key.starts_with(prefix.as_bytes()))
            }
            Asked::Page { host, path } => {
                self.key.is_none()
                    && self.host.as_ref().is_none_or(|ours| host.eq_ignore_ascii_case(ours.as_bytes()))
                    && self.path.as_ref().is_none_or(|prefix| path.starts_with(prefix.as_bytes()))
            }
        }
    }

    /// Whether this rule holds whenever `other` does.
    fn covers(&self, other: &Rule) -> bool {
        let is_prefix = |ours: &Option<String>, theirs: &Option<String>| {
            ours.as_ref().is_none_or(|ours| theirs.as_ref().is_some_and(|theirs| theirs.starts_with(&**ours)))
        };
        let is_host = self
            .host
            .as_ref()
            .is_none_or(|ours| other.host.as_ref().is_some_and(|theirs| theirs.eq_ignore_ascii_case(ours)));
        self.port.is_none_or(|port| other.port == Some(port))
            && self.clients.is_none_or(|ours| other.clients.is_some_and(|theirs| ours.includes(&theirs)))
            && is_host
            && is_prefix(&self.path, &other.path)
            && is_prefix(&self.key, &other.key)
    }

    fn texts(&self) -> impl Iterator<Item = (&'static str, &String)> {
        let texts = [("host", &self.host), ("path", &self.path), ("key", &self.key)];
        texts.into_iter().filter_map(|(field, text)| Some((field, text.as_ref()?)))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.name)?;
        self.port.map_or(Ok(()), |port| write!(out, " port={port}"))?;
        self.clients.map_or(Ok(()), |clients| write!(out, " clients={clients}"))?;
        self.texts().try_for_each(|(field, text)| write!(out, " {field}={text}"))
    }
}

/// Why rules cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRules {
    /// They are more than [`RULES_MAX`].
    #[error("{0} rules, expected at most {RULES_MAX}")]
    TooMany(usize),
    /// An activity has a name that it cannot have.
    #[error(
        "`name`: `{0}`, expected 1 to {TEXT_MAX} printable ASCII characters but spaces, `;`, `\"`, `=` and \
         `\\`, and none of infrastructure, governing, others"
    )]
    Name(String),
    /// A field of an activity's rule is not what it can be.
    #[error("`{1}` of `{0}`: expected 1 to {TEXT_MAX} printable ASCII characters but spaces and `;`")]
    Text(String, &'static str),
    /// No client and no request ever comes to a rule, since an earlier one takes them all: the numbers of
    /// both, from 1.
    #[error(
        "rule {0} never comes to its turn: rule {1} has all that it asks for, expected the narrower first"
    )]
    Unreachable(usize, usize),
    /// A word that says nothing that a rule can ask.
    #[error("`{0}`: expected port=, clients=, host=, path= or key=, with what each can be")]
    Word(String),
}

/// What a connection's address and port leave to be decided: the rules that a request on it may yet meet, by
/// their bits, and whose all others are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    candidates: u64,
    base: Activity,
}

impl Class {
    /// That of a client whom no rule names.
    pub const OTHERS: Class = Class { candidates: 0, base: OTHERS };

    /// Whom the connection is served for, as long as no request says more.
    #[inline]
    pub fn base(self) -> Activity {
        self.base
    }

    /// Whether requests may be for others than the connection.
    #[inline]
    pub fn is_by_request(self) -> bool {
        self.candidates != 0
    }
}

/// Rules in their order, and the activities that they name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    rules: Vec<Rule>,
    /// For each rule: the activity, and what keys begin with.
    activities: Vec<Activity>,
    keys: Vec<KeyPrefix>,
    /// Of the activities that rules name, without [`RESERVED`].
    names: Vec<String>,
}

impl Rules {
    /// Rules that can be followed.
    ///
    /// # Errors
    /// [`BadRules`], which says what was expected.
    pub fn checked(rules: Vec<Rule>) -> Result<Rules, BadRules> {
        if rules.len() > RULES_MAX {
            return Err(BadRules::TooMany(rules.len()));
        }
        let (mut names, mut activities) = (Vec::<String>::new(), Vec::new());
        for (index, rule) in rules.iter().enumerate() {
            check(rule)?;
            if let Some(by) = rules[..index].iter().position(|earlier| earlier.covers(rule)) {
                return Err(BadRules::Unreachable(index + 1, by + 1));
            }
            let place = names.iter().position(|name| *name == rule.name).unwrap_or_else(|| {
                names.push(rule.name.clone());
                names.len() - 1
            });
            activities.push(Activity(FIRST_NAMED + place as u32));
        }
        let keys = rules.iter().map(KeyPrefix::of).collect();
        Ok(Rules { rules, activities, keys, names })
    }

    /// Whether there are none: nobody is told apart.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The names of all activities, those included that every program has, by number.
    pub fn names(&self) -> impl Iterator<Item = &str> + Clone {
        RESERVED.into_iter().chain(self.names.iter().map(String::as_str))
    }

    /// What a connection of `client` to `port` is.
    pub fn of_connection(&self, port: u16, client: IpAddr) -> Class {
        let mut class = Class::OTHERS;
        for (index, rule) in self.rules.iter().enumerate() {
            if !rule.holds_for_connection(port, client) {
                continue;
            }
            if !rule.is_of_requests() {
                class.base = self.activities[index];
                break;
            }
            class.candidates |= 1 << index;
        }
        class
    }

    /// Whom a request on such a connection is served for.
    pub fn of_request(&self, class: Class, asked: Asked<'_>) -> Activity {
        let first = match asked {
            Asked::Key(key) => {
                let head = head(key);
                first(class.candidates, |index| {
                    self.keys[index].may_hold(head)
                        && (!self.keys[index].is_long || self.rules[index].holds_for_request(asked))
                })
            }
            Asked::Page { .. } => first(class.candidates, |index| self.rules[index].holds_for_request(asked)),
        };
        first.map_or(class.base, |index| self.activities[index])
    }
}

/// The lowest of the bits that `holds`.
#[inline]
fn first(mut bits: u64, holds: impl Fn(usize) -> bool) -> Option<usize> {
    while bits != 0 {
        let index = bits.trailing_zeros() as usize;
        if holds(index) {
            return Some(index);
        }
        bits &= bits - 1;
    }
    None
}

/// What keys begin with, as far as one word shows it: every command with a key looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KeyPrefix {
    value: u64,
    mask: u64,
    /// There is more to it than fits into the word, or than keys.
    is_long: bool,
}

impl KeyPrefix {
    fn of(rule: &Rule) -> KeyPrefix {
        let prefix = rule.key.as_deref().unwrap_or_default().as_bytes();
        let bits = 8 * prefix.len().min(8) as u32;
        let is_long = prefix.len() > 8 || rule.host.is_some() || rule.path.is_some();
        KeyPrefix { value: head(prefix), mask: 1u64.checked_shl(bits).unwrap_or(0).wrapping_sub(1), is_long }
    }

    #[inline]
    fn may_hold(self, head: u64) -> bool {
        (head ^ self.value) & self.mask == 0
    }
}

/// The first bytes in a word, the first the lowest; zeros behind their end.
#[inline]
fn head(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(word) => u64::from_le_bytes(*word),
        None => bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

fn check(rule: &Rule) -> Result<(), BadRules> {
    let is_text = |text: &str| {
        (1..=TEXT_MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b';')
    };
    if !is_text(&rule.name) || rule.name.contains(['"', '=', '\\']) || RESERVED.contains(&&*rule.name) {
        return Err(BadRules::Name(rule.name.clone()));
    }
    let bad = rule.texts().find(|(_, text)| !is_text(text));
    bad.map_or(Ok(()), |(field, _)| Err(BadRules::Text(rule.name.clone(), field)))
}

/// As [`Rules::from_str`] reads them: on one line, rules apart by `;`.
impl fmt::Display for Rules {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, rule) in self.rules.iter().enumerate() {
            write!(out, "{}{rule}", if index == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

impl FromStr for Rules {
    type Err = BadRules;

    fn from_str(text: &str) -> Result<Rules, BadRules> {
        let rules = text.split(';').filter(|rule| !rule.trim().is_empty());
        Rules::checked(rules.map(rule).collect::<Result<_, _>>()?)
    }
}

fn rule(text: &str) -> Result<Rule, BadRules> {
    let mut words = text.split_whitespace();
    let mut rule = Rule { name: words.next().unwrap_or_default().to_owned(), ..Rule::default() };
    for word in words {
        let bad = || BadRules::Word(word.to_owned());
        let (field, value) = word.split_once('=').ok_or_else(bad)?;
        match field {
            "port" => rule.port = Some(value.parse().map_err(|_| bad())?),
            "clients" => rule.clients = Some(value.parse().map_err(|()| bad())?),
            "host" => rule.host = Some(value.to_string()),
            "path" => rule.path = Some(value.to_string()),
            "key" => rule.key = Some(value.to_string()),
            _ => return Err(bad()),
        }
    }
    Ok(rule)
}

#[cfg(test)]
mod tests;
