//! What a build puts into the library: kernel sources with the feature `embed-sources`, a bundle with `aot`.

use parbake_model::source::KernelTree;

#[cfg(feature = "embed-sources")]
mod files {
    include!(concat!(env!("OUT_DIR"), "/sources.rs"));
}

/// The kernel sources inside the library.
pub(crate) fn sources() -> Option<KernelTree> {
    #[cfg(feature = "embed-sources")]
    return Some(KernelTree::embedded(files::SOURCES));
    #[cfg(not(feature = "embed-sources"))]
    None
}

/// The bundle inside the library.
pub(crate) fn bundle() -> Option<&'static [u8]> {
    #[cfg(feature = "aot")]
    return Some(include_bytes!(concat!(env!("OUT_DIR"), "/embedded.pbk")));
    #[cfg(not(feature = "aot"))]
    None
}
