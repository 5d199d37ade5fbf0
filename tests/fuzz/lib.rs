//! What the fuzz targets call. `entries` and `forge` are also compiled into `tests/corpus.rs`, so that every machine runs
//! them over the committed corpus.

pub mod entries;
pub mod forge;
