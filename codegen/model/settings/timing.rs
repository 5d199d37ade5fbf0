//! What tactics are measured with.

/// Whether GPUs are used for confidential computing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confidential {
    /// The driver is asked.
    Auto,
    /// They are, whatever the driver says.
    On,
    /// They are not, whatever the driver says.
    Off,
}

impl Confidential {
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            "auto" => Some(Self::Auto),
            "on" => Some(Self::On),
            "off" => Some(Self::Off),
            _ => None,
        }
    }
}

/// The timer that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TuneTimer {
    /// Events, or the device's clock where computing is confidential.
    Auto,
    /// Events of the driver.
    Events,
    /// The device's own clock.
    GlobalTimer,
}

impl TuneTimer {
    /// Reads the word of the setting.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "auto" => Some(Self::Auto),
            "events" => Some(Self::Events),
            "globaltimer" => Some(Self::GlobalTimer),
            _ => None,
        }
    }
}
