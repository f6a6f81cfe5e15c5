//! Stacks for threads of the runtime.

pub use corosensei::stack::DefaultStack as ThreadStack;
