//! Who a process is: users and groups, real, effective and saved (credentials(7)).

use crate::call::Call;
use crate::process::View;
use crate::table::SystemCall;
use alloc::vec::Vec;
use linux_raw_sys::general as abi;
use nom_fs::Errno;

const OF_ALL: &str = "of all threads of the process at once";

/// These calls.
pub const ROWS: &[SystemCall] = &[
    SystemCall::complete(abi::__NR_getuid, "getuid", &[], |call| Ok(users(call).real.into())),
    SystemCall::complete(abi::__NR_geteuid, "geteuid", &[], |call| Ok(users(call).effective.into())),
    SystemCall::complete(abi::__NR_getgid, "getgid", &[], |call| Ok(groups(call).real.into())),
    SystemCall::complete(abi::__NR_getegid, "getegid", &[], |call| Ok(groups(call).effective.into())),
    SystemCall::partial(abi::__NR_setuid, "setuid", &["user"], |call| change(call, Whose::User, one), OF_ALL),
    SystemCall::partial(
        abi::__NR_setgid,
        "setgid",
        &["group"],
        |call| change(call, Whose::Group, one),
        OF_ALL,
    ),
    SystemCall::partial(
        abi::__NR_setreuid,
        "setreuid",
        &["real", "effective"],
        |call| change(call, Whose::User, two),
        OF_ALL,
    ),
    SystemCall::partial(
        abi::__NR_setregid,
        "setregid",
        &["real", "effective"],
        |call| change(call, Whose::Group, two),
        OF_ALL,
    ),
    SystemCall::partial(
        abi::__NR_setresuid,
        "setresuid",
        &["real", "effective", "saved"],
        |call| change(call, Whose::User, three),
        OF_ALL,
    ),
    SystemCall::partial(
        abi::__NR_setresgid,
        "setresgid",
        &["real", "effective", "saved"],
        |call| change(call, Whose::Group, three),
        OF_ALL,
    ),
    SystemCall::complete(abi::__NR_getresuid, "getresuid", &["real", "effective", "saved"], |call| {
        write(call, users(call))
    }),
    SystemCall::complete(abi::__NR_getresgid, "getresgid", &["real", "effective", "saved"], |call| {
        write(call, groups(call))
    }),
    SystemCall::complete(abi::__NR_getgroups, "getgroups", &["count", "groups"], get_groups),
    SystemCall::complete(abi::__NR_setgroups, "setgroups", &["count", "groups"], set_groups),
];

/// The three numbers that a process has of users, or of groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identities {
    /// Who began it.
    pub real: u32,
    /// Whose rights it has; for files, too, but for threads that say otherwise.
    pub effective: u32,
    /// Who it may be again.
    pub saved: u32,
}

impl Identities {
    /// One for all.
    pub fn all(number: u32) -> Identities {
        Identities { real: number, effective: number, saved: number }
    }

    /// Whether who has these may send a process that has those a signal: as root, or one of the same user
    /// (kill(2)).
    pub fn may_signal(self, to: Identities) -> bool {
        let is_same = |user: u32| user == to.real || user == to.saved;
        self.effective == 0 || is_same(self.effective) || is_same(self.real)
    }

    pub(super) fn has(self, number: u32) -> bool {
        [self.real, self.effective, self.saved].contains(&number)
    }
}

impl View {
    /// The users that it has.
    pub(crate) fn users(&self) -> Identities {
        let (real, saved) = self.other_users;
        Identities { real, effective: self.credentials.user, saved }
    }

    /// The groups that it has.
    pub(crate) fn groups(&self) -> Identities {
        let (real, saved) = self.other_groups;
        Identities { real, effective: self.credentials.group, saved }
    }

    /// Either.
    pub(super) fn identities(&self, whose: Whose) -> Identities {
        match whose {
            Whose::User => self.users(),
            Whose::Group => self.groups(),
        }
    }

    /// Has other users from now on.
    pub(crate) fn set_users(&mut self, users: Identities) {
        self.credentials.user = users.effective;
        self.other_users = (users.real, users.saved);
    }

    /// Has other groups from now on.
    pub(crate) fn set_groups(&mut self, groups: Identities) {
        self.credentials.group = groups.effective;
        self.other_groups = (groups.real, groups.saved);
    }
}

fn users(call: &Call<'_>) -> Identities {
    call.process().view.borrow().users()
}

fn groups(call: &Call<'_>) -> Identities {
    call.process().view.borrow().groups()
}

fn write(call: &Call<'_>, all: Identities) -> Result<u64, Errno> {
    let values = [all.real, all.effective, all.saved];
    call.arguments.iter().zip(values).try_for_each(|(at, value)| call.memory().write_value(*at, &value))?;
    Ok(0)
}

/// Which numbers change.
#[derive(Clone, Copy)]
pub(crate) enum Whose {
    /// Its users.
    User,
    /// Its groups.
    Group,
}

