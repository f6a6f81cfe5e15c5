//! The table of system calls.
//!
//! Number in `rax`, arguments in `rdi rsi rdx r10 r8 r9`, by the `syscall` instruction; results as
//! [`crate::error`] says; `rcx` and `r11` are lost. From this one table come the enum, the
//! [`arguments`] and the table of handlers of the kernel, the user stubs ([`for_each_syscall`]), and
//! `docs/abi.md`.

/// Calls `$callback!` once with the whole table, for crates that make something from every entry
/// (the user stubs in `nom-sys`, the handlers in the kernel).
#[macro_export]
macro_rules! for_each_syscall {
    ($callback:ident) => {
        $callback! {
            /// Ends the application with `status` (0 to 255, but for bit 8 higher bits are ignored); all it
            /// held is free again. With bit 8, the console shows first by which calls, named as far as the
            /// image has symbols, the application came here. Never returns.
            0 Exit exit(status)
            /// Writes the first 256 of `length` (at most 4096) bytes at `address` to the serial console, and
            /// returns their number. Who has said 256 KiB, and more than 64 KiB in each second since, is not
            /// heard: such bytes count as written, and the log tells how many they were. Errors:
            /// InvalidArgument, BadPointer.
            1 ConsoleWrite console_write(address, length)
            /// Grants `count` physically contiguous pages of `page_size` (0: 4 KiB, 1: 2 MiB, 2: 1 GiB) and
            /// returns their first frame number (physical address / 4096). `colour` restricts a single 4 KiB
            /// page to one cache colour (frame number modulo the board's `colours`); all ones is any. The
            /// memory is zeroed, piece by piece: others may have the core in between. At most 512 pages and
            /// 1 GiB a call. Errors: InvalidArgument, OutOfMemory, OverMemoryCap.
            2 MemoryGrant memory_grant(page_size, count, colour)
            /// Gives back `count` units of `page_size`, as granted, from `frame` on; at most 512 and 1 GiB a
            /// call. Errors: InvalidArgument, Misaligned, Overflow, NotGranted, StillMapped.
            3 MemoryRelease memory_release(frame, page_size, count)
            /// Maps `count` pages (at most 512 and 1 GiB) of `page_size` of granted memory, from `frame` on,
            /// at `address`. `protection`: bit 0 read, bit 1 write, bit 2 execute; the last only for an
            /// application whose manifest says `makes_code`. Errors: InvalidArgument, Misaligned, Overflow,
            /// OutsideUserSpace, NotGranted, AlreadyMapped, WriteExecute, NotPermitted, OutOfMemory,
            /// OverMemoryCap.
            4 MemoryMap memory_map(address, frame, page_size, count, protection)
            /// Changes the protection of every page in `[address, address + length)`, at most 512; all must
            /// be mapped and wholly inside. `protection` is as for `memory_map`. Errors: InvalidArgument,
            /// Misaligned, Overflow, OutsideUserSpace, NotMapped, WriteExecute, NotPermitted.
            5 MemoryProtect memory_protect(address, length, protection)
            /// Unmaps every page in `[address, address + length)`, at most 512; all must be mapped and wholly
            /// inside. The grants stay. Errors: InvalidArgument, Misaligned, Overflow, OutsideUserSpace,
            /// NotMapped.
            6 MemoryUnmap memory_unmap(address, length)
            /// Registers this core's upcall handler: entered at `entry` with `rdi` pointing to an
            /// `UpcallFrame` just below `stack_top`. `entry` 0 removes it. Registering ends the state in
            /// which a new core starts, where upcalls wait. Errors: OutsideUserSpace, Misaligned.
            7 UpcallRegister upcall_register(entry, stack_top)
            /// Ends an upcall: resumes the computation in the `UpcallFrame` at `frame`. Only from a handler.
            /// Errors: WrongContext, BadPointer, OutsideUserSpace.
            8 UpcallReturn upcall_return(frame)
            /// Acquires one more core, `hint` if the board shows it free, else the least loaded, and starts
            /// it at `entry` with `rsp` = `stack_top`, `rdi` = `argument`, `rsi` = the core's number, upcalls
            /// waiting. Returns the core's number. Errors: NoCore, OutsideUserSpace, OutOfMemory.
            9 CoreAcquire core_acquire(entry, stack_top, argument, hint)
            /// Gives this core up; never returns if it succeeds. Nothing of the core is kept. The MSI-X
            /// vectors bound to it are masked and no longer bound: their device keeps what it would signal
            /// until they are bound again, but what was on its way or not yet taken by `core_wait` is lost,
            /// so that whoever binds them looks at the device once. Events that concern no core in
            /// particular are told another core. Errors: LastCore.
            10 CoreRelease core_release()
            /// Sleeps until an event is pending on this core or the board's clock reaches `deadline_ns`
            /// (all ones: never), takes the pending events and writes them as `Events` at `events`. Returns
            /// the pending bits, 0 at the deadline. If `pending` of what is there is not 0 it returns 0 at
            /// once and takes and writes nothing: so an upcall handler that notes there what it is told ends
            /// a wait that is about to begin. Errors: BadPointer.
            11 CoreWait core_wait(deadline_ns, events)
            /// Lets the other applications that share this core go first.
            12 CoreYield core_yield()
            /// Acquires the device with this `index` on the board, reset if it was anybody's before. Errors:
            /// NoDevice, NotPermitted (also for one that cannot be reset, that shares an IOMMU group with
            /// another owner's, or for who had 64 DMA accesses blocked), OutOfMemory (the IOMMU's tables).
            13 DeviceAcquire device_acquire(device)
            /// Releases a device: interrupts off, registers unmapped, DMA off. Errors: NoDevice,
            /// NotPermitted; WrongState (a device without PCI that does not come out of its reset; its owner
            /// keeps it, and its memory beyond its end).
            14 DeviceRelease device_release(device)
            /// Maps `length` bytes from `offset` of base address register `bar` at `address`, uncached. Pages
            /// that hold the MSI-X table are refused. At most 8 ranges of a device are mapped at a time.
            /// Errors: NoDevice, NotPermitted, NoSuchRegion, InvalidArgument (more than 512 pages),
            /// Misaligned, Overflow, OutsideUserSpace, AlreadyMapped, OutOfMemory, OverMemoryCap, TableFull.
            15 DeviceMap device_map(device, bar, offset, address, length)
            /// Reads 4 bytes of the device's configuration space at `offset` (a multiple of 4, below 4096);
            /// all ones if it has none. Errors: NoDevice, NotPermitted, Misaligned, InvalidArgument.
            16 DeviceConfigRead device_config_read(device, offset)
            /// Binds MSI-X vector `vector` of an owned device to this core, as bit `bit` (0 to 63) of
            /// `Events::interrupts`, unmasked. A device without PCI has one, an edge, which is lost while it
            /// is masked. Errors: NoDevice, NotPermitted, NoSuchInterrupt, InvalidArgument.
            17 InterruptBind interrupt_bind(device, vector, bit)
            /// Masks (`masked` 1) or unmasks (0) a bound MSI-X vector; one that has interrupted others on its
            /// core is unmasked when its owner has its turn there. Errors: NoDevice, NotPermitted,
            /// NoSuchInterrupt, InvalidArgument.
            18 InterruptMask interrupt_mask(device, vector, masked)
            /// Notifies the application at the other end of a channel. While that computes, it is interrupted
            /// at most 20,000 times a second by one peer, whose call takes so long. Errors: NoChannel.
            19 ChannelNotify channel_notify(channel)
            /// Starts an application of the bundle that is not running. Only for an application whose
            /// manifest says `manages` it. Takes until all is free that the last one had which ended, and
            /// after 2,048 starts at once as long as 512 of them a second do. It is built in pieces: others
            /// may have the core in between, and if the caller ends before it runs, it is given up. Errors:
            /// NoApplication, NotPermitted, WrongState, OutOfMemory, OverMemoryCap.
            20 ApplicationStart application_start(application)
            /// Ends a running application as if it had faulted. Only for an application whose manifest says
            /// `manages` it. Errors: NoApplication, NotPermitted, WrongState.
            21 ApplicationKill application_kill(application)
            /// Sets where a segment of this core begins: `segment` 0 is FS, for thread-local storage, 1 is
            /// GS, for what the core's runtime has for itself. Where the processor has FSGSBASE, its
            /// instructions do the same. Errors: OutsideUserSpace, InvalidArgument.
            22 SegmentBase segment_base(segment, address)
            /// Ends the present or the next `core_wait` of the application's core number `core`, by
            /// `CoreNotified`. Errors: NoCore.
            23 CoreNotify core_notify(core)
            /// From now on the application ends by itself when the machine is to end (`Upcall::Shutdown`);
            /// one that has not made this call is ended by the kernel then, with status 143. Whoever makes
            /// it looks at the board's `shutdown_ns` afterwards: it may be late.
            24 ShutdownHandle shutdown_handle()
            /// `channel_notify` and `core_wait` in one: a peer that waits on this core runs at once, if it is
            /// its turn. Answers as `core_wait`. Errors: NoChannel, BadPointer.
            25 ChannelNotifyAndWait channel_notify_and_wait(channel, deadline_ns, events)
            /// From `deadline_ns` of the board's clock on (all ones: never), as soon as the application runs
            /// on this core, it is told `Timer` there, once. Replaces what it asked for before. A wait is not
            /// ended by it.
            26 CoreTimer core_timer(deadline_ns)
            /// From now on this core goes on at `entry` when code below the kernel-placed windows executes
            /// `syscall`: without the kernel, with every register as it was but RCX, and RCX's value, the
            /// address behind the `syscall`, in the word at `word`, which is in memory of this application's
            /// and is not given back meanwhile. Code elsewhere calls the kernel as ever. `entry` 0 ends it.
            /// Only for an application whose manifest says `makes_code`. Errors: NotPermitted,
            /// OutsideUserSpace, Misaligned, BadPointer, NotGranted, TableFull.
            27 SyscallReflect syscall_reflect(entry, word)
            /// Makes one more address space for this application, and returns its number. All is the same in
            /// it as in its others but for what each has for itself, where nothing is mapped: below 1 TiB,
            /// and the 16 TiB below the kernel-placed windows. Only for an application whose manifest says
            /// `makes_code`. Errors: NotPermitted, OutOfMemory, OverMemoryCap, TableFull (511 besides the
            /// first).
            28 SpaceCreate space_create()
            /// From now on this core is in the application's space `space`; 0 is that in which it began. What
            /// `memory_map`, `memory_protect` and `memory_unmap` do where each space has its own, they do in
            /// the one that this core is in, and addresses that calls are given are looked up there; but
            /// `device_map` and `syscall_reflect` mean the first. Another core that is acquired begins in the
            /// first. Errors: InvalidArgument (there is none).
            29 SpaceSwitch space_switch(space)
            /// Ends a space of the application in which no core is, and where nothing is mapped of its own.
            /// Errors: InvalidArgument (there is none, or it is the first), WrongState (a core is in it),
            /// StillMapped.
            30 SpaceEnd space_end(space)
        }
    };
}

