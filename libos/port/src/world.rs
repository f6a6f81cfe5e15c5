//! Time, sleep and chance.

/// A clock that never goes back.
pub trait Clock {
    /// Nanoseconds since a start that the world chose.
    fn now_ns(&self) -> u64;
}

/// What ended a sleep; more than one thing may have, and nothing at all at the deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wakeup {
    /// Interrupts that came, as the bits that they were bound to.
    pub interrupts: u64,
    /// Whether another core, a peer application or the kernel has something to say.
    pub messages: bool,
}

/// The way in which a core does nothing.
pub trait Idle {
    /// Sleeps until something happens or the clock reaches `deadline_ns`; `None` is never. What happened
    /// since the last sleep ends it at once.
    fn sleep(&mut self, deadline_ns: Option<u64>) -> Wakeup;
}

/// Another core's doorbell.
pub trait Doorbell: Send + Sync {
    /// Ends the present or the next sleep of `core`.
    fn ring(&self, core: usize);
}

/// Bytes behind GS at which a virtual machine's program finds what names the core that runs: a number that no
/// other has at that time, and 0 while what runs may be interrupted for others of the core. Whoever finds the
/// same number as before is on the same core, and nobody of the core comes in between.
pub const HERE_OFFSET: usize = 8;

/// A way to interrupt what a core computes, so that others have it in between.
pub trait Preemption {
    /// Runs `compute`. In between any two of its instructions, on its stack, `interrupted` runs: whenever
    /// the world has something to say to this core, or the alarm's time has come, but not while it has a
    /// lock or is being interrupted already. `compute` is `Send`, so that whatever others change meanwhile
    /// is nothing of its own, as if they were another core.
    fn preemptible(&self, compute: &mut (dyn FnMut() + Send), interrupted: &dyn Fn());

    /// Runs a section of such a computation in which nothing interrupts it.
    fn undisturbed(&self, section: &mut dyn FnMut());

    /// When to interrupt even if nothing happens; never without a deadline. It is over once its time has
    /// come, whether there was a computation to interrupt or not.
    fn set_alarm(&self, deadline_ns: Option<u64>);
}

/// A way to survive a panic of what runs on a stack of its own.
pub trait Containment {
    /// Runs `work`. If it panics, `escape` runs on top of its stack once the reason was told: it leaves that
    /// stack for good, on which nothing goes on any more, or returns, and the program ends. The program
    /// ends, too, if the panic came while the core had a lock or was changing the heap, and, with a reason,
    /// if `work` does not come back for too long: it is not left in the middle of a step.
    fn contained(&self, work: &mut dyn FnMut(), escape: &dyn Fn());
}

/// A source of bytes that nobody can foretell, or, in a simulation, only who knows the seed.
pub trait Entropy {
    /// Fills `bytes`.
    fn fill(&mut self, bytes: &mut [u8]);
}
