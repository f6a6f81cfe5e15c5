//! What messages are called: the number of each request. Its answer has the next one.

macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $name:ident = $number:literal,)+) => {
        /// A request.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind { $($(#[doc = $doc])+ $name = $number,)+ }

        impl Kind {
            /// The request of a number, for servers.
            pub fn of(number: u8) -> Option<Kind> {
                match number { $($number => Some(Kind::$name),)+ _ => None }
            }
        }
    };
}

kinds! {
    /// What there is of room.
    StatFs = 8,
    /// Opens what a handle leads to.
    Open = 12,
    /// Makes a file and opens it.
    Create = 14,
    /// Makes a symbolic link.
    Symlink = 16,
    /// Makes a file, a pipe, a socket or a device.
    MakeNode = 18,
    /// Where a symbolic link leads.
    ReadLink = 22,
    /// What is known of a file.
    GetAttributes = 24,
    /// Changes that.
    SetAttributes = 26,
    /// Entries of a directory.
    ReadDirectory = 40,
    /// Has what was written be on the disk.
    Sync = 50,
    /// Makes another name of a file.
    Link = 70,
    /// Makes a directory.
    MakeDirectory = 72,
    /// Gives a file another name.
    RenameAt = 74,
    /// Takes a name away.
    UnlinkAt = 76,
    /// Agrees about the version and the size of messages.
    Version = 100,
    /// A handle of the root.
    Attach = 104,
    /// A handle of what a name leads to.
    Walk = 110,
    /// Reads.
    Read = 116,
    /// Writes.
    Write = 118,
    /// Gives a handle back.
    Clunk = 120,
}

/// The answer that says why not.
pub(crate) const ERROR: u8 = 7;
