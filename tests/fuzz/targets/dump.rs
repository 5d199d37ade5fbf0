#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| parbake_fuzz::entries::dump(data));
