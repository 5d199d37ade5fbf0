//! Renders instantiation units. Kernels are ordinary `.cuh` templates; a unit includes one and names the instance.

use crate::layout::Layouts;
use crate::registry::Entry;
use parbake_model::Language;
use parbake_model::identity::Spec;
use parbake_model::snippet;
use tera::{Context, Delimiters, Tera};

/// A unit that cannot be rendered.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The template is wrong, or uses a name that the context lacks.
    #[error("cannot render {template}\n{message}")]
    Template {
        /// Path below the kernel tree.
        template: String,
        /// What the engine says, with line and column.
        message: String,
    },
    /// The parameter struct has no committed bindings.
    #[error("no layout is known of `{params}`, the parameter struct of `{op}`")]
    NoLayout {
        /// The op.
        op: String,
        /// Its struct.
        params: String,
    },
}

impl RenderError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Template { .. } => "PB-1105",
            Self::NoLayout { .. } => "PB-1106",
        }
    }
}

/// Renders the unit of a spec, and appends the assertions that the compiler agrees with the launcher on every offset.
///
/// # Errors
/// A template that is wrong.
pub fn unit(entry: &Entry, spec: &Spec, layouts: &Layouts) -> Result<String, RenderError> {
    let template = entry.op.template();
    let refuse = |e: tera::Error| RenderError::Template { template: template.clone(), message: chain(&e) };
    let mut tera = Tera::new();
    tera.autoescape_on(Vec::<&str>::new());
    let delimiters = Delimiters {
        block_start: "<%".into(),
        block_end: "%>".into(),
        variable_start: "${".into(),
        variable_end: "}$".into(),
        comment_start: "<#".into(),
        comment_end: "#>".into(),
    };
    tera.set_delimiters(delimiters).map_err(refuse)?;
    tera.add_raw_template(&template, &entry.sources.template).map_err(refuse)?;
    let context = Context::from_serialize(&spec.context(&entry.op)).map_err(refuse)?;
    let mut text = tera.render(&template, &context).map_err(refuse)?;
    let layout = layouts
        .get(&entry.op.params)
        .ok_or_else(|| RenderError::NoLayout { op: entry.op.name.clone(), params: entry.op.params.clone() })?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    if spec.snippet.is_some() {
        text = resumed(&text, &format!("{}.{}", spec.uri, entry.op.language.extension()));
    }
    text += &match entry.op.language {
        Language::Cuda => layout.assertions(&entry.op.params),
        Language::Triton => layout.line(),
    };
    Ok(text)
}

/// Lets the lines behind a snippet's function count as lines of the unit again: its own are named after it.
fn resumed(text: &str, unit: &str) -> String {
    let line = |(i, line): (usize, &str)| match line.trim() {
        snippet::RESUME => format!("#line {} \"{unit}\"\n", i + 2),
        _ => format!("{line}\n"),
    };
    text.lines().enumerate().map(line).collect()
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        text += &format!("\n{error}");
        next = error.source();
    }
    text
}
