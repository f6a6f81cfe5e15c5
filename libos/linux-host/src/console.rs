//! Standard output: `print!` and `println!`.

use std::fmt;
use std::io::{Write, stdout};

/// Formats to standard output. A line appears when it is whole.
pub fn print(arguments: fmt::Arguments<'_>) {
    // There is nobody to tell that the console does not work.
    let _ = stdout().write_fmt(arguments);
}

/// Prints to the console.
#[macro_export]
macro_rules! print {
    ($($arguments:tt)*) => { $crate::console::print(::core::format_args!($($arguments)*)) };
}

/// Prints a line to the console.
#[macro_export]
macro_rules! println {
    () => { $crate::console::print(::core::format_args!("\n")) };
    ($($arguments:tt)*) => {
        $crate::console::print(::core::format_args!("{}\n", ::core::format_args!($($arguments)*)))
    };
}
