//! Return addresses of the running computation, by frame pointers.

use core::arch::asm;

/// Most frames shown.
const DEPTH_MAX: usize = 32;

/// Calls `show` with each return address, innermost first. `stack` is the range in which frames lie.
#[cfg_attr(not(target_os = "none"), allow(dead_code, reason = "only a program on nom panics here"))]
pub(crate) fn walk(stack: [u64; 2], mut show: impl FnMut(u64)) {
    let mut frame: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rbp", out(reg) frame, options(nomem, nostack, preserves_flags)) };
    for _ in 0..DEPTH_MAX {
        if !plausible(frame, stack) {
            return;
        }
        // SAFETY: `plausible` keeps both words inside of the mapped stack.
        let [caller, address] = unsafe { *(frame as *const [u64; 2]) };
        if address == 0 {
            return;
        }
        show(address);
        if caller <= frame {
            return;
        }
        frame = caller;
    }
}

/// Whether a saved frame pointer and a return address can lie at `frame`.
fn plausible(frame: u64, [base, end]: [u64; 2]) -> bool {
    frame.is_multiple_of(8) && frame >= base && frame.checked_add(16).is_some_and(|after| after <= end)
}

#[cfg(test)]
mod tests {
    use super::plausible;

    #[test]
    fn a_frame_lies_wholly_on_the_stack() {
        let stack = [0x1000, 0x2000];
        assert!(plausible(0x1000, stack) && plausible(0x1ff0, stack));
        assert!(!plausible(0xff8, stack) && !plausible(0x1ff8, stack) && !plausible(0x1004, stack));
        assert!(!plausible(u64::MAX - 7, [0x1000, u64::MAX]));
    }
}
