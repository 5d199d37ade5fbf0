#![no_main]
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

fuzz_target!(|data: &[u8]| parbake_fuzz::entries::bundle(data));

// A changed byte nearly always breaks a checksum; what lies behind the checksums is reached by a forger.
fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let change = |bytes: &mut Vec<u8>| {
        let len = bytes.len();
        let room = len + len / 4 + 8;
        bytes.resize(room, 0);
        let new = fuzzer_mutate(bytes, len, room);
        bytes.truncate(new);
    };
    let forged = parbake_fuzz::forge::forge(&data[..size], seed, change).filter(|forged| forged.len() <= max_size);
    match forged {
        Some(forged) => {
            data[..forged.len()].copy_from_slice(&forged);
            forged.len()
        }
        None => fuzzer_mutate(data, size, max_size),
    }
});
