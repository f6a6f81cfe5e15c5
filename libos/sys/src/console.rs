//! The serial console: `print!` and `println!`.

use core::fmt::{self, Write};

/// Most bytes that one system call writes.
const CALL_BYTES: usize = 4096;
/// Bytes collected before they are written, so that an ordinary line is one system call and stays whole
/// when several applications print.
const BUFFER_BYTES: usize = 256;

/// Writes bytes to the console.
pub fn write(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let length = bytes.len().min(CALL_BYTES);
        // SAFETY: the call only reads the slice.
        let written = unsafe { crate::raw::console_write(bytes.as_ptr() as u64, length as u64) };
        match written {
            Ok(count @ 1..) => bytes = &bytes[length.min(count as usize)..],
            // There is nobody to tell that the console does not work.
            _ => return,
        }
    }
}

/// Formats to the console.
pub fn print(arguments: fmt::Arguments<'_>) {
    let mut buffer = Buffer { bytes: [0; BUFFER_BYTES], used: 0 };
    // Only a `Display` that fails on its own account fails here, and what it wrote so far is printed.
    let _ = buffer.write_fmt(arguments);
    buffer.flush();
}

struct Buffer {
    bytes: [u8; BUFFER_BYTES],
    used: usize,
}

impl Buffer {
    fn flush(&mut self) {
        write(&self.bytes[..self.used]);
        self.used = 0;
    }
}

impl Write for Buffer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.used + text.len() > BUFFER_BYTES {
            self.flush();
        }
        match self.bytes.get_mut(self.used..self.used + text.len()) {
            Some(room) => {
                room.copy_from_slice(text.as_bytes());
                self.used += text.len();
            }
            None => write(text.as_bytes()),
        }
        Ok(())
    }
}

/// Prints to the console.
#[macro_export]
macro_rules! print {
    ($($arguments:tt)*) => { $crate::console::print(::core::format_args!($($arguments)*)) };
}

/// Prints a line to the console.
#[macro_export]
macro_rules! println {
    () => { $crate::console::write(b"\n") };
    ($($arguments:tt)*) => {
        $crate::console::print(::core::format_args!("{}\n", ::core::format_args!($($arguments)*)))
    };
}
