//! Which of several bundles serves: tiers, verdicts across bundles, installed bundles, versions and their bypass.

mod common;

use common::{World, norm};
use parbake::decision::{Decision, Origin};
use parbake::model::bundle::{BundleWriter, Details, ImageDetails, Item, SpecDetails};
use parbake::model::identity::Spec;
use parbake::model::settings::VersionBypass;
use parbake::model::target::Arch;
use parbake::model::{Digest, LAUNCH_ABI, Target, Toolkit, VERSION, fatbin};
use parbake::{Error, Goal, Library, OpId, Place, WHEEL_FOLDER};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Keeps the warnings of the loader's log.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl tracing::field::Visit for Warnings {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0.lock().unwrap().last_mut().unwrap().push_str(&format!(" {field}={value:?}"));
    }
}

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        self.0.lock().unwrap().push(String::new());
        event.record(&mut self.clone());
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// What something gives, and what it warned of on this thread.
fn warned<T>(work: impl FnOnce() -> T) -> (T, Vec<String>) {
    let warnings = Warnings::default();
    let value = tracing::subscriber::with_default(warnings.clone(), work);
    let list = warnings.0.lock().unwrap().clone();
    (value, list)
}

/// A bundle for `dtype=f32` of some ops as a test wants it.
#[derive(Clone)]
struct Recipe<'a> {
    ops: &'a [&'a str],
    targets: &'a [&'a str],
    version: &'a str,
    launch_abi: u32,
    /// Whether its kernels take the parameters that the library's launchers fill.
    same_params: bool,
}

const GOOD: Recipe<'_> =
    Recipe { ops: &["rmsnorm"], targets: &[], version: VERSION, launch_abi: LAUNCH_ABI, same_params: true };

fn spec(library: &Library) -> (OpId, Spec) {
    spec_of(library, "rmsnorm")
}

fn spec_of(library: &Library, op: &str) -> (OpId, Spec) {
    let op = library.op(op).unwrap();
    let spec = library.spec(op, &[("dtype".into(), "f32".into())], Target::Host).unwrap();
    (op, spec)
}

/// A file of sample code for a target. The kernel in it is another one: these bundles are looked up in, not run.
fn sample(target: Target) -> Vec<u8> {
    let read = |name: &str| std::fs::read(common::root().join("codegen/model/testdata").join(name)).unwrap();
    match target.to_string().as_str() {
        "host" => b"a shared object".to_vec(),
        "sm_90a" => read("13.0-90a.fatbin"),
        "sm_100f" => read("13.0-100f.fatbin"),
        "sm_100" => relabelled(&read("13.0-100f.fatbin"), read("13.0-100.cubin")),
        other => panic!("no sample for {other}"),
    }
}

/// A fatbin of the same architecture without a suffix, with this cubin in it.
fn relabelled(family: &[u8], mut cubin: Vec<u8>) -> Vec<u8> {
    const CONTAINER: usize = 16;
    cubin.resize(cubin.len().next_multiple_of(8), 0);
    let header = u32::from_le_bytes(family[CONTAINER + 4..CONTAINER + 8].try_into().unwrap()) as usize;
    let mut bytes = family[..CONTAINER + header].to_vec();
    bytes[8..16].copy_from_slice(&((header + cubin.len()) as u64).to_le_bytes());
    bytes[CONTAINER + 8..CONTAINER + 16].copy_from_slice(&(cubin.len() as u64).to_le_bytes());
    // The flag of suffix `f`, bit 21.
    bytes[CONTAINER + 42] &= !(1 << 5);
    [bytes, cubin].concat()
}