/// What becomes of `old` by these arguments, of which [`SAME`] changes nothing, for who may do everything or
/// not.
type Rule = fn(old: Identities, arguments: [u32; 3], is_root: bool) -> Result<Identities, Errno>;

/// The argument that leaves a number as it is.
pub(super) const SAME: u32 = u32::MAX;

fn change(call: &Call<'_>, whose: Whose, rule: Rule) -> Result<u64, Errno> {
    let arguments = [0, 1, 2].map(|index| call.arguments[index] as u32);
    let mut view = call.process().view.borrow_mut();
    let is_root = view.credentials.is_root();
    let changed = rule(view.identities(whose), arguments, is_root)?;
    match whose {
        Whose::User => view.set_users(changed),
        Whose::Group => view.set_groups(changed),
    }
    call.process().for_files.forget(whose);
    Ok(0)
}

/// setuid(2).
fn one(old: Identities, [number, ..]: [u32; 3], is_root: bool) -> Result<Identities, Errno> {
    match number {
        SAME => Err(Errno::EINVAL),
        number if is_root => Ok(Identities::all(number)),
        number if number == old.real || number == old.saved => Ok(Identities { effective: number, ..old }),
        _ => Err(Errno::EPERM),
    }
}

/// setreuid(2).
fn two(old: Identities, [real, effective, _]: [u32; 3], is_root: bool) -> Result<Identities, Errno> {
    let may_be_real = [old.real, old.effective, SAME].contains(&real);
    if !is_root && !(may_be_real && (effective == SAME || old.has(effective))) {
        return Err(Errno::EPERM);
    }
    let mut new = replaced(old, [real, effective, SAME]);
    if real != SAME || effective != SAME && effective != old.real {
        new.saved = new.effective;
    }
    Ok(new)
}

/// setresuid(2).
fn three(old: Identities, wanted: [u32; 3], is_root: bool) -> Result<Identities, Errno> {
    if !is_root && !wanted.iter().all(|number| *number == SAME || old.has(*number)) {
        return Err(Errno::EPERM);
    }
    Ok(replaced(old, wanted))
}

fn replaced(old: Identities, [real, effective, saved]: [u32; 3]) -> Identities {
    let or = |new: u32, old: u32| if new == SAME { old } else { new };
    Identities {
        real: or(real, old.real),
        effective: or(effective, old.effective),
        saved: or(saved, old.saved),
    }
}

/// Most groups that a process may be in, as on Linux.
const GROUPS_MAX: usize = 65_536;

fn get_groups(call: &Call<'_>) -> Result<u64, Errno> {
    let groups = call.process().view.borrow().credentials.groups.clone();
    let room = call.int(0);
    if room != 0 {
        if (room as usize) < groups.len() || room < 0 {
            return Err(Errno::EINVAL);
        }
        for (index, group) in groups.iter().enumerate() {
            call.memory().write_value(call.arguments[1] + 4 * index as u64, group)?;
        }
    }
    Ok(groups.len() as u64)
}

fn set_groups(call: &Call<'_>) -> Result<u64, Errno> {
    let count = call.arguments[0] as usize;
    if !call.process().view.borrow().credentials.is_root() {
        return Err(Errno::EPERM);
    }
    if count > GROUPS_MAX {
        return Err(Errno::EINVAL);
    }
    let group = |index: usize| call.memory().read_value::<u32>(call.arguments[1] + 4 * index as u64);
    let groups = (0..count).map(group).collect::<Result<Vec<_>, _>>()?;
    call.process().view.borrow_mut().credentials.groups = groups;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gave_up_rights_for_a_while_gets_them_back_and_who_gave_them_up_does_not() {
        let root = Identities::all(0);
        let for_a_while = three(root, [SAME, 5, SAME], true).expect("root may");
        assert_eq!((for_a_while.real, for_a_while.effective, for_a_while.saved), (0, 5, 0));
        assert_eq!(one(for_a_while, [0; 3], false), Ok(root));
        assert_eq!(two(for_a_while, [SAME, 0, SAME], false), Ok(root));
        assert_eq!(three(for_a_while, [7, SAME, SAME], false), Err(Errno::EPERM));
        let for_good = one(root, [5; 3], true).expect("root may");
        assert_eq!(for_good, Identities::all(5));
        assert_eq!(one(for_good, [0; 3], false), Err(Errno::EPERM));
        assert_eq!(two(for_good, [0, SAME, SAME], false), Err(Errno::EPERM));
        assert_eq!(one(for_good, [SAME; 3], false), Err(Errno::EINVAL));
        // A real user that changes takes the saved one along.
        assert_eq!(two(root, [5, 6, SAME], true), Ok(Identities { real: 5, effective: 6, saved: 6 }));
        assert_eq!(two(root, [SAME, 0, SAME], true), Ok(root));
    }
}
