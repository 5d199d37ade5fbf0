//! What a build embeds:
//! `PARBAKE_AOT_ARCHS=90a PARBAKE_AOT_OPS=rmsnorm,fused_add_rmsnorm cargo test --features aot,embed-sources --test embedded`,
//! and the same with `PARBAKE_AOT_LOCK` naming a lock of `rmsnorm` for `90a` instead.
#![cfg(all(feature = "aot", feature = "embed-sources"))]

mod common;

use common::{World, norm};
use parbake::decision::Origin;
use parbake::model::Target;
use parbake::{Goal, Library, Place};

/// A library that has nothing but itself.
fn alone(world: &World, jit: bool) -> Library {
    let mut config = world.config.clone();
    (config.kernels, config.jit) = (None, jit);
    Library::open(config).unwrap()
}

#[test]
fn the_embedded_bundle_serves_without_a_kernel_folder() {
    let world = World::new();
    let library = alone(&world, false);
    assert_eq!(library.bundles().collect::<Vec<_>>(), ["embedded bundle"]);
    let target: Target = "sm_90a".parse().unwrap();
    let locked = std::env::var_os("PARBAKE_AOT_LOCK").is_some();
    for (name, from) in [("rmsnorm", Some(Origin::Bundle)), ("fused_add_rmsnorm", (!locked).then_some(Origin::Bundle))]
    {
        let id = library.op(name).unwrap();
        let spec = library.spec(id, &[("dtype".into(), "bf16".into())], target).unwrap();
        let decision = library.explain(id, &spec, Goal::Target(target)).unwrap();
        assert_eq!(decision.from, from, "{name}: {decision}");
    }
    assert!(!world.config.workspace.exists());
}

#[test]
fn embedded_sources_are_compiled_on_demand() {
    let world = World::new();
    let library = alone(&world, true);
    let outcome =
        norm(&library, "rmsnorm", "bf16", 3, 1000).run(&library, library.op("rmsnorm").unwrap(), Place::Host).unwrap();
    assert!(outcome.ok && outcome.from == Origin::Jit, "{outcome:?}");
}