fn bundle(world: &World, path: &Path, recipe: &Recipe<'_>) -> PathBuf {
    let mut fresh = World::new();
    fresh.config.kernels = world.config.kernels.clone();
    let library = fresh.library();
    let details = Details { library: recipe.version.to_owned(), launch_abi: recipe.launch_abi, ..Details::default() };
    let mut writer = BundleWriter::new(details, 3);
    for (op, target) in recipe.ops.iter().flat_map(|op| recipe.targets.iter().map(move |t| (op, t))) {
        let (op, spec) = spec_of(&library, op);
        let def = library.definition(op);
        let key = spec.source_key(def, library.sources_digest(op).unwrap()).digest;
        let params = library.params_digest(op).unwrap();
        let params = if recipe.same_params { params } else { Digest::of(b"other parameters") };
        let target: Target = target.parse().unwrap();
        let host = target == Target::Host;
        let image = ImageDetails {
            target,
            toolkit: (!host).then_some(Toolkit { major: 13, minor: 0 }),
            toolchain: "test".to_owned(),
            build_key: Digest::of(target.to_string().as_bytes()),
            size: 0,
            resources: None,
        };
        let spec = SpecDetails { entry: "sample".into(), ..SpecDetails::new(&spec, key, params, &def.options) };
        writer.push(Item { spec, image, bytes: sample(target) }).unwrap();
    }
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, writer.finish().unwrap()).unwrap();
    path.to_owned()
}

/// A world without JIT, with a folder for installed bundles.
fn world() -> (World, PathBuf) {
    let mut world = World::new();
    world.config.jit = false;
    let installed = world.folder.path().join("share/parbake/bundles");
    world.config.installed = vec![world.folder.path().join("absent"), installed.clone()];
    (world, installed)
}

fn decide(library: &Library, target: &str) -> Decision {
    let (op, spec) = spec(library);
    library.explain(op, &spec, Goal::Target(target.parse().unwrap())).unwrap()
}

/// Which of the places of a decision the image that was taken is from, by the end of the file's name.
fn places(decision: &Decision) -> Vec<(String, Option<String>)> {
    let name = |place: &str| place.rsplit('/').next().unwrap().to_owned();
    decision.steps.iter().map(|s| (name(&s.place), s.target.map(|t| t.to_string()))).collect()
}

#[test]
fn the_best_verdict_of_a_tier_wins_and_ties_go_to_the_earlier_bundle() {
    let (mut world, installed) = world();
    let at = |name: &str| world.folder.path().join(name);
    let family = bundle(&world, &at("family.pbk"), &Recipe { targets: &["sm_100f"], ..GOOD });
    let exact = bundle(&world, &at("exact.pbk"), &Recipe { targets: &["sm_90a", "host"], ..GOOD });
    let again = bundle(&world, &at("again.pbk"), &Recipe { targets: &["sm_90a"], ..GOOD });
    bundle(&world, &installed.join("lower.pbk"), &Recipe { targets: &["host", "sm_100f"], ..GOOD });
    world.config.bundles = vec![family, exact, again];
    let library = world.library();
    let decision = decide(&library, "sm_90a");
    assert_eq!(decision.from, Some(Origin::Bundle));
    assert_eq!(decision.target, Some("sm_90a".parse().unwrap()));
    // Every candidate of every bundle of the tier, and nothing of the tier below.
    let (a, b) = (Some("sm_90a".to_owned()), Some("sm_100f".to_owned()));
    let expected = [
        ("family.pbk".to_owned(), b.clone()),
        ("exact.pbk".to_owned(), Some("host".to_owned())),
        ("exact.pbk".to_owned(), a.clone()),
        ("again.pbk".to_owned(), a),
    ];
    assert_eq!(places(&decision), expected, "{decision}");
    // Both have it: the explicit one comes before the installed one, which is not asked.
    assert_eq!(decide(&library, "sm_100f").target, Some("sm_100f".parse().unwrap()));
    assert!(!decide(&library, "sm_100f").to_string().contains("lower.pbk"));

    world.config.bundles.remove(0);
    let decision = decide(&world.library(), "sm_100f");
    assert_eq!((decision.from, decision.target), (Some(Origin::Bundle), Some("sm_100f".parse().unwrap())));
    assert!(decision.to_string().contains("installed bundle") && decision.to_string().contains("lower.pbk"));
}

