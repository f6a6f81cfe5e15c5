//! Passes the kernel's linker script on: this kernel is linked as the one that ships.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=../kernel.ld");
    let target = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if target == "none" {
        // A copy beside what is built: cargo remembers the path for whichever checkout builds there next.
        let out = std::env::var("OUT_DIR").expect("cargo sets it");
        let script = Path::new(&out).join("kernel.ld");
        std::fs::copy("../kernel.ld", &script).expect("the linker script is copied");
        println!("cargo::rustc-link-arg-bins=-T{}", script.display());
        println!("cargo::rustc-link-arg-bins=--no-pie");
        println!("cargo::rustc-link-arg-bins=--gc-sections");
        // Tells `host/image` where the image has addresses, which change when the loader moves it.
        println!("cargo::rustc-link-arg-bins=--emit-relocs");
    }
}
