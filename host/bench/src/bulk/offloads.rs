//! What a network device takes off its guest.

use anyhow::{Result, bail};
use std::fmt;

/// Of what the device can do, what it offers. A checksum is always its.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offloads {
    /// It cuts what is sent, and joins what is received.
    All,
    /// It cuts what is sent.
    Send,
    /// It joins what is received.
    Receive,
    /// Every frame is one of the wire's.
    None,
}

/// Properties of QEMU's device, which it has switched on by itself.
const CUTS: [&str; 3] = ["host_tso4", "host_tso6", "host_ecn"];
const JOINS: [&str; 3] = ["guest_tso4", "guest_tso6", "guest_ecn"];

impl Offloads {
    /// All of them, as they are named.
    pub const EACH: [Offloads; 4] = [Offloads::All, Offloads::Send, Offloads::Receive, Offloads::None];

    fn name(self) -> &'static str {
        match self {
            Offloads::All => "all",
            Offloads::Send => "send",
            Offloads::Receive => "receive",
            Offloads::None => "none",
        }
    }

    /// Those of these names; all if there are none.
    ///
    /// # Errors
    /// If one has another name.
    pub fn named(names: &[String]) -> Result<Vec<Offloads>> {
        if names.is_empty() {
            return Ok(Offloads::EACH.to_vec());
        }
        let find = |name: &String| match Offloads::EACH.iter().find(|offloads| offloads.name() == name) {
            Some(offloads) => Ok(*offloads),
            None => bail!("no offloads `{name}`: expected all, send, receive or none"),
        };
        names.iter().map(find).collect()
    }

    /// QEMU's arguments by which its device offers no more than that.
    pub fn arguments(self) -> Vec<String> {
        let cuts = CUTS.iter().filter(|_| matches!(self, Offloads::Receive | Offloads::None));
        let joins = JOINS.iter().filter(|_| matches!(self, Offloads::Send | Offloads::None));
        let off = |property: &&str| ["-global".to_owned(), format!("virtio-net-pci.{property}=off")];
        cuts.chain(joins).flat_map(off).collect()
    }
}

impl fmt::Display for Offloads {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "offloads {}", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_offers_no_more_than_it_is_told() {
        let has = |offloads: Offloads, property: &str| {
            !offloads.arguments().contains(&format!("virtio-net-pci.{property}=off"))
        };
        for (offloads, cuts, joins) in [
            (Offloads::All, true, true),
            (Offloads::Send, true, false),
            (Offloads::Receive, false, true),
            (Offloads::None, false, false),
        ] {
            assert_eq!(
                [has(offloads, "host_tso4"), has(offloads, "guest_tso4")],
                [cuts, joins],
                "{offloads}"
            );
        }
    }

    #[test]
    fn they_are_chosen_by_name() {
        assert_eq!(Offloads::named(&[]).unwrap(), Offloads::EACH);
        assert_eq!(Offloads::named(&["none".into()]).unwrap(), [Offloads::None]);
        let error = Offloads::named(&["tso".into()]).unwrap_err().to_string();
        assert_eq!(error, "no offloads `tso`: expected all, send, receive or none");
    }
}