#[test]
fn a_family_image_of_a_later_bundle_is_preferred_to_a_baseline_one() {
    let (world, installed) = world();
    let at = |name: &str| world.folder.path().join(name);
    let baseline = bundle(&world, &at("baseline.pbk"), &Recipe { targets: &["sm_100", "sm_90a"], ..GOOD });
    let family = bundle(&world, &at("family.pbk"), &Recipe { targets: &["sm_100f"], ..GOOD });
    let device = |major: u16| Goal::Device(Arch(major * 10), Toolkit { major: 13, minor: 0 });
    let taken = |bundles: &[&PathBuf], goal| {
        let mut world = World::new();
        (world.config.jit, world.config.installed) = (false, vec![installed.clone()]);
        world.config.bundles = bundles.iter().map(|p| (*p).clone()).collect();
        let library = world.library();
        let (op, spec) = spec(&library);
        library.explain(op, &spec, goal).unwrap().target.map(|t| t.to_string())
    };
    assert_eq!(taken(&[&baseline, &family], device(10)).as_deref(), Some("sm_100f"));
    assert_eq!(taken(&[&family, &baseline], device(10)).as_deref(), Some("sm_100f"));
    assert_eq!(taken(&[&baseline, &family], device(9)).as_deref(), Some("sm_90a"));
    assert_eq!(taken(&[&family], device(9)), None);
    // A tier that has something that runs is not improved upon by the one below.
    std::fs::create_dir_all(&installed).unwrap();
    std::fs::copy(&family, installed.join("family.pbk")).unwrap();
    assert_eq!(taken(&[&baseline], device(10)).as_deref(), Some("sm_100"));
    assert_eq!(taken(&[], device(10)).as_deref(), Some("sm_100f"));
}

#[test]
fn installed_bundles_are_found_by_name_and_only_read() {
    let (world, installed) = world();
    for name in ["b.pbk", "a.pbk"] {
        bundle(&world, &installed.join(name), &Recipe { targets: &["sm_90a"], ..GOOD });
    }
    std::fs::write(installed.join("readme.txt"), "no bundle").unwrap();
    let library = world.library();
    let names: Vec<&str> = library.bundles().filter_map(|n| n.rsplit('/').next()).collect();
    assert_eq!(names[..2], ["a.pbk", "b.pbk"]);
    assert_eq!(library.refused_bundles().count(), 0);
    let decision = decide(&library, "sm_90a");
    assert_eq!(decision.from, Some(Origin::Bundle), "{decision}");
    let mut left: Vec<_> = std::fs::read_dir(&installed).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["a.pbk", "b.pbk", "readme.txt"]);
    assert!(!world.config.workspace.exists());
}

#[test]
fn bundles_of_data_wheels_lie_in_folders_of_their_own() {
    let (mut world, installed) = world();
    let root = world.folder.path().join("site-packages").join(WHEEL_FOLDER);
    bundle(&world, &root.join("cu130-sm90a/norm.pbk"), &Recipe { targets: &["sm_90a"], ..GOOD });
    bundle(&world, &root.join("cu130-sm100f/norm.pbk"), &Recipe { targets: &["sm_100f"], ..GOOD });
    // No deeper, or a link to the root would be walked for ever.
    bundle(&world, &root.join("cu130-sm90a/deep/norm.pbk"), &Recipe { targets: &["host"], ..GOOD });
    world.config.installed = vec![installed, root.clone()];
    let library = world.library();
    let names: Vec<&str> = library.bundles().filter_map(|n| n.split_once("parbake_bundles/").map(|(_, n)| n)).collect();
    assert_eq!(names, ["cu130-sm100f/norm.pbk", "cu130-sm90a/norm.pbk"]);
    for target in ["sm_90a", "sm_100f"] {
        assert_eq!(decide(&library, target).from, Some(Origin::Bundle));
    }
    assert_eq!(decide(&library, "host").from, None);
}

