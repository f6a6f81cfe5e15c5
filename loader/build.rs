//! Passes the loader's linker script on.

fn main() {
    println!("cargo::rerun-if-changed=loader.ld");
    let target = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if target == "none" {
        let directory = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
        println!("cargo::rustc-link-arg-bins=-T{directory}/loader.ld");
        println!("cargo::rustc-link-arg-bins=--gc-sections");
    }
}
