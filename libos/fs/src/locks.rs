//! Advisory locks of files: records (fcntl(2), "Advisory record locking") and whole files (flock(2)).
//!
//! Nothing here waits: who cannot have a lock is told whose is in the way, and asks again when one was given
//! up. Both kinds do not see each other, as on Linux.

use crate::errno::Errno;
use crate::node::NodeId;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// Behind the last byte that a lock can be on: offsets are `off_t`, which has a sign.
pub const LOCK_END: u64 = 1 << 63;

/// Most locks that are held at a time: they are the library's memory, not the program's.
const LOCKS_MAX: usize = 1 << 16;

/// Whose a lock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockOwner {
    /// A process's (`F_SETLK`): given up when it closes any descriptor of the file.
    Process(u32),
    /// An open file description's (`F_OFD_SETLK`, `flock`): given up when the last descriptor of that is
    /// closed.
    Description(u64),
}

/// Whether others may have it, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Others may share it (`F_RDLCK`, `LOCK_SH`).
    Shared,
    /// Nobody else may have one (`F_WRLCK`, `LOCK_EX`).
    Exclusive,
}

/// A lock on some bytes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Whose it is.
    pub owner: LockOwner,
    /// Whether others may have it, too.
    pub kind: LockKind,
    /// The bytes, of which there need be none in the file; never empty, at most to [`LOCK_END`].
    pub range: Range<u64>,
}

impl Lock {
    fn conflicts(&self, other: &Lock) -> bool {
        let both_share = self.kind == LockKind::Shared && other.kind == LockKind::Shared;
        self.owner != other.owner && !both_share && overlap(&self.range, &other.range)
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// The locks on the records of a file. None of two owners' are in each other's way, and an owner's neither
/// overlap, nor touch if they are of one kind.
#[derive(Debug, Default)]
struct Records(Vec<Lock>);

impl Records {
    fn conflict(&self, wanted: &Lock) -> Option<&Lock> {
        self.0.iter().filter(|held| held.conflicts(wanted)).min_by_key(|held| held.range.start)
    }

    /// Takes an owner's locks off a range, and leaves what is beside it.
    fn release(&mut self, owner: LockOwner, range: &Range<u64>) {
        let mut rests = Vec::new();
        self.0.retain(|held| {
            if held.owner != owner || !overlap(&held.range, range) {
                return true;
            }
            for rest in [held.range.start..range.start, range.end..held.range.end] {
                if rest.start < rest.end {
                    rests.push(Lock { range: rest, ..held.clone() });
                }
            }
            false
        });
        self.0.append(&mut rests);
    }

    /// Puts a lock that nobody is in the way of in the place of what its owner had there.
    fn insert(&mut self, mut lock: Lock) {
        self.release(lock.owner, &lock.range);
        self.0.retain(|held| {
            let is_same = held.owner == lock.owner && held.kind == lock.kind;
            let touches = held.range.end == lock.range.start || lock.range.end == held.range.start;
            if is_same && touches {
                lock.range = held.range.start.min(lock.range.start)..held.range.end.max(lock.range.end);
            }
            !(is_same && touches)
        });
        self.0.push(lock);
    }
}

/// Which of a file's locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockTable {
    /// Those of fcntl(2).
    Records,
    /// Those of flock(2), each on all of the file.
    Whole,
}

/// The locks of all files.
#[derive(Debug, Default)]
pub struct Locks {
    files: BTreeMap<(NodeId, LockTable), Records>,
    /// How many there are in all files.
    held: usize,
    /// Processes that wait, and for whom.
    waits: BTreeMap<u32, LockOwner>,
}

impl Locks {
    /// All that are held, file by file.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, LockTable, &Lock)> {
        self.files
            .iter()
            .flat_map(|((node, table), records)| records.0.iter().map(|lock| (*node, *table, lock)))
    }

    /// The lock that is in the way of one, the first by where it begins.
    pub fn conflict(&self, node: NodeId, table: LockTable, wanted: &Lock) -> Option<&Lock> {
        self.files.get(&(node, table))?.conflict(wanted)
    }

    /// Takes a lock, in the place of what its owner had there.
    ///
    /// # Errors
    /// `EAGAIN` if another's is in the way, and nothing is changed; `ENOLCK` if there are too many.
    pub fn acquire(&mut self, node: NodeId, table: LockTable, lock: Lock) -> Result<(), Errno> {
        if self.conflict(node, table, &lock).is_some() {
            return Err(Errno::EAGAIN);
        }
        if self.held >= LOCKS_MAX {
            return Err(Errno::ENOLCK);
        }
        self.change((node, table), |records| records.insert(lock));
        Ok(())
    }

    fn change(&mut self, file: (NodeId, LockTable), act: impl FnOnce(&mut Records)) {
        let records = self.files.entry(file).or_default();
        let before = records.0.len();
        act(records);
        self.held = self.held + records.0.len() - before;
        if records.0.is_empty() {
            self.files.remove(&file);
        }
    }

    /// Gives up what an owner has of a range. Returns whether anything may be free now.
    pub fn release(&mut self, node: NodeId, table: LockTable, owner: LockOwner, range: &Range<u64>) -> bool {
        let Some(records) = self.files.get(&(node, table)) else { return false };
        let has_some = records.0.iter().any(|held| held.owner == owner && overlap(&held.range, range));
        if has_some {
            self.change((node, table), |records| records.release(owner, range));
        }
        has_some
    }

    /// Gives up all that an owner has of a file. Returns whether anything may be free now.
    pub fn release_all(&mut self, node: NodeId, owner: LockOwner) -> bool {
        let tables = [LockTable::Records, LockTable::Whole];
        tables.map(|table| self.release(node, table, owner, &(0..LOCK_END))).contains(&true)
    }

