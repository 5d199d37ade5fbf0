//! Where recordings go.

use std::path::{Path, absolute};

/// What it may be, in words.
pub(super) const EXPECTED: &str = "the path of a file, with no `%` but `%p`";

/// A path that is not absolute begins where the process is when it reads its settings: it may go elsewhere later.
pub(super) fn parse(text: &str) -> Option<String> {
    if text.replace("%p", "").contains('%') || text.ends_with('/') || Path::new(text).file_name().is_none() {
        return None;
    }
    absolute(text).ok()?.into_os_string().into_string().ok()
}
