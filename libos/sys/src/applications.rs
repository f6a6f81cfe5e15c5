//! The other applications of the machine, for one that manages them.

use crate::raw;
use core::sync::atomic::Ordering::Relaxed;
use nom_abi::board::{Application, ApplicationState, Usage, usage_address};
use nom_abi::error::{Error, Result};
use nom_abi::start::Start;

/// The board's entry of the application with this index.
pub fn entry(application: usize) -> &'static Application {
    &crate::start::board().applications[application]
}

/// What the application with this index uses; zeros unless it is this one, or managed by it, or this one's
/// manifest says `monitors`, or if there is none.
pub fn usage(application: usize) -> &'static Usage {
    static NOBODYS: Usage = Usage::none();
    if application >= nom_abi::layout::APPLICATIONS_MAX || entry(application).name_bytes()[0] == 0 {
        return &NOBODYS;
    }
    // SAFETY: those of the bundle have a name.
    unsafe { page(crate::start::info(), application) }
}

/// What this application uses.
#[inline]
pub fn own() -> &'static Usage {
    own_of(crate::start::info())
}

/// The same, for who has the start page already.
#[inline]
pub(crate) fn own_of(info: &Start) -> &'static Usage {
    // SAFETY: whoever runs is in the bundle.
    unsafe { page(info, info.application as usize) }
}

/// # Safety
/// It is an application of the bundle.
#[inline]
unsafe fn page(info: &Start, application: usize) -> &'static Usage {
    let address = usage_address(info.board, application);
    // SAFETY: the kernel maps such a page for each application of the bundle, for good.
    unsafe { &*(address as *const Usage) }
}

/// Index of the application with this name.
///
/// # Errors
/// NoApplication if there is none.
pub fn find(name: &str) -> Result<usize> {
    let named = |application: &Application| {
        let bytes = application.name_bytes();
        bytes.split(|byte| *byte == 0).next() == Some(name.as_bytes())
    };
    crate::start::board().applications.iter().position(named).ok_or(Error::NoApplication)
}

/// Cores that anybody holds, and frames of memory that anybody does, the kernel included.
pub fn held_by_all() -> (u32, u64) {
    let board = crate::start::board();
    let cores = board.cores.iter().filter(|core| core.holders.load(Relaxed) != 0).count();
    let machine = &board.machine;
    let frames = machine.frames_total.load(Relaxed).saturating_sub(machine.frames_free.load(Relaxed));
    (cores as u32, frames)
}

/// Whether it runs, as the board shows.
pub fn is_running(application: usize) -> bool {
    entry(application).state.load(Relaxed) == ApplicationState::Running as u32
}

/// Starts it.
///
/// # Errors
/// NoApplication, NotPermitted, WrongState, OutOfMemory.
pub fn start(application: usize) -> Result<()> {
    // SAFETY: another application has its own memory.
    unsafe { raw::application_start(application as u64) }?;
    Ok(())
}

/// Ends it as if it had faulted.
///
/// # Errors
/// NoApplication, NotPermitted, WrongState.
pub fn kill(application: usize) -> Result<()> {
    // SAFETY: as in `start`.
    unsafe { raw::application_kill(application as u64) }?;
    Ok(())
}
