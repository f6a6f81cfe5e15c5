//! Drivers for virtio devices.
#![cfg_attr(not(test), no_std)]