#[test]
fn an_installed_bundle_that_cannot_be_read_is_a_step_and_no_failure() {
    let (mut world, installed) = world();
    bundle(&world, &installed.join("good.pbk"), &Recipe { targets: &["host"], ..GOOD });
    std::fs::create_dir(installed.join("folder.pbk")).unwrap();
    std::os::unix::fs::symlink("nowhere", installed.join("dangling.pbk")).unwrap();
    let (library, warnings) = warned(|| world.library());
    assert_eq!(warnings.len(), 2, "one for each: {warnings:#?}");
    let decision = decide(&library, "host");
    assert_eq!(decision.from, Some(Origin::Bundle), "{decision}");
    let text = decision.to_string();
    for (name, why) in [("dangling.pbk", "No such file"), ("folder.pbk", "cannot read")] {
        let line = text.lines().find(|l| l.contains(name)).unwrap_or_else(|| panic!("no {name} in\n{text}"));
        assert!(line.contains("not used") && line.contains(why), "{line}");
        assert!(library.refused_bundles().any(|(place, _)| place.ends_with(name)), "{name}");
    }
    // Also where nothing else is found.
    assert!(decide(&library, "sm_90a").to_string().contains("dangling.pbk"));
    // Named on purpose, each of them is an error.
    for name in ["dangling.pbk", "folder.pbk"] {
        world.config.bundles = vec![installed.join(name)];
        let report = Library::open(world.config.clone()).err().unwrap().report().to_string();
        assert!(report.contains(name), "{report}");
    }
}

#[test]
fn an_installed_bundle_that_does_not_fit_is_an_error_that_names_both_sides() {
    let (mut world, installed) = world();
    let wheels = world.folder.path().join("site-packages").join(WHEEL_FOLDER);
    world.config.installed = vec![installed.clone(), wheels.clone()];
    let good = bundle(&world, &installed.join("good.pbk"), &Recipe { targets: &["host"], ..GOOD });
    assert_eq!(decide(&world.library(), "host").from, Some(Origin::Bundle));
    let ours = format!("version {VERSION}, launch ABI {LAUNCH_ABI}");
    let bytes = std::fs::read(&good).unwrap();
    let old = Recipe { targets: &["host"], version: "9.9.9", ..GOOD };
    bundle(&world, &wheels.join("cu130-sm90a/old.pbk"), &old);
    bundle(&world, &wheels.join("host/abi.pbk"), &Recipe { launch_abi: 77, version: VERSION, ..old.clone() });
    std::fs::write(installed.join("torn.pbk"), &bytes[..bytes.len() - 1]).unwrap();
    let mut later = bytes.clone();
    later[12] = 9;
    std::fs::write(wheels.join("host/later.pbk"), later).unwrap();
    let error = Library::open(world.config.clone()).err().unwrap();
    assert!(matches!(&error, Error::Installed(unfit) if unfit.len() == 4), "{error:?}");
    let report = error.report();
    assert_eq!(report.code, "PB-1391");
    for (name, parts, fix) in [
        ("cu130-sm90a/old.pbk", ["made by version 9.9.9", &ours], "--upgrade parbake parbake-bundle-cu130-sm90a"),
        ("host/abi.pbk", ["launch ABI 77", &ours], "pip uninstall parbake-bundle-host"),
        ("host/later.pbk", ["needs a reader of format 9", ""], "--force-reinstall --no-deps parbake-bundle-host"),
        ("torn.pbk", ["bytes long; expected", ""], "torn.pbk"),
    ] {
        let (_, why) = report.details.iter().find(|(place, _)| place.ends_with(name)).unwrap();
        assert!(parts.iter().all(|part| why.contains(part)), "{name}: {why}");
        assert!(report.help.iter().any(|help| help.contains(fix)), "{name}: {:?}", report.help);
    }
    // A bypass for the pair lets the version pass, as if the bundle had been named. The ABI never.
    std::fs::remove_dir_all(wheels.join("host")).unwrap();
    std::fs::remove_file(installed.join("torn.pbk")).unwrap();
    world.config.version_bypass = bypass("9.9.9");
    assert!(world.library().bundles().any(|name| name.ends_with("old.pbk")));
}

