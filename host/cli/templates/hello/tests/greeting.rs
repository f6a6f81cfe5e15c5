//! What the library does.

use application_name::greeting;

#[test]
fn a_greeting_has_a_name() {
    assert_eq!(greeting("you"), "Hello, you!");
}
