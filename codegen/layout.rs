//! Layouts of parameter structs, as the committed bindings state them: what each compiler must agree with.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Struct name → layout.
pub type Layouts = BTreeMap<String, Layout>;

/// The layout of one parameter struct.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    /// Size in bytes.
    pub size: usize,
    /// Alignment in bytes.
    pub align: usize,
    /// Field → offset in bytes.
    pub fields: BTreeMap<String, usize>,
}

impl Layout {
    /// C++ assertions that a compiler agrees.
    #[must_use]
    pub fn assertions(&self, name: &str) -> String {
        let mut text = format!("static_assert(sizeof({name}) == {}, \"layout of {name}\");\n", self.size);
        text += &format!("static_assert(alignof({name}) == {}, \"layout of {name}\");\n", self.align);
        for (field, offset) in &self.fields {
            text +=
                &format!("static_assert(PB_OFFSETOF({name}, {field}) == {offset}, \"offset of {name}::{field}\");\n");
        }
        text
    }

    /// The same as a line of a unit in Python: fields in order, with their offsets. Whoever compiles it compares.
    #[must_use]
    pub fn line(&self) -> String {
        format!("{PARAMETERS}{}\n", serde_json::json!({ "size": self.size, "fields": self.ordered() }))
    }

    /// What [`Layout::line`] wrote into a unit: the size, and fields with their offsets.
    #[must_use]
    pub fn in_unit(text: &str) -> Option<(usize, Vec<(String, usize)>)> {
        #[derive(Deserialize)]
        struct Line {
            size: usize,
            fields: Vec<(String, usize)>,
        }
        let line = text.lines().rev().find_map(|line| line.strip_prefix(PARAMETERS))?;
        serde_json::from_str(line).ok().map(|Line { size, fields }| (size, fields))
    }

    fn ordered(&self) -> Vec<(&String, usize)> {
        let mut fields: Vec<_> = self.fields.iter().map(|(name, offset)| (name, *offset)).collect();
        fields.sort_by_key(|(_, offset)| *offset);
        fields
    }
}

/// How the line of parameters of a unit in Python begins.
const PARAMETERS: &str = "PARAMETERS = ";

/// The layouts that this build was made with.
///
/// # Panics
/// If the committed file is damaged, which the generator's check rules out.
#[must_use]
pub fn committed() -> Layouts {
    let text = include_str!("../generated-manifest/layouts.json");
    serde_json::from_str(text).expect("bug: generated-manifest/layouts.json is damaged")
}

/// Reads the layouts out of bindings: bindgen states each as a constant assertion.
#[must_use]
pub fn from_bindings(bindings: &str) -> Layouts {
    let mut layouts = Layouts::new();
    // `["Size of pb_x"][::core::mem::size_of::<pb_x>() - 64usize];`, broken into lines as the formatter likes.
    let mut parts = bindings.split('"');
    parts.next();
    while let (Some(label), Some(rest)) = (parts.next(), parts.next()) {
        let value = || rest.split_once("usize")?.0.rsplit("- ").next()?.trim().parse::<usize>().ok();
        let empty = || Layout { size: 0, align: 0, fields: BTreeMap::new() };
        if let Some(name) = label.strip_prefix("Size of ") {
            layouts.entry(name.to_owned()).or_insert_with(empty).size = value().unwrap_or(0);
        } else if let Some(name) = label.strip_prefix("Alignment of ") {
            layouts.entry(name.to_owned()).or_insert_with(empty).align = value().unwrap_or(0);
        } else if let Some((name, field)) = label.strip_prefix("Offset of field: ").and_then(|n| n.split_once("::")) {
            let layout = layouts.entry(name.to_owned()).or_insert_with(empty);
            layout.fields.insert(field.to_owned(), value().unwrap_or(usize::MAX));
        }
    }
    layouts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bindings_state_their_layouts() {
        let text = "const _: () = {\n [\n  \"Size of pb_a\",\n ][::core::mem::size_of::<pb_a>() - 24usize];\n\
                    [\"Alignment of pb_a\"][::core::mem::align_of::<pb_a>() - 8usize];\n\
                    [\"Offset of field: pb_a::n\"][::core::mem::offset_of!(pb_a, n) - 16usize];\n };";
        let layout = &from_bindings(text)["pb_a"];
        assert_eq!((layout.size, layout.align, layout.fields["n"]), (24, 8, 16));
        assert!(layout.assertions("pb_a").contains("PB_OFFSETOF(pb_a, n) == 16"));
        assert_eq!(layout.line(), "PARAMETERS = {\"fields\":[[\"n\",16]],\"size\":24}\n");
        assert_eq!(Layout::in_unit(&layout.line()), Some((24, vec![("n".to_owned(), 16)])));
    }
}
