//! Directories that processes are in.

use alloc::rc::Rc;
use core::cell::RefCell;
use core::fmt;
use nom_fs::{NodeId, Vfs};

struct Hold {
    vfs: Rc<RefCell<Vfs>>,
    node: NodeId,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.vfs.borrow_mut().release(self.node);
    }
}

/// A directory that is held as long as a process is in it, or as it is the root of one: a child, which begins
/// where its parent is, has a share. The last gives it back, which nobody may do while the tree is lent to
/// somebody.
#[derive(Clone)]
pub struct HeldDirectory(Rc<Hold>);

impl HeldDirectory {
    /// One that is held already: this gives the hold back.
    pub fn of(vfs: &Rc<RefCell<Vfs>>, node: NodeId) -> HeldDirectory {
        HeldDirectory(Rc::new(Hold { vfs: vfs.clone(), node }))
    }

    /// The root of the tree.
    pub fn root_of(vfs: &Rc<RefCell<Vfs>>) -> HeldDirectory {
        let root = vfs.borrow().root();
        vfs.borrow_mut().hold(root);
        HeldDirectory::of(vfs, root)
    }

    /// The root of the tree that it is in.
    #[must_use]
    pub fn top(&self) -> HeldDirectory {
        HeldDirectory::root_of(&self.0.vfs)
    }

    /// The directory.
    pub fn node(&self) -> NodeId {
        self.0.node
    }
}

impl fmt::Debug for HeldDirectory {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "HeldDirectory({:?})", self.0.node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::View;
    use nom_fs::{Caller, Credentials, FileTime, LastLink};

    #[test]
    fn a_directory_stays_until_the_last_process_has_left_it() {
        let vfs = Rc::new(RefCell::new(Vfs::new(FileTime::default(), 1 << 10)));
        let (credentials, root) = (Credentials::default(), HeldDirectory::root_of(&vfs));
        let caller = Caller::first(&credentials, root.node(), FileTime::default());
        let files = || vfs.borrow().space(root.node()).files;
        let before = files();
        let mut parent = View::first(root.clone());
        for _ in 0..3 {
            let mut tree = vfs.borrow_mut();
            tree.make_directory(&caller, root.node(), b"d", 0o755).expect("made");
            let node = tree.resolve(&caller, root.node(), b"d", LastLink::Follow).expect("it is there");
            tree.hold(node);
            drop(tree);
            parent.directory = HeldDirectory::of(&vfs, node);
            let mut child = parent.clone();
            vfs.borrow_mut().remove_directory(&caller, root.node(), b"d").expect("removed");
            parent.leave();
            assert_eq!((files(), child.directory.node()), (before + 1, node), "the child is there");
            child.leave();
            assert_eq!((files(), child.root.node()), (before, root.node()));
        }
    }
}
