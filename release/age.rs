//! Lengths of time as people type and read them: `12h`, `30d`.

use std::time::Duration;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Reads a whole number with a unit: `s`, `m`, `h`, `d` or `w`.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    let unit = text.chars().last()?;
    let seconds = match unit {
        's' => 1,
        'm' => MINUTE,
        'h' => HOUR,
        'd' => DAY,
        'w' => 7 * DAY,
        _ => return None,
    };
    let digits = &text[..text.len() - unit.len_utf8()];
    // `parse` would take a sign.
    let number = digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse::<u64>().ok()).flatten()?;
    number.checked_mul(seconds).map(Duration::from_secs)
}

/// The largest unit of which there are two: `90 s`, `3 h`, `12 d`.
pub(crate) fn words(age: Duration) -> String {
    let seconds = age.as_secs();
    let (size, unit) = match seconds {
        s if s >= 2 * DAY => (DAY, "d"),
        s if s >= 2 * HOUR => (HOUR, "h"),
        s if s >= 2 * MINUTE => (MINUTE, "min"),
        _ => (1, "s"),
    };
    format!("{} {unit}", seconds / size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_units() {
        for (text, seconds) in
            [("90s", 90), ("0s", 0), ("30m", 1800), ("12h", 43_200), ("30d", 2_592_000), ("2w", 1_209_600)]
        {
            assert_eq!(parse(text), Some(Duration::from_secs(seconds)), "{text}");
        }
        for text in
            ["", "d", "30", "-1d", "+1d", "1.5d", "1 d", "30D", "99999999999999999999d", "9999999999999999999w", "3µ"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
        let read = [0, 119, 120, 7199, 7200, 172_799, 172_800].map(|s| words(Duration::from_secs(s)));
        assert_eq!(read, ["0 s", "119 s", "2 min", "119 min", "2 h", "47 h", "2 d"]);
    }
}
