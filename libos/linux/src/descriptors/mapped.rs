//! Files that processes have mapped shared: who maps one finds the pages that others have, and who reads or
//! writes it otherwise finds what they have written there.

use super::node::OpenNode;
use crate::memory::{FrameKeeper, SharedPages};
use alloc::collections::BTreeMap;
use alloc::rc::{Rc, Weak};
use core::cell::RefCell;
use nom_fs::NodeId;

/// The pages of each file that somebody has mapped shared.
#[derive(Debug, Default)]
pub(crate) struct MappedFiles {
    files: RefCell<BTreeMap<NodeId, Weak<SharedPages>>>,
}

impl MappedFiles {
    /// Those of a file, which are made if nobody has any.
    pub fn pages(
        &self,
        file: &Rc<OpenNode>,
        keeper: impl FnOnce() -> Rc<dyn FrameKeeper>,
    ) -> Rc<SharedPages> {
        let mut files = self.files.borrow_mut();
        files.retain(|_, pages| pages.strong_count() > 0);
        if let Some(pages) = files.get(&file.node).and_then(Weak::upgrade) {
            return pages;
        }
        let pages = SharedPages::new(keeper(), Some(file.clone()));
        files.insert(file.node, Rc::downgrade(&pages));
        pages
    }

    /// Whether anybody may have it mapped.
    pub fn has(&self, file: NodeId) -> bool {
        self.files.borrow().get(&file).is_some_and(|pages| pages.strong_count() > 0)
    }

    /// Does something with a file's, if there are any.
    pub fn with(&self, file: NodeId, act: impl FnOnce(&SharedPages)) {
        let pages = self.files.borrow().get(&file).and_then(Weak::upgrade);
        if let Some(pages) = pages {
            act(&pages);
        }
    }
}
