//! What a main function may return.

use core::fmt::{self, Display};

/// What a main function may return.
pub trait Termination {
    /// The exit status (0 to 255) that it stands for. `print` is told what the user has to read.
    fn status(self, print: impl FnOnce(fmt::Arguments<'_>)) -> u8;
}

impl Termination for () {
    fn status(self, _: impl FnOnce(fmt::Arguments<'_>)) -> u8 {
        0
    }
}

impl Termination for u8 {
    fn status(self, _: impl FnOnce(fmt::Arguments<'_>)) -> u8 {
        self
    }
}

/// An error is printed as it displays itself, for it is a user who reads it, and is status 1.
impl<T: Termination, E: Display> Termination for Result<T, E> {
    fn status(self, print: impl FnOnce(fmt::Arguments<'_>)) -> u8 {
        match self {
            Ok(value) => value.status(print),
            Err(error) => {
                print(format_args!("error: {error}\n"));
                1
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(main: impl Termination) -> (u8, String) {
        let mut printed = String::new();
        let status = main.status(|text| printed = text.to_string());
        (status, printed)
    }

    #[test]
    fn a_result_is_a_status() {
        assert_eq!(outcome(()), (0, String::new()));
        assert_eq!(outcome(Ok::<u8, &str>(7)), (7, String::new()));
    }

    #[test]
    fn an_error_is_shown_to_a_user_and_not_to_a_programmer() {
        let error: Box<dyn core::error::Error> = "unknown option --bogus".into();
        assert_eq!(outcome(Err::<(), _>(error)), (1, "error: unknown option --bogus\n".to_owned()));
    }
}
