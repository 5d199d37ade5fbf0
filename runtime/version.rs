//! Which versions of the library fit each other.

/// Whether two versions are in one caret range, in either direction. A pre-release fits itself only.
pub(crate) fn compatible(a: &str, b: &str) -> bool {
    if a == b {
        return true;
    }
    let range = |version: &str| {
        let parts: Option<Vec<u64>> = version.split('.').map(|p| p.parse().ok()).collect();
        // The first part that is not zero, and where it stands.
        parts.and_then(|p| p.iter().position(|n| *n != 0).map(|i| (i, p[i], p.len())))
    };
    range(a).is_some_and(|r| Some(r) == range(b))
}

#[cfg(test)]
mod tests {
    use super::compatible;

    #[test]
    fn versions_fit_within_a_caret_range() {
        assert!(compatible("0.1.0", "0.1.7") && compatible("1.2.3", "1.9.0") && compatible("0.0.3", "0.0.3"));
        assert!(compatible("0.2.0-rc.1", "0.2.0-rc.1") && !compatible("0.2.0-rc.1", "0.2.0"));
        assert!(!compatible("0.1.0", "0.2.0") && !compatible("1.0.0", "2.0.0") && !compatible("0.0.3", "0.0.4"));
        assert!(!compatible("0.1.0", "1.1.0") && !compatible("0.1.x", "0.1.y"));
    }
}
