//! `nom-port`'s world in a Linux process: the crate may be unsafe, for the ioctls of network
//! devices, the memory that an XDP socket shares with the kernel, and the symbol `main`.
//!
//! With it an application is an ordinary program: [`port`] is its clock, its sleep and its source of chance,
//! [`tap`] and [`xdp`] its network interface, [`start`] its arguments, environment and way to end.
//! Applications use `nom-app`, which hands this on under the names that it has in a virtual machine, too.
//!
//! The safety argument is in `docs/safety/libos-linux-host.md`.

pub mod console;
pub mod cores;
mod interface;
pub mod nic;
pub mod pool;
pub mod port;
pub mod shutdown;
pub mod stack;
pub mod start;
pub mod sync;
pub mod tap;
pub mod time;
pub mod xdp;

/// Ends the program with `status` (0 to 255).
pub fn exit(status: u8) -> ! {
    std::process::exit(status.into())
}

/// Names a function as the program's main function: `nom_app::main!(main);`
///
/// The function takes nothing and returns anything that is a [`start::Termination`].
#[macro_export]
macro_rules! main {
    ($main:path) => {
        // The C library's start code calls it: so a program needs no `main` of Rust's kind, as on nom.
        #[unsafe(export_name = "main")]
        extern "C" fn nom_main() -> i32 {
            $crate::start::run($main)
        }
    };
}
