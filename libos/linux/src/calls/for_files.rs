//! Who threads are for files, where that is not who they are otherwise (setfsuid(2), setfsgid(2)): a server
//! of files has its threads be the users that ask.

use super::identities::{Identities, SAME, Whose};
use crate::call::Call;
use crate::table::SystemCall;
use alloc::vec::Vec;
use core::cell::RefCell;
use linux_raw_sys::general as abi;
use nom_fs::Credentials;

/// These calls.
pub const ROWS: &[SystemCall] = &[
    SystemCall::complete(abi::__NR_setfsuid, "setfsuid", &["user"], |call| Ok(change(call, Whose::User))),
    SystemCall::complete(abi::__NR_setfsgid, "setfsgid", &["group"], |call| Ok(change(call, Whose::Group))),
];

/// The user and the group that a thread has for files, if others than its process has: as [`Whose`] numbers
/// them.
type Others = [Option<u32>; 2];

/// What the threads of a process said of that; mostly none did.
#[derive(Debug, Default)]
pub(crate) struct ForFiles(RefCell<Vec<(u32, Others)>>);

impl ForFiles {
    fn of(&self, thread: u32) -> Option<Others> {
        self.0.borrow().iter().find(|(other, _)| *other == thread).map(|(_, others)| *others)
    }

    /// The rights of a thread for files, if it has others than its process, which has `own`.
    pub fn credentials(&self, thread: u32, own: &Credentials) -> Option<Credentials> {
        let [user, group] = self.of(thread)?;
        let mut credentials = own.clone();
        credentials.user = user.unwrap_or(own.user);
        credentials.group = group.unwrap_or(own.group);
        Some(credentials)
    }

    /// The user or the group of a thread, if it has another than its process.
    pub fn get(&self, thread: u32, whose: Whose) -> Option<u32> {
        self.of(thread)?[whose as usize]
    }

    fn set(&self, thread: u32, whose: Whose, number: Option<u32>) {
        let mut others = self.of(thread).unwrap_or_default();
        others[whose as usize] = number;
        self.end(thread);
        if others != Others::default() {
            self.0.borrow_mut().push((thread, others));
        }
    }

    /// All threads are for files who they are otherwise: that has just been said.
    pub fn forget(&self, whose: Whose) {
        let mut all = self.0.borrow_mut();
        all.iter_mut().for_each(|(_, others)| others[whose as usize] = None);
        all.retain(|(_, others)| *others != Others::default());
    }

    /// A thread has ended.
    pub fn end(&self, thread: u32) {
        self.0.borrow_mut().retain(|(other, _)| *other != thread);
    }

    /// A new thread is who began it, a thread of the process that has `from`.
    pub fn inherit(&self, thread: u32, from: &ForFiles, by: u32) {
        if let Some(others) = from.of(by) {
            self.0.borrow_mut().push((thread, others));
        }
    }
}

/// Tells who it was before, whether that is changed or not.
fn change(call: &Call<'_>, whose: Whose) -> u64 {
    let (wanted, thread, for_files) = (call.arguments[0] as u32, call.task().id, &call.process().for_files);
    let view = call.process().view.borrow();
    let own = view.identities(whose);
    let old = for_files.get(thread, whose).unwrap_or(own.effective);
    if may_be(own, old, wanted, view.credentials.is_root()) {
        for_files.set(thread, whose, Some(wanted).filter(|wanted| *wanted != own.effective));
    }
    old.into()
}

fn may_be(own: Identities, old: u32, wanted: u32, is_root: bool) -> bool {
    wanted != SAME && (is_root || own.has(wanted) || wanted == old)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_may_be_anybody_for_files_and_others_who_they_are_or_were() {
        let lesser = Identities { real: 1, effective: 2, saved: 3 };
        let may = [1, 2, 3, 4, 5, SAME].map(|wanted| may_be(lesser, 4, wanted, false));
        assert_eq!(may, [true, true, true, true, false, false]);
        assert_eq!([5, SAME].map(|wanted| may_be(lesser, 4, wanted, true)), [true, false]);
    }

    #[test]
    fn each_thread_has_its_own_and_a_new_one_its_makers() {
        let (threads, child) = (ForFiles::default(), ForFiles::default());
        let own = Credentials { user: 7, group: 8, ..Credentials::default() };
        threads.set(1, Whose::User, Some(5));
        threads.set(1, Whose::Group, Some(6));
        threads.inherit(2, &threads, 1);
        child.inherit(9, &threads, 1);
        let who = |of: &ForFiles, thread| of.credentials(thread, &own).map(|all| (all.user, all.group));
        assert_eq!([1, 2, 3].map(|thread| who(&threads, thread)), [Some((5, 6)), Some((5, 6)), None]);
        threads.forget(Whose::User);
        assert_eq!([1, 2].map(|thread| who(&threads, thread)), [Some((7, 6)); 2]);
        threads.end(1);
        threads.forget(Whose::Group);
        assert_eq!([1, 2].map(|thread| who(&threads, thread)), [None; 2]);
        assert_eq!(who(&child, 9), Some((5, 6)));
    }
}
