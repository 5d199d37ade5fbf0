//! Whether GPUs are used for confidential computing, which NVIDIA's management library knows. Where it is not there, or is
//! too old to say, they are not.

use once_cell::sync::Lazy;
use parbake_model::settings::Confidential;
use std::ffi::{c_int, c_uint};

/// `nvmlConfComputeSystemState_t`.
#[repr(C)]
#[derive(Default)]
struct State {
    environment: c_uint,
    feature: c_uint,
    tools: c_uint,
}

/// Whether computing is confidential, by the setting or the machine.
#[must_use]
pub(crate) fn is(setting: Confidential) -> bool {
    static DETECTED: Lazy<bool> = Lazy::new(|| ask().is_some_and(|state| state.feature == 1));
    match setting {
        Confidential::On => true,
        Confidential::Off => false,
        Confidential::Auto => *DETECTED,
    }
}

fn ask() -> Option<State> {
    // SAFETY: the driver's own library, with the signatures that it documents; what is started is ended.
    unsafe {
        let library = libloading::Library::new("libnvidia-ml.so.1").ok()?;
        let mut state = State::default();
        let start = library.get::<unsafe extern "C" fn() -> c_int>(b"nvmlInit_v2\0").ok()?;
        let end = library.get::<unsafe extern "C" fn() -> c_int>(b"nvmlShutdown\0").ok()?;
        let state_of = b"nvmlSystemGetConfComputeState\0";
        let state_of = library.get::<unsafe extern "C" fn(*mut State) -> c_int>(state_of).ok()?;
        if start() != 0 {
            return None;
        }
        let asked = state_of(&raw mut state);
        end();
        (asked == 0).then_some(state)
    }
}
