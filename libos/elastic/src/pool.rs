//! The cores of a server as the world lends them: they can be given back and taken again while it runs.

/// Has more or fewer of a server's cores serve. Whose flows a core has is not its business: a core hands them
/// over before it leaves.
pub trait CorePool: Send + Sync {
    /// Asked on the first core: from now on the device spreads what it receives over the first `cores`, at
    /// least 1, and those of them that had left come back. Returns how many serve: fewer than asked for, if
    /// there are no more cores to be had or the device refuses.
    ///
    /// The cores beyond are still there; each [leaves](CorePool::leave) once it has nothing left to do.
    fn resize(&self, cores: usize) -> usize;

    /// Asked on core `index`, a further one: gives it back. Returns when it has been called back, maybe on
    /// another processor: everything of the core is as it was, but nobody has looked at its device meanwhile.
    /// It may have been called back since it made up its mind to leave: then it returns at once.
    fn leave(&self, index: usize);
}
