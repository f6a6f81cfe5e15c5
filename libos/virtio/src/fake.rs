//! A device, as section 2 of the specification has it, over the same memory as the driver.
