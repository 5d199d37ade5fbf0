//! Every spec of every op on the host target, against its float64 reference.

use parbake::model::settings::Config;
use parbake::trial::Trial;
use parbake::{Library, Place};
use std::collections::BTreeMap;

fn config(workspace: &std::path::Path) -> Config {
    let mut config = Config::from_env().unwrap();
    config.kernels = Some(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels"));
    config.workspace = workspace.to_owned();
    config
}

#[test]
fn norms_are_right_on_the_host_target() {
    let folder = tempfile::tempdir().unwrap();
    let library = Library::open(config(folder.path())).unwrap();
    for (op, def) in library.ops() {
        for dtype in ["f16", "bf16", "f32"] {
            for (rows, hidden, pad, offset) in [
                (1, 1, 0, 0),
                (3, 111, 1, 1),
                (19, 500, 12, 0),
                (5, 1024, 0, 0),
                (2, 4096, 8, 0),
                (2, 8192, 3, 3),
                (1, 65536, 0, 0),
                (0, 64, 0, 0),
            ] {
                let mut trial = Trial::example(def, BTreeMap::from([("dtype".to_owned(), dtype.to_owned())]));
                trial.dims = BTreeMap::from([("rows".to_owned(), rows), ("hidden".to_owned(), hidden)]);
                (trial.pad, trial.offset) = (pad, offset);
                let outcome = trial.run(&library, op, Place::Host).unwrap();
                assert!(outcome.ok, "{} {dtype} {rows}x{hidden}: {outcome:?}", def.name);
            }
        }
    }
}