#[test]
fn a_damaged_image_of_an_installed_bundle_is_an_error_at_the_load() {
    let (mut world, installed) = world();
    let path = bundle(&world, &installed.join("a.pbk"), &Recipe { targets: &["host"], ..GOOD });
    let mut bytes = std::fs::read(&path).unwrap();
    // The last byte is of the last frame; header and index are whole.
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    // Also where it could be compiled: every process of every machine would do so, and nobody would know.
    world.config.jit = true;
    let load = |world: &World| {
        let library = world.library();
        let (op, spec) = spec(&library);
        library.kernel(op, &spec, Place::Host).map(drop).unwrap_err().report()
    };
    let report = load(&world);
    assert_eq!(report.code, "PB-1391", "{report}");
    assert!(report.to_string().contains("a.pbk") && report.to_string().contains("damaged"), "{report}");
    world.config.bundles = vec![path];
    assert_eq!(load(&world).code, "PB-1305");
}

#[test]
fn a_bundle_of_a_compatible_version_serves_what_has_not_changed() {
    let mut world = World::with_own_kernels();
    world.config.jit = false;
    // The last number of a version may differ in either direction.
    let (first, last) = VERSION.rsplit_once('.').unwrap();
    let later = format!("{first}.{}", last.parse::<u32>().unwrap() + 7);
    let ops = ["rmsnorm", "fused_add_rmsnorm"];
    let recipe = Recipe { ops: &ops, targets: &["sm_90a"], version: &later, ..GOOD };
    world.config.bundles = vec![bundle(&world, &world.folder.path().join("later.pbk"), &recipe)];
    let decided = |op: &str| {
        let library = world.library();
        let (op, spec) = spec_of(&library, op);
        library.explain(op, &spec, Goal::Target("sm_90a".parse().unwrap())).unwrap()
    };
    for op in ops {
        assert_eq!(decided(op).from, Some(Origin::Bundle), "{}", decided(op));
    }
    let header = world.kernel_file("norm/rmsnorm/rmsnorm.cuh");
    let text = std::fs::read_to_string(&header).unwrap();
    std::fs::write(&header, text + "// edited\n").unwrap();
    assert_eq!(decided("fused_add_rmsnorm").from, Some(Origin::Bundle));
    let changed = decided("rmsnorm");
    assert_eq!(changed.from, None);
    assert!(changed.to_string().contains("source changed"), "{changed}");
}

fn bypass(bundle: &str) -> Option<VersionBypass> {
    Some(VersionBypass { bundle: bundle.to_owned(), library: VERSION.to_owned() })
}

#[test]
fn a_bypass_is_for_one_pair_of_versions_only_and_is_on_record() {
    let (mut world, _) = world();
    let path = world.folder.path().join("old.pbk");
    let old = Recipe { targets: &["sm_90a", "host"], version: "9.9.9", ..GOOD };
    world.config.bundles = vec![bundle(&world, &path, &old)];
    let refusal = |world: &World| Library::open(world.config.clone()).err().unwrap().report().to_string();
    let text = refusal(&world);
    assert!(text.contains("9.9.9") && text.contains(&format!("PARBAKE_VERSION_BYPASS=9.9.9:{VERSION}")), "{text}");
    world.config.version_bypass = bypass("9.9.8");
    let text = refusal(&world);
    assert!(text.contains("PB-1390") && text.contains("9.9.8") && text.contains("another pair"), "{text}");

    world.config.version_bypass = bypass("9.9.9");
    let decision = decide(&world.library(), "sm_90a");
    assert_eq!(decision.from, Some(Origin::Bundle), "{decision}");
    assert_eq!(decision.version_bypass.as_deref(), Some(format!("9.9.9:{VERSION}").as_str()));
    assert!(decision.to_string().contains("version bypass"), "{decision}");
    // The verdict holds as ever.
    let other = decide(&world.library(), "sm_80");
    assert_eq!((other.from, other.version_bypass), (None, None));

    // Another launch ABI is never let pass, and neither are other parameters.
    bundle(&world, &path, &Recipe { launch_abi: 77, ..old.clone() });
    let text = refusal(&world);
    assert!(text.contains("launch ABI 77") && text.contains("never let pass"), "{text}");
    bundle(&world, &path, &Recipe { same_params: false, ..old });
    let decision = decide(&world.library(), "sm_90a");
    assert_eq!(decision.from, None);
    assert!(decision.to_string().contains("other parameters"), "{decision}");
}

