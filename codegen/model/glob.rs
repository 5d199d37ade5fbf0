//! Patterns that choose ops.

use crate::op::Op;
use crate::settings::nearest;

/// Whether `family/op` or `op` matches a pattern with `*` and `?`; several patterns are separated by commas, with blanks
/// around them if one likes.
#[must_use]
pub fn glob(patterns: &str, op: &Op) -> bool {
    parts(patterns).any(|part| hits(part, op))
}

/// A pattern that matches no op.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unmatched {
    /// The pattern, of those that were given.
    pub part: String,
    /// The op that it may mean.
    pub nearest: Option<String>,
    /// `family/op` of all that there are.
    pub known: Vec<String>,
}

/// The ops that match, in their order. Each of the patterns must match one: a name that is spelled wrong would else go
/// unnoticed behind one that is right.
///
/// # Errors
/// The first pattern that matches none.
pub fn choose<'a, T: Copy>(
    patterns: &str,
    ops: impl IntoIterator<Item = (T, &'a Op)>,
) -> Result<Vec<(T, &'a Op)>, Unmatched> {
    let all: Vec<(T, &Op)> = ops.into_iter().collect();
    if let Some(part) = parts(patterns).find(|part| !all.iter().any(|(_, op)| hits(part, op))) {
        let names = all.iter().map(|(_, op)| if part.contains('/') { op.path() } else { op.name.clone() });
        let names: Vec<String> = names.collect();
        return Err(Unmatched {
            part: part.to_owned(),
            nearest: nearest(part, names.iter().map(String::as_str)).map(str::to_owned),
            known: all.iter().map(|(_, op)| op.path()).collect(),
        });
    }
    Ok(all.into_iter().filter(|(_, op)| glob(patterns, op)).collect())
}

/// The patterns of a list.
pub fn parts(patterns: &str) -> impl Iterator<Item = &str> {
    patterns.split(',').map(str::trim)
}

fn hits(part: &str, op: &Op) -> bool {
    hits_either(part, &op.path(), &op.name)
}

/// Whether one pattern matches an op that is known by its `family/op`, or by its name alone.
#[must_use]
pub fn hits_path(part: &str, path: &str) -> bool {
    hits_either(part, path, path.rsplit('/').next().unwrap_or(path))
}

fn hits_either(part: &str, path: &str, name: &str) -> bool {
    matches(part.as_bytes(), path.as_bytes()) || matches(part.as_bytes(), name.as_bytes())
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
