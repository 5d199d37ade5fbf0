//! Patterns that choose ops.

use crate::op::Op;

/// Whether `family/op` or `op` matches a pattern with `*` and `?`; several patterns are separated by commas.
#[must_use]
pub fn glob(patterns: &str, op: &Op) -> bool {
    patterns
        .split(',')
        .any(|p| matches(p.as_bytes(), op.path().as_bytes()) || matches(p.as_bytes(), op.name.as_bytes()))
}

/// `*` takes as little as it can, and more when what follows does not fit. Only the last one ever has to: so the time is
/// at most the product of both lengths, where trying every split would be exponential in the stars.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Behind the last star, and how far its share of the text reaches.
    let mut star = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                p += 1;
                star = Some((p, t));
            }
            Some(&c) if c == b'?' || c == text[t] => (p, t) = (p + 1, t + 1),
            _ => {
                let Some((behind, share)) = star else { return false };
                (p, t) = (behind, share + 1);
                star = Some((p, t));
            }
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_whole_names() {
        let hit = |p: &str, t: &str| matches(p.as_bytes(), t.as_bytes());
        assert!(hit("norm/*", "norm/rmsnorm") && hit("*rmsnorm", "norm/rmsnorm") && hit("rms?orm", "rmsnorm"));
        assert!(!hit("norm", "norm/rmsnorm") && !hit("rms", "rmsnorm") && !hit("", "a"));
        assert!(hit("", "") && hit("**", "") && hit("a*b*c", "abbc") && hit("*a*", "bab") && hit("*ab", "aab"));
        assert!(!hit("a*b*c", "abcb") && !hit("?", "") && !hit("*?", "") && !hit("ab*b", "ab"));
        // Twenty stars over a text that nearly fits: trying every split would not come to an end.
        assert!(!hit(&("a*".repeat(20) + "c"), &"a".repeat(2000)));
    }
}
