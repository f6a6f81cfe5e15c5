#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nom_fuzz_targets::run("ring", data));
