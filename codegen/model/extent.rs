//! Extents of tensors: expressions over the op's shape symbols.
//!
//! ```text
//! extent = term { "+" term }
//! term   = factor { ("*" | "/") factor }        a / b is rounded up
//! factor = number | symbol | "pad(" extent "," number ")" | "(" extent ")"
//! ```
//! `pad(rows,128)` is the next multiple of 128. A symbol is bound by a dimension that says it alone, times a number, or
//! plus a number; what says more is compared.

use std::fmt;

/// An expression.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Extent {
    /// A number.
    Number(i64),
    /// A shape symbol.
    Symbol(String),
    /// A sum.
    Add(Box<Extent>, Box<Extent>),
    /// A product.
    Multiply(Box<Extent>, Box<Extent>),
    /// A quotient, rounded up.
    Divide(Box<Extent>, Box<Extent>),
    /// The next multiple of a number.
    Pad(Box<Extent>, i64),
}

impl Extent {
    /// Reads an expression.
    ///
    /// # Errors
    /// What is wrong with it, for a person.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut reader = Reader { text, rest: text };
        let extent = reader.sum()?;
        if reader.rest.trim().is_empty() { Ok(extent) } else { Err(reader.unexpected()) }
    }

    /// Its value, with the symbols' values; nothing if a symbol has none, or if it exceeds 63 bits.
    pub fn value(&self, of: &mut dyn FnMut(&str) -> Option<i64>) -> Option<i64> {
        let up = |a: i64, b: i64| if b > 0 { a.checked_add(b - 1).map(|n| n.div_euclid(b)) } else { None };
        Some(match self {
            Self::Number(n) => *n,
            Self::Symbol(name) => of(name)?,
            Self::Add(a, b) => a.value(of)?.checked_add(b.value(of)?)?,
            Self::Multiply(a, b) => a.value(of)?.checked_mul(b.value(of)?)?,
            Self::Divide(a, b) => up(a.value(of)?, b.value(of)?)?,
            Self::Pad(a, n) => up(a.value(of)?, *n)?.checked_mul(*n)?,
        })
    }

    /// The symbol that a dimension of this extent binds: it is `factor * symbol + rest`.
    #[must_use]
    pub fn binds(&self) -> Option<Binding<'_>> {
        match self {
            Self::Symbol(symbol) => Some(Binding { symbol, factor: 1, rest: 0 }),
            Self::Add(a, b) => match (a.binds(), &**b, b.binds(), &**a) {
                (Some(found), Self::Number(n), ..) | (_, _, Some(found), Self::Number(n)) => {
                    Some(Binding { rest: found.rest.checked_add(*n)?, ..found })
                }
                _ => None,
            },
            Self::Multiply(a, b) => match (a.binds(), &**b, b.binds(), &**a) {
                (Some(found), Self::Number(n), ..) | (_, _, Some(found), Self::Number(n)) if *n > 0 => {
                    let (factor, rest) = (found.factor.checked_mul(*n)?, found.rest.checked_mul(*n)?);
                    Some(Binding { factor, rest, ..found })
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// The symbols that it speaks of, in their order.
    #[must_use]
    pub fn symbols(&self) -> Vec<&str> {
        match self {
            Self::Number(_) => Vec::new(),
            Self::Symbol(name) => vec![name],
            Self::Add(a, b) | Self::Multiply(a, b) | Self::Divide(a, b) => {
                let mut all = a.symbols();
                all.extend(b.symbols());
                all
            }
            Self::Pad(a, _) => a.symbols(),
        }
    }

    /// Whether it is no more than a symbol.
    #[must_use]
    pub fn symbol(&self) -> Option<&str> {
        if let Self::Symbol(name) = self { Some(name) } else { None }
    }
}

/// What a dimension says of a symbol: its extent is `factor * symbol + rest`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Binding<'a> {
    /// The symbol.
    pub symbol: &'a str,
    /// At least 1.
    pub factor: i64,
    /// Added.
    pub rest: i64,
}

impl Binding<'_> {
    /// The symbol's value, if that extent is one of the expression.
    #[must_use]
    pub fn solve(&self, extent: i64) -> Option<i64> {
        let scaled = extent.checked_sub(self.rest)?;
        (scaled % self.factor == 0).then(|| scaled / self.factor)
    }
}