macro_rules! define_syscalls {
    ($($(#[doc = $doc:literal])+ $number:literal $variant:ident $name:ident($($argument:ident),*))+) => {
        /// A system call's number.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u64)]
        pub enum Syscall { $($(#[doc = $doc])+ $variant = $number,)+ }

        impl Syscall {
            /// Every system call with its documentation, in order of its number.
            pub const ALL: &'static [Description] = &[$(Description {
                call: Syscall::$variant,
                name: stringify!($name),
                arguments: &[$(stringify!($argument)),*],
                text: concat!($($doc),+),
            },)+];

            /// The bit of every system call.
            pub const EVERY: u32 = 0 $(| 1 << $number)+;

            /// The bit that stands for it where calls are allowed.
            pub const fn bit(self) -> u32 { 1 << self as u64 }

            /// The system call with this number, if there is one.
            pub const fn from_number(number: u64) -> Option<Syscall> {
                match number { $($number => Some(Syscall::$variant),)+ _ => None }
            }
        }

        /// The arguments of each system call, by name: what the kernel's handlers take.
        pub mod arguments {
            $(
                #[doc = concat!("Arguments of `", stringify!($name), "`.")]
                #[derive(Clone, Copy, Debug, PartialEq, Eq)]
                #[allow(missing_docs, reason = "they are documented with their call")]
                pub struct $variant { $(pub $argument: u64),* }

                impl From<[u64; 6]> for $variant {
                    /// Takes the six argument registers in their order; those that the call has no use for
                    /// are ignored.
                    #[allow(unused_variables, unused_mut, reason = "calls without arguments")]
                    fn from(registers: [u64; 6]) -> $variant {
                        let mut next = registers.into_iter();
                        $(let $argument = next.next().unwrap_or(0);)*
                        $variant { $($argument),* }
                    }
                }
            )+
        }
    };
}
for_each_syscall!(define_syscalls);

/// A segment whose base an application chooses, by its number in [`Syscall::SegmentBase`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// FS: the running thread's.
    Thread = 0,
    /// GS: the core's.
    Core = 1,
}

impl Segment {
    /// The segment with this number, if there is one.
    pub const fn from_number(number: u64) -> Option<Segment> {
        match number {
            0 => Some(Segment::Thread),
            1 => Some(Segment::Core),
            _ => None,
        }
    }
}

/// Bit of the status of [`Syscall::Exit`]: how the application came there is shown.
pub const EXIT_BACKTRACE: u64 = 1 << 8;

/// Section of a program that has a byte for each system call that it contains: its number, or [`ANY_CALL`].
/// It is not loaded.
pub const CALLS_SECTION: &str = ".nom.calls";
/// In [`CALLS_SECTION`]: a place that can make any call.
pub const ANY_CALL: u8 = 0xff;

/// One row of the table, for documentation and tools.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// The call.
    pub call: Syscall,
    /// Name of its user stub.
    pub name: &'static str,
    /// Names of its arguments, in register order.
    pub arguments: &'static [&'static str],
    /// Its documentation.
    pub text: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_dense_and_decode_to_themselves() {
        for (number, row) in Syscall::ALL.iter().enumerate() {
            assert_eq!(row.call as usize, number);
            assert_eq!(Syscall::from_number(number as u64), Some(row.call));
            assert!(row.arguments.len() <= 6);
        }
        assert_eq!(Syscall::from_number(Syscall::ALL.len() as u64), None);
    }

    #[test]
    fn arguments_are_taken_in_register_order() {
        assert_eq!(
            arguments::MemoryMap::from([1, 2, 3, 4, 5, 6]),
            arguments::MemoryMap { address: 1, frame: 2, page_size: 3, count: 4, protection: 5 }
        );
        assert_eq!(arguments::CoreYield::from([1; 6]), arguments::CoreYield {});
    }
}
