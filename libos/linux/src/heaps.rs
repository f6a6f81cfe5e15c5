//! Virtual machines of Java give back what their heaps do not need, before memory ends.
//!
//! A heap that was full once stays as large as it was then: what lies free in it is nobody's, but only its
//! virtual machine knows where. OSv has an object of its own in the heap whose pages it takes, and decodes
//! what moves it (section 3.2 of its paper). Here the virtual machine is asked, by what its users ask it by:
//! HotSpot's attach mechanism, as `jcmd PROCESS GC.run` does. A file by its name and SIGQUIT have it listen
//! at a local socket; what it is told there has it collect the whole heap, which shrinks then, and give up
//! pages.

use crate::descriptors::places::{LocalKind, Place};
use crate::descriptors::ready::until_ready;
use crate::descriptors::{Local, Sender, Stream};
use crate::family::ProcessFamily;
use crate::process::Process;
use crate::signals::{IGNORE, Info, Signal};
use alloc::boxed::Box;
use alloc::format;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::Cell;
use linux_raw_sys::general::{O_CREAT, O_RDWR};
use nom_fs::{Errno, LastLink};
use nom_rt::WaitQueue;
use nom_sys::memory::obtainable;
use nom_sys::time::now_ns;

/// Memory is scarce if less than this part of it is left, and ample again with that one.
const SCARCE_PART: u64 = 8;
const AMPLE_PART: u64 = 4;
/// How long nobody is asked again, in nanoseconds.
const CALM_NS: u64 = 5_000_000_000;
/// How long a virtual machine may take to listen, and to collect once.
const PATIENCE_NS: u64 = 10_000_000_000;
/// How long it is given between two looks whether it listens.
const LOOK_NS: u64 = 10_000_000;
/// Collections for which it is asked: with `ShrinkHeapInSteps`, its default, a heap is as small as it can be
/// after the fourth.
const COLLECTIONS_MAX: u32 = 4;
/// The version of what is spoken, the command, and its three arguments, each with a zero.
const REQUEST: &[u8] = b"1\0jcmd\0GC.run\0\0\0";
/// The file that a virtual machine of Java has its handlers in.
const LIBRARY: &[u8] = b"/libjvm.so";

/// Who is asked for memory, and when next.
#[derive(Default)]
pub(crate) struct JavaHeaps {
    is_asking: Cell<bool>,
    calm_until_ns: Cell<u64>,
    answered: WaitQueue,
}

impl JavaHeaps {
    /// Whether some are asked at present, so that there may be memory soon.
    pub fn are_asked(&self) -> bool {
        self.is_asking.get()
    }

    /// Until nobody is asked any more.
    pub async fn answer(&self) {
        self.answered.until(|| (!self.is_asking.get()).then_some(())).await;
    }
}

impl ProcessFamily {
    /// Memory was taken: if it is scarce now, heaps are asked to shrink. This may be anywhere in a call.
    #[inline]
    pub(crate) fn watch_memory(self: &Rc<ProcessFamily>) {
        if obtainable() < self.memory_bytes / SCARCE_PART {
            self.ask_heaps();
        }
    }

    #[cold]
    fn ask_heaps(self: &Rc<ProcessFamily>) {
        let heaps = &self.heaps;
        if heaps.is_asking.get() || now_ns() < heaps.calm_until_ns.get() {
            return;
        }
        heaps.is_asking.set(true);
        let family = self.clone();
        self.handle.detach(Box::pin(async move {
            for process in family.processes() {
                if process.is_java() {
                    ask(&family, &process).await;
                }
            }
            family.heaps.calm_until_ns.set(now_ns() + CALM_NS);
            family.heaps.is_asking.set(false);
            family.heaps.answered.wake_all();
        }));
    }

    fn is_ample(&self) -> bool {
        obtainable() > self.memory_bytes / AMPLE_PART
    }
}

impl Process {
    /// Whether it is a virtual machine of Java that can be asked: its library handles SIGQUIT.
    pub(crate) fn is_java(&self) -> bool {
        let handler = self.actions.borrow().get(Signal::QUIT).handler;
        if handler <= IGNORE || self.ending.get().is_some() || !self.has_own_memory.get() {
            return false;
        }
        let Some(node) = self.memory().file_at(handler) else { return false };
        let vfs = self.family.vfs.borrow();
        vfs.path_of(vfs.root(), node).ends_with(LIBRARY)
    }
}

/// Has a virtual machine collect its heap until memory is ample, or it can do no more for that.
async fn ask(family: &Rc<ProcessFamily>, process: &Rc<Process>) {
    let memory = process.memory();
    let before = memory.bytes().1;
    memory.prefer();
    let collections = async {
        let place = listen(family, process).await?;
        for _ in 0..COLLECTIONS_MAX {
            let collected = family.handle.timeout(PATIENCE_NS, collect(family, &place));
            collected.await.map_err(|_| Errno::ETIMEDOUT)??;
            if family.is_ample() {
                break;
            }
        }
        Ok::<(), Errno>(())
    };
    let asked = collections.await;
    memory.prefer_no_more();
    let given = before.saturating_sub(memory.bytes().1);
    let id = process.id;
    match asked {
        Ok(()) => nom_app::println!("memory is scarce: process {id} (Java) gave {} KiB back", given >> 10),
        Err(errno) => nom_app::println!("memory is scarce: process {id} (Java) was asked for some: {errno}"),
    }
}

/// Where it listens; it is told to, unless it does.
async fn listen(family: &Rc<ProcessFamily>, process: &Rc<Process>) -> Result<Place, Errno> {
    let place = || {
        let path = format!("/tmp/.java_pid{}", process.id).into_bytes();
        let node = process
            .with_vfs(process.id, |vfs, caller| vfs.resolve(caller, caller.root, &path, LastLink::Follow));
        node.ok().map(Place::Node).filter(|place| family.sockets.has_listener(place))
    };
    if let Some(place) = place() {
        return Ok(place);
    }
    let sign = format!("/tmp/.attach_pid{}", process.id).into_bytes();
    process.with_vfs(process.id, |vfs, caller| {
        let node = vfs.open(caller, caller.root, &sign, O_CREAT | O_RDWR, 0o600)?;
        vfs.release(node);
        Ok::<(), Errno>(())
    })?;
    process.send(family, Info::sent(Signal::QUIT, 0, 0, 0));
    let end = now_ns() + PATIENCE_NS;
    let found = loop {
        match place() {
            Some(place) => break Ok(place),
            None if now_ns() > end || process.has_ended() => break Err(Errno::ETIMEDOUT),
            None => family.handle.sleep(LOOK_NS).await,
        }
    };
    // Nobody else looks for it; it was made above, so that it is gone at worst.
    let _ = process.with_vfs(process.id, |vfs, caller| vfs.unlink(caller, caller.root, &sign));
    found
}

/// Has it collect its whole heap once: it has done so when it has answered all.
async fn collect(family: &Rc<ProcessFamily>, place: &Place) -> Result<(), Errno> {
    let socket = Local::new(&family.sockets, LocalKind::Stream);
    // Root may ask everybody.
    socket.connect_to(place, &[], Sender::default())?;
    socket.write(REQUEST)?;
    let mut answer: Vec<u8> = alloc::vec![0; 512];
    while until_ready(|| socket.read(&mut answer), |waker| socket.wake(waker)).await? > 0 {}
    Ok(())
}