    /// Says that a process waits for a record.
    ///
    /// # Errors
    /// `EDEADLK` if the one whose lock is in the way waits, itself or by others, for this process, all of
    /// them for records of processes; then it does not wait.
    pub fn wait(&mut self, process: u32, node: NodeId, wanted: &Lock) -> Result<(), Errno> {
        let Some(first) = self.conflict(node, LockTable::Records, wanted).map(|held| held.owner) else {
            return Ok(());
        };
        let mut next = Some(first);
        for _ in 0..=self.waits.len() {
            match next {
                Some(LockOwner::Process(other)) if other == process => return Err(Errno::EDEADLK),
                Some(LockOwner::Process(other)) => next = self.waits.get(&other).copied(),
                _ => break,
            }
        }
        self.waits.insert(process, first);
        Ok(())
    }

    /// Says that a process waits no more.
    pub fn waits_no_more(&mut self, process: u32) {
        self.waits.remove(&process);
    }

    /// Whether none is held.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::InodeId;
    use proptest::prelude::*;

    /// Bytes that the model has.
    const BYTES: u64 = 12;

    fn file() -> NodeId {
        NodeId::Stored(InodeId::default())
    }

    fn lock(owner: u32, kind: LockKind, range: Range<u64>) -> Lock {
        Lock { owner: LockOwner::Process(owner), kind, range }
    }

    /// What each owner has of each byte: nothing cleverer can be right.
    type Model = BTreeMap<(u64, LockOwner), LockKind>;

    fn model_takes(model: &mut Model, wanted: &Lock) -> bool {
        let is_in_the_way = model.iter().any(|((byte, owner), kind)| {
            let shares = *kind == LockKind::Shared && wanted.kind == LockKind::Shared;
            wanted.range.contains(byte) && *owner != wanted.owner && !shares
        });
        if !is_in_the_way {
            model.extend(wanted.range.clone().map(|byte| ((byte, wanted.owner), wanted.kind)));
        }
        !is_in_the_way
    }

    fn operation() -> impl Strategy<Value = (u32, Option<LockKind>, Range<u64>)> {
        let kind = prop_oneof![Just(None), Just(Some(LockKind::Shared)), Just(Some(LockKind::Exclusive))];
        let range = (0..BYTES).prop_flat_map(|start| (Just(start), start + 1..=BYTES));
        (0_u32..3, kind, range).prop_map(|(owner, kind, (start, end))| (owner, kind, start..end))
    }

    proptest! {
        #[test]
        fn each_byte_is_held_by_whom_a_model_of_bytes_says(
            operations in proptest::collection::vec(operation(), 1..40)
        ) {
            let (mut locks, mut model) = (Locks::default(), Model::new());
            for (owner, kind, range) in operations {
                match kind {
                    Some(kind) => {
                        let wanted = lock(owner, kind, range);
                        let is_taken = locks.acquire(file(), LockTable::Records, wanted.clone()).is_ok();
                        prop_assert_eq!(is_taken, model_takes(&mut model, &wanted));
                    }
                    None => {
                        let owner = LockOwner::Process(owner);
                        locks.release(file(), LockTable::Records, owner, &range);
                        model.retain(|(byte, of), _| !(range.contains(byte) && *of == owner));
                    }
                }
                let held = locks.files.get(&(file(), LockTable::Records));
                let held: Vec<Lock> = held.map(|records| records.0.clone()).unwrap_or_default();
                prop_assert_eq!(locks.held, held.len());
                let bytes = held.iter().flat_map(|held| {
                    held.range.clone().map(|byte| ((byte, held.owner), held.kind))
                });
                prop_assert_eq!(bytes.clone().collect::<Model>(), model.clone());
                prop_assert_eq!(bytes.count(), model.len(), "none is held twice");
                let touch = |one: &Lock, other: &Lock| {
                    one.owner == other.owner && one.kind == other.kind && one.range.end == other.range.start
                };
                prop_assert!(!held.iter().any(|one| held.iter().any(|other| touch(one, other))));
            }
        }
    }

    #[test]
    fn who_would_wait_for_itself_by_others_is_told() {
        let mut locks = Locks::default();
        for owner in 0..3 {
            let own = u64::from(owner)..u64::from(owner) + 1;
            locks.acquire(file(), LockTable::Records, lock(owner, LockKind::Exclusive, own)).unwrap();
        }
        let wants = |owner, byte| lock(owner, LockKind::Shared, byte..byte + 1);
        assert_eq!(locks.wait(0, file(), &wants(0, 1)), Ok(()));
        assert_eq!(locks.wait(1, file(), &wants(1, 2)), Ok(()));
        assert_eq!(locks.wait(2, file(), &wants(2, 0)), Err(Errno::EDEADLK));
        locks.waits_no_more(1);
        assert_eq!(locks.wait(2, file(), &wants(2, 0)), Ok(()), "1 goes on and gives up what 0 waits for");
    }

    #[test]
    fn records_and_whole_files_do_not_see_each_other_and_files_neither() {
        let mut locks = Locks::default();
        let all = |owner| lock(owner, LockKind::Exclusive, 0..LOCK_END);
        assert_eq!(locks.acquire(file(), LockTable::Records, all(1)), Ok(()));
        assert_eq!(locks.acquire(file(), LockTable::Whole, all(2)), Ok(()));
        assert_eq!(locks.acquire(file(), LockTable::Whole, all(1)), Err(Errno::EAGAIN));
        assert!(locks.release_all(file(), LockOwner::Process(2)));
        assert!(!locks.release_all(file(), LockOwner::Process(2)));
        assert_eq!(locks.acquire(file(), LockTable::Whole, all(1)), Ok(()));
        assert!(locks.release_all(file(), LockOwner::Process(1)) && locks.is_empty());
    }
}