#[test]
fn a_bypass_serves_changed_sources_and_caches_nothing() {
    let mut world = World::with_own_kernels();
    // A real kernel, so that it can be run.
    let (warm, spec_uri) = {
        let library = world.library();
        let (op, spec) = spec(&library);
        let toolchain = library.toolchain(Target::Host, None).unwrap();
        (
            library.obtain(op, &spec, Target::Host, &*toolchain, parbake::model::identity::Profile::Release).unwrap().0,
            spec.uri,
        )
    };
    let path = world.folder.path().join("real.pbk");
    {
        let library = world.library();
        let (op, spec) = spec(&library);
        let details = Details { library: VERSION.to_owned(), launch_abi: LAUNCH_ABI, ..Details::default() };
        let mut writer = BundleWriter::new(details, 3);
        let m = &warm.metadata;
        let image = ImageDetails {
            target: Target::Host,
            toolkit: None,
            toolchain: m.toolchain.clone(),
            build_key: m.build_key,
            size: 0,
            resources: None,
        };
        let params = library.params_digest(op).unwrap();
        let spec = SpecDetails::new(&spec, m.source_key, params, &library.definition(op).options);
        writer.push(Item { spec, image, bytes: warm.bytes }).unwrap();
        std::fs::write(&path, writer.finish().unwrap()).unwrap();
    }
    world.config.bundles = vec![path];
    world.config.workspace = world.folder.path().join("other");
    let header = world.kernel_file("norm/rmsnorm/rmsnorm.cuh");
    let text = std::fs::read_to_string(&header).unwrap();
    std::fs::write(&header, text + "// edited\n").unwrap();
    world.config.jit = false;
    let library = world.library();
    let (op, spec) = spec(&library);
    assert_eq!(spec.uri, spec_uri);
    assert!(matches!(library.kernel(op, &spec, Place::Host), Err(Error::NotCovered(_))));

    world.config.version_bypass = bypass(VERSION);
    world.config.jit = true;
    let library = world.library();
    let (loaded, warnings) = warned(|| library.kernel(op, &spec, Place::Host).unwrap());
    let (kernel, from) = loaded;
    assert!(warnings.len() == 1 && warnings[0].contains("PARBAKE_VERSION_BYPASS"), "{warnings:?}");
    assert_eq!(from, Origin::Bundle);
    assert_eq!(kernel.decision.version_bypass.as_deref(), Some(format!("{VERSION}:{VERSION}").as_str()));
    let steps: Vec<String> = kernel.decision.steps.iter().map(|s| s.outcome.clone()).collect();
    assert!(steps.iter().any(|s| s.contains("no image of these sources")), "{steps:?}");
    assert!(!world.config.workspace.exists(), "nothing is cached");
    // What has another launcher choice is compiled from the present sources: the bypass is for what the bundle holds.
    let outcome = norm(&library, "fused_add_rmsnorm", "f32", 2, 64);
    let outcome = outcome.run(&library, library.op("fused_add_rmsnorm").unwrap(), Place::Host).unwrap();
    assert!(outcome.ok && outcome.from == Origin::Jit && outcome.version_bypass.is_none(), "{outcome:?}");
}

#[test]
fn sample_images_are_what_they_claim() {
    for target in ["sm_90a", "sm_100", "sm_100f"] {
        let target: Target = target.parse().unwrap();
        fatbin::check_single(&sample(target), target, "sample").unwrap();
    }
}
