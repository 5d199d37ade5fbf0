//! Names of ops and of their arguments, which become names in C, C++ and Rust.

use crate::header;
use parbake_model::op::Op;

/// Words of lower case that C11, C++20 or Rust keep for themselves.
const KEYWORDS: &str = "
    abstract alignas alignof and and_eq as asm async auto await become bitand bitor bool box break case
    catch char char16_t char32_t char8_t class co_await co_return co_yield compl concept const
    const_cast consteval constexpr constinit continue crate decltype default delete do double dyn
    dynamic_cast else enum explicit export extern false final float fn for friend gen goto if impl in
    inline int let long loop macro match mod move mut mutable namespace new noexcept not not_eq nullptr
    operator or or_eq override priv private protected pub public ref register reinterpret_cast requires
    restrict return self short signed sizeof static static_assert static_cast struct super switch
    template this thread_local throw trait true try type typedef typeid typename typeof union unsafe
    unsigned unsized use using virtual void volatile wchar_t where while xor xor_eq yield
";

fn is_keyword(name: &str) -> bool {
    KEYWORDS.split_whitespace().any(|word| word == name)
}

/// Arguments that every generated function has, and names in its body.
const TAKEN: [&str; 6] = ["error", "library", "op", "place", "stream", "target"];

/// Says which names cannot be taken.
pub(crate) fn check(op: &Op, wrong: &mut dyn FnMut(&[&str], String)) {
    if header::own_functions().any(|name| name == op.name) {
        wrong(&["name"], format!("`parbake_{}` is another function of parbake.h", op.name));
    }
    if is_keyword(&op.name) {
        wrong(&["name"], format!("`{}` is a word of C, C++ or Rust", op.name));
    }
    let tensors = op.tensors.iter().map(|t| &t.name).enumerate().map(|(i, name)| ("tensor", i, name));
    let scalars = op.scalars.iter().map(|s| &s.name).enumerate().map(|(i, name)| ("scalar", i, name));
    for (kind, i, name) in tensors.chain(scalars) {
        let i = i.to_string();
        if is_keyword(name) {
            wrong(&[kind, &i, "name"], format!("`{name}` is a word of C, C++ or Rust"));
        } else if TAKEN.contains(&name.as_str()) {
            wrong(&[kind, &i, "name"], format!("`{name}` is an argument that the functions of all ops have"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::tests::{GOOD, complaints};

    fn altered(from: &str, to: &str) -> String {
        assert!(GOOD.contains(from), "{from}");
        complaints("demo/scale/op.toml", &GOOD.replace(from, to))
    }

    #[test]
    fn names_of_the_languages_and_of_the_library_are_refused() {
        assert!(KEYWORDS.split_whitespace().is_sorted());
        assert!(altered("name = \"x\"", "name = \"int\"").contains("`int` is a word of C, C++ or Rust"));
        assert!(altered("name = \"x\"", "name = \"stream\"").contains("`stream` is an argument that"));
        let text = GOOD.replacen("name = \"scale\"", "name = \"error_free\"", 1);
        let said = complaints("demo/error_free/op.toml", &text);
        assert!(said.contains("`parbake_error_free` is another function of parbake.h"), "{said}");
        let text = GOOD.replacen("name = \"scale\"", "name = \"union\"", 1);
        assert!(complaints("demo/union/op.toml", &text).contains("`union` is a word"));
    }
}
