//! One name for one thing: the public types of the economy and of the library OS.

use super::Violation;
use super::tree::{File, Tree};
use std::collections::BTreeMap;

/// Names that several public types have. The first lines are the same thing in several worlds, or one that
/// hides another; the last ones wait for a name of their own. None is to be added.
const SHARED: &[&str] = &[
    "Clock",
    "Device",
    "Dma",
    "Doorbell",
    "Entropy",
    "Idle",
    "NetDevice",
    "Network",
    "Opened",
    "PairSetup",
    "Pool",
    "Queue",
    "QueuePair",
    "Registers",
    "TcpListener",
    "TcpStream",
    "Threads",
    "UdpSocket",
    "Account",
    "BadSetting",
    "Client",
    "Due",
    "Error",
    "Event",
    "Held",
    "Latency",
    "News",
    "Options",
    "Path",
    "Ports",
    "Reply",
    "Settings",
    "State",
    "Table",
    "Usage",
];

/// No public type of `economy` or `libos` has the name of another, but for [`SHARED`].
pub fn types_have_names_of_their_own(tree: &Tree) -> Vec<Violation> {
    let mut known: BTreeMap<String, &File> = BTreeMap::new();
    let mut violations = Vec::new();
    let is_covered = |file: &&File| {
        ["economy/src/", "libos/"].iter().any(|root| file.path.starts_with(root))
            && file.path.contains("/src/")
    };
    for file in tree.rust().filter(is_covered) {
        let items = file.syntax.iter().flat_map(|syntax| &syntax.items);
        for name in items.filter_map(public_type).filter(|name| !SHARED.contains(&name.as_str())) {
            if let Some(other) = known.get(&name) {
                let message = format!("`{name}` is a type of {}, too: find another name", other.path);
                violations.push(Violation::new(&file.path, 1, "type-name", message));
            } else {
                known.insert(name, file);
            }
        }
    }
    violations
}

fn public_type(item: &syn::Item) -> Option<String> {
    let (visibility, name) = match item {
        syn::Item::Struct(item) => (&item.vis, &item.ident),
        syn::Item::Enum(item) => (&item.vis, &item.ident),
        syn::Item::Trait(item) => (&item.vis, &item.ident),
        syn::Item::Type(item) => (&item.vis, &item.ident),
        _ => return None,
    };
    matches!(visibility, syn::Visibility::Public(_)).then(|| name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_public_type_of_a_name_is_found() {
        let files = [
            ("economy/src/a.rs", "pub struct Thing; struct Hidden; pub struct State;"),
            ("libos/earn/src/b.rs", "pub enum Thing {} pub struct Hidden; pub struct State;"),
            ("host/cli/src/c.rs", "pub struct Thing;"),
        ];
        let tree = Tree::of(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())));
        let violations = types_have_names_of_their_own(&tree);
        assert_eq!(violations.len(), 1, "{violations:?}");
        assert!(violations[0].message.contains("`Thing` is a type of economy/src/a.rs"));
    }
}
