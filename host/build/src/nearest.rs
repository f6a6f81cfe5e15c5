//! What somebody may have meant who misspelt a name.

/// Names that are at least so similar are offered (Jaro-Winkler; 1 is the same name).
const SIMILAR: f64 = 0.85;
/// Most names that are offered.
const OFFERED: usize = 3;

/// Says that there is no program `name` (`lead` is how the sentence begins), and which of those `known` are
/// nearest, or all if none is near.
pub fn unknown(lead: &str, name: &str, known: &[&str]) -> String {
    let mut near: Vec<(f64, &str)> = known
        .iter()
        .map(|known| (similarity(name, known), *known))
        .filter(|near| near.0 >= SIMILAR)
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    near.truncate(OFFERED);
    let quoted = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    match near.as_slice() {
        [] => format!("{lead} program `{name}`: expected one of {}", quoted(known)),
        near => {
            let near: Vec<&str> = near.iter().map(|near| near.1).collect();
            format!("{lead} program `{name}`: did you mean {}?", quoted(&near))
        }
    }
}

/// How similar two names are; the prefix that most packages share says nothing.
fn similarity(one: &str, other: &str) -> f64 {
    let plain = |name: &str| name.to_ascii_lowercase().replace('_', "-");
    let (one, other) = (plain(one), plain(other));
    let bare = |name: &str| name.strip_prefix("nom-").unwrap_or(name).to_owned();
    strsim::jaro_winkler(&bare(&one), &bare(&other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_names_are_offered_and_no_others() {
        let known = ["nom-echo", "nom-hello", "nom-memcached", "nom-netpipe", "nom-nhttpd"];
        for (name, expected) in [
            ("nom-memcachd", "there is no program `nom-memcachd`: did you mean `nom-memcached`?"),
            ("memcached", "there is no program `memcached`: did you mean `nom-memcached`?"),
            ("nom_helo", "there is no program `nom_helo`: did you mean `nom-hello`?"),
            (
                "xyz",
                "there is no program `xyz`: expected one of `nom-echo`, `nom-hello`, `nom-memcached`, \
                     `nom-netpipe`, `nom-nhttpd`",
            ),
        ] {
            assert_eq!(unknown("there is no", name, &known), expected);
        }
    }
}
