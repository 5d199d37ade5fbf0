//! Values that several settings have the form of.

/// Reads a boolean; the one parser for all settings.
#[must_use]
pub fn boolean(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "on" | "true" | "yes" => Some(true),
        "0" | "off" | "false" | "no" => Some(false),
        _ => None,
    }
}

/// Reads a number of bytes: `1500000`, `512M`, `8G`, also as `8GB` and `8GiB`.
#[must_use]
pub fn bytes(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_uppercase();
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let power = match unit.trim_start().strip_suffix("IB").unwrap_or(unit.trim_start().trim_end_matches('B')) {
        "" => 0,
        "K" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1024u64.pow(power)).filter(|bytes| *bytes > 0)
}
