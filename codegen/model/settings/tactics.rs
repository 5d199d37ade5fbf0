//! Tactics that calls are forced to take.

/// What it may be, in words.
pub(super) const EXPECTED: &str =
    "an op with tactics and their values, as in `rmsnorm:block=512,rows=1`; `;` before the next op";

/// Tactics that calls of an op are forced to take. Whether there are such an op and such values is for the library to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forced {
    /// `op` or `family/op`.
    pub op: String,
    /// Tactic → value; what is not named may be any.
    pub tactic: Vec<(String, u32)>,
}

pub(super) fn parse(text: &str) -> Option<Vec<Forced>> {
    let pair = |text: &str| {
        let (name, value) = text.split_once('=')?;
        let name = name.trim();
        (!name.is_empty()).then_some(())?;
        Some((name.to_owned(), value.trim().parse().ok()?))
    };
    let one = |text: &str| {
        let (op, tactic) = text.split_once(':')?;
        let op = op.trim();
        (!op.is_empty()).then_some(())?;
        Some(Forced { op: op.to_owned(), tactic: tactic.split(',').map(pair).collect::<Option<_>>()? })
    };
    text.split(';').map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ops_and_values_are_told_apart() {
        let forced = |op: &str, tactic: &[(&str, u32)]| Forced {
            op: op.to_owned(),
            tactic: tactic.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect(),
        };
        assert_eq!(
            parse("norm/rmsnorm:block=512, rows=1; softmax:block=128"),
            Some(vec![forced("norm/rmsnorm", &[("block", 512), ("rows", 1)]), forced("softmax", &[("block", 128)])])
        );
        for bad in
            ["rmsnorm", "rmsnorm:", ":block=1", "rmsnorm:block", "rmsnorm:block=x", "rmsnorm:=1", "a:b=1;", "a:b=-1"]
        {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
