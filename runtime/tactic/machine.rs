//! What a result of measuring is bound to: the device and the versions that it was seen with.

use crate::code::Place;
use crate::driver;
use crate::error::Error;
use crate::goal::Goal;
use once_cell::sync::Lazy;
use parbake_model::VERSION;
use parbake_model::tuned::Machine;

/// What runs at a place.
///
/// # Errors
/// If there is no such device.
pub(crate) fn machine(place: Place, goal: Goal) -> Result<Machine, Error> {
    let (device, driver) = match place {
        Place::Host => (processor(), None),
        Place::Cuda(ordinal) => (driver::device(ordinal)?.1.name.clone(), module().map(str::to_owned)),
    };
    Ok(Machine { device, target: goal.target(), driver, library: VERSION.to_owned() })
}

/// The version of the driver's kernel module; asked for once.
pub(crate) fn module() -> Option<&'static str> {
    static MODULE: Lazy<Option<String>> = Lazy::new(driver::kernel_module);
    MODULE.as_deref()
}

/// The processor's name, or its family where the system does not tell.
fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let named = text.lines().find_map(|line| line.strip_prefix("model name")?.trim_start().strip_prefix(':'));
    named.map_or(std::env::consts::ARCH, str::trim).to_owned()
}