/// As it is written, with brackets only where they are needed.
impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let factor = |e: &Self, right: bool| match e {
            Self::Add(..) => format!("({e})"),
            Self::Multiply(..) | Self::Divide(..) if right => format!("({e})"),
            _ => e.to_string(),
        };
        match self {
            Self::Number(n) => n.fmt(f),
            Self::Symbol(name) => f.write_str(name),
            Self::Add(a, b) => write!(f, "{a}+{b}"),
            Self::Multiply(a, b) => write!(f, "{}*{}", factor(a, false), factor(b, true)),
            Self::Divide(a, b) => write!(f, "{}/{}", factor(a, false), factor(b, true)),
            Self::Pad(a, n) => write!(f, "pad({a},{n})"),
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    rest: &'a str,
}

impl Reader<'_> {
    fn unexpected(&self) -> String {
        let rest = self.rest.trim();
        let what = if rest.is_empty() { "the end".to_owned() } else { format!("`{rest}`") };
        format!("`{}` is no extent: {what} is not expected", self.text)
    }
    fn takes(&mut self, word: &str) -> bool {
        let rest = self.rest.trim_start().strip_prefix(word);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }
    fn needs(&mut self, word: &str) -> Result<(), String> {
        if self.takes(word) { Ok(()) } else { Err(self.unexpected()) }
    }
    fn sum(&mut self) -> Result<Extent, String> {
        let mut left = self.product()?;
        while self.takes("+") {
            left = Extent::Add(left.into(), self.product()?.into());
        }
        Ok(left)
    }
    fn product(&mut self) -> Result<Extent, String> {
        let mut left = self.factor()?;
        loop {
            if self.takes("*") {
                left = Extent::Multiply(left.into(), self.factor()?.into());
            } else if self.takes("/") {
                left = Extent::Divide(left.into(), self.factor()?.into());
            } else {
                return Ok(left);
            }
        }
    }
    fn factor(&mut self) -> Result<Extent, String> {
        if self.takes("(") {
            let inner = self.sum()?;
            self.needs(")")?;
            return Ok(inner);
        }
        let rest = self.rest.trim_start();
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        if word.is_empty() {
            return Err(self.unexpected());
        }
        if word == "pad" && after.starts_with('(') {
            self.rest = &after[1..];
            let inner = self.sum()?;
            self.needs(",")?;
            let number = self.factor()?;
            self.needs(")")?;
            return match number {
                Extent::Number(n) if n > 0 => Ok(Extent::Pad(inner.into(), n)),
                _ => Err(format!("`{}` is no extent: `pad` takes a number above 0", self.text)),
            };
        }
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            let number = word.parse().map_err(|_| self.unexpected())?;
            self.rest = after;
            return Ok(Extent::Number(number));
        }
        self.rest = after;
        Ok(Extent::Symbol(word.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Option<i64> {
        let of = |name: &str| [("a", 5), ("b", 128), ("zero", 0)].into_iter().find(|(n, _)| *n == name);
        Extent::parse(text).unwrap().value(&mut |name| of(name).map(|(_, v)| v))
    }

    #[test]
    fn expressions_have_values_and_are_written_as_read() {
        for (text, expected) in [
            ("a", Some(5)),
            ("2*b", Some(256)),
            ("b/3", Some(43)),
            ("a+1", Some(6)),
            ("pad(a,4)*pad(b/16,4)", Some(64)),
            ("(a+b)*2", Some(266)),
            ("a*b/2", Some(320)),
            ("a*(b/3)", Some(215)),
            ("1", Some(1)),
            ("a/zero", None),
            ("c", None),
            ("9223372036854775807*b", None),
        ] {
            assert_eq!(value(text), expected, "{text}");
            assert_eq!(Extent::parse(text).unwrap().to_string(), text);
        }
        for (text, words) in [
            ("", "the end is not expected"),
            ("a b", "`b` is not expected"),
            ("2*", "the end"),
            ("pad(a,b)", "`pad` takes a number above 0"),
            ("(a", "the end"),
            ("a-1", "`-1`"),
        ] {
            assert!(Extent::parse(text).unwrap_err().contains(words), "{text}: {:?}", Extent::parse(text));
        }
    }

    #[test]
    fn symbols_are_bound_by_what_can_be_solved() {
        let solve = |text: &str, extent| Extent::parse(text).unwrap().binds().and_then(|b| b.solve(extent));
        assert_eq!(solve("a", 7), Some(7));
        assert_eq!(solve("2*a", 8), Some(4));
        assert_eq!(solve("2*a", 7), None, "no extent of the expression");
        assert_eq!(solve("a+1", 8), Some(7));
        assert_eq!(solve("2*(a+1)", 8), Some(3));
        assert_eq!(solve("a/2", 8), None);
        assert_eq!(Extent::parse("a*b").unwrap().binds(), None);
        assert_eq!(Extent::parse("a*b+a").unwrap().symbols(), ["a", "b", "a"]);
    }
}
