//! From the machines that are wanted and those that there are to what is to be done.

/// A machine of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its name in the file.
    pub member: String,
    /// A digest of all that it is made from.
    pub digest: String,
}

/// A machine that an earlier `nom up` of the file started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Present {
    /// Its name in the file as it was then.
    pub member: String,
    /// A digest of all that it was made from.
    pub digest: String,
    /// Whether it runs.
    pub running: bool,
}

/// What is done with a machine, by its name in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is not in the file any more, or not as it was: it ends, and is forgotten.
    Remove(String),
    /// It runs as it should.
    Keep(String),
    /// It has ended, and is started once more.
    Start(String),
    /// It is made.
    Make(String),
}

/// The steps from what is `present` to what is `wanted`, both in the order in which they are to be started.
/// What goes goes first, in the opposite order, since others may need its ports.
pub fn plan(wanted: &[Wanted], present: &[Present]) -> Vec<Step> {
    let stays =
        |one: &Present| wanted.iter().any(|other| other.member == one.member && other.digest == one.digest);
    let go = present.iter().rev().filter(|one| !stays(one)).map(|one| Step::Remove(one.member.clone()));
    let come = wanted.iter().map(|machine| {
        let member = machine.member.clone();
        match present.iter().find(|one| one.member == member && stays(one)) {
            Some(Present { running: true, .. }) => Step::Keep(member),
            Some(Present { running: false, .. }) => Step::Start(member),
            None => Step::Make(member),
        }
    });
    go.chain(come).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(names: &[(&str, &str)]) -> Vec<Wanted> {
        names
            .iter()
            .map(|(name, digest)| Wanted { member: (*name).into(), digest: (*digest).into() })
            .collect()
    }

    fn present(names: &[(&str, &str, bool)]) -> Vec<Present> {
        let one = |(name, digest, running): &(&str, &str, bool)| Present {
            member: (*name).into(),
            digest: (*digest).into(),
            running: *running,
        };
        names.iter().map(one).collect()
    }

    #[test]
    fn only_what_changed_is_changed() {
        use Step::{Keep, Make, Remove, Start};
        let file = wanted(&[("db", "1"), ("web", "2")]);
        assert_eq!(plan(&file, &[]), [Make("db".into()), Make("web".into())]);
        let both = present(&[("db", "1", true), ("web", "2", true)]);
        assert_eq!(plan(&file, &both), [Keep("db".into()), Keep("web".into())]);
        let changed = present(&[("old", "0", false), ("db", "1", false), ("web", "1", true)]);
        assert_eq!(
            plan(&file, &changed),
            [Remove("web".into()), Remove("old".into()), Start("db".into()), Make("web".into())]
        );
        // A call that was interrupted between two machines.
        assert_eq!(plan(&file, &present(&[("db", "1", true)])), [Keep("db".into()), Make("web".into())]);
    }
}
