use super::*;
use crate::target::ARCHS;
use proptest::prelude::*;

fn judge(target: &str, toolkit: &str, device: u16, driver: i32) -> Result<Accept, &'static str> {
    let image = Image { target: target.parse().unwrap(), toolkit: toolkit.parse().unwrap() };
    let device = (device != 0).then_some(Arch(device));
    let driver = (driver != 0).then(|| Toolkit::from_driver(driver));
    verdict(&image, device, driver).map_err(|reject| match reject {
        Reject::OtherMajor { .. } => "major",
        Reject::MinorTooNew { .. } => "minor",
        Reject::ArchSpecific { .. } => "specific",
        Reject::Family { .. } => "family",
        Reject::DeviceTooOld { .. } => "old device",
        Reject::Integrated { .. } => "integrated",
        Reject::PtxIsa { .. } => "isa",
        Reject::DriverMajor { .. } => "driver major",
        Reject::DriverTooOld { .. } => "driver",
        Reject::PtxNotAllowed { .. } => "not allowed",
        Reject::HostOnGpu { .. } => "host",
        Reject::NoDevice { .. } => "no device",
        Reject::Narrower { .. } => "narrower",
    })
}

#[test]
fn the_table_holds() {
    type Row = (&'static str, &'static str, u16, i32, Result<Accept, &'static str>);
    let table: &[Row] = &[
        // Same major, this minor or a later one.
        ("sm_80", "12.0", 80, 12020, Ok(Accept::Baseline)),
        ("sm_80", "12.0", 89, 12020, Ok(Accept::Baseline)),
        ("sm_86", "12.0", 80, 12020, Err("minor")),
        ("sm_80", "12.0", 90, 12020, Err("major")),
        ("sm_90", "12.0", 80, 12020, Err("major")),
        ("sm_75", "12.9", 80, 12020, Err("major")),
        ("sm_90", "12.9", 90, 12020, Ok(Accept::Baseline)),
        ("sm_120", "12.9", 100, 13000, Err("major")),
        ("sm_120", "12.9", 121, 13000, Ok(Accept::Baseline)),
        ("sm_100", "12.9", 103, 13000, Ok(Accept::Baseline)),
        // Suffix `a`: exactly this chip, PTX too.
        ("sm_90a", "12.0", 90, 12000, Ok(Accept::Exact)),
        ("sm_90a", "12.0", 100, 13000, Err("specific")),
        ("sm_100a", "12.9", 103, 13000, Err("specific")),
        ("sm_103a", "12.9", 100, 13000, Err("specific")),
        ("sm_120a", "12.9", 121, 13000, Err("specific")),
        ("compute_90a", "12.0", 90, 13000, Ok(Accept::Ptx)),
        ("compute_90a", "12.0", 100, 13000, Err("specific")),
        // Suffix `f`: the family.
        ("sm_100f", "12.9", 100, 13000, Ok(Accept::Family)),
        ("sm_100f", "12.9", 103, 13000, Ok(Accept::Family)),
        ("sm_103f", "12.9", 103, 13000, Ok(Accept::Family)),
        ("sm_103f", "12.9", 100, 13000, Err("minor")),
        ("sm_120f", "12.9", 121, 13000, Ok(Accept::Family)),
        ("sm_121f", "12.9", 120, 13000, Err("minor")),
        ("sm_100f", "12.9", 120, 13000, Err("family")),
        ("sm_110f", "13.0", 110, 13000, Ok(Accept::Family)),
        ("sm_100f", "12.9", 110, 13000, Err("family")),
        ("compute_100f", "12.9", 103, 13000, Ok(Accept::Ptx)),
        ("compute_100f", "12.9", 120, 13000, Err("family")),
        // PTX runs on any newer device, if the driver reads it.
        ("compute_80", "12.4", 90, 12040, Ok(Accept::Ptx)),
        ("compute_80", "12.4", 121, 12090, Ok(Accept::Ptx)),
        ("compute_90", "12.4", 80, 12040, Err("old device")),
        ("compute_80", "13.5", 80, 13000, Err("isa")),
        ("compute_80", "12.5", 80, 12060, Ok(Accept::Ptx)),
        ("compute_80", "12.4", 87, 12040, Ok(Accept::Ptx)),
        // Toolkit and driver.
        ("sm_80", "13.5", 80, 12080, Err("driver major")),
        ("sm_80", "13.5", 80, 13000, Ok(Accept::Baseline)),
        ("sm_80", "12.9", 80, 12020, Ok(Accept::Baseline)),
        ("sm_80", "11.8", 80, 13000, Ok(Accept::Baseline)),
        ("sm_103a", "12.9", 103, 12080, Err("driver")),
        ("sm_100f", "12.9", 103, 12080, Err("driver")),
        ("sm_100a", "12.9", 100, 12080, Ok(Accept::Exact)),
        ("sm_110a", "13.0", 110, 12090, Err("driver major")),
        ("sm_80", "13.5", 80, 0, Ok(Accept::Baseline)),
        // Integrated chips.
        ("sm_86", "12.0", 87, 13000, Err("integrated")),
        ("sm_87", "12.0", 87, 13000, Ok(Accept::Baseline)),
        ("sm_87", "12.0", 89, 13000, Err("integrated")),
        // Architectures that are not in our table are judged by their numbers.
        ("sm_80", "12.0", 85, 13000, Ok(Accept::Baseline)),
        ("compute_90", "12.0", 130, 13000, Ok(Accept::Ptx)),
        // The host.
        ("host", "0.0", 0, 0, Ok(Accept::Host)),
        ("host", "0.0", 90, 13000, Err("host")),
        ("sm_90", "12.0", 0, 13000, Err("no device")),
        ("compute_80", "12.0", 0, 0, Err("no device")),
        // An integrated chip and a desktop chip of one major; the chip itself.
        ("sm_80", "12.0", 87, 13000, Err("integrated")),
        ("sm_87", "12.0", 88, 13000, Err("integrated")),
        ("sm_110", "13.0", 110, 13000, Ok(Accept::Baseline)),
    ];
    for &(target, toolkit, device, driver, expected) in table {
        let got = judge(target, toolkit, device, driver);
        assert_eq!(got, expected, "{target} of {toolkit} on {device} with {driver}");
    }
}

fn any_target() -> impl Strategy<Value = Target> {
    let suffix = prop_oneof![Just(Suffix::Baseline), Just(Suffix::Family), Just(Suffix::Specific)];
    // Known numbers, and any other.
    let arch = any_arch();
    (arch, suffix, 0..5u8).prop_map(|(arch, suffix, kind)| match kind {
        0 => Target::Host,
        1 => Target::Compute(arch, suffix),
        _ => Target::Sm(arch, suffix),
    })
}

fn any_arch() -> impl Strategy<Value = Arch> {
    prop_oneof![(0..ARCHS.len()).prop_map(|i| ARCHS[i].arch), any::<u16>().prop_map(Arch)]
}

fn any_toolkit() -> impl Strategy<Value = Toolkit> {
    let near = (10..15u16, 0..10u16).prop_map(|(major, minor)| Toolkit { major, minor });
    prop_oneof![near, any::<(u16, u16)>().prop_map(|(major, minor)| Toolkit { major, minor })]
}

fn integrated(arch: Arch) -> bool {
    arch.facts().is_some_and(|f| f.integrated)
}

proptest! {
    #[test]
    fn the_verdict_never_panics_and_always_has_a_reason(
        target in any_target(), toolkit in any_toolkit(), device in prop::option::of(any_arch()),
        driver in prop::option::of(any_toolkit()), wanted in any_target(),
    ) {
        let image = Image { target, toolkit };
        for judged in [verdict(&image, device, driver), covers(&image, wanted)] {
            match judged {
                Ok(how) => prop_assert!(!how.to_string().is_empty()),
                Err(why) => prop_assert!(!why.to_string().is_empty() && why.code().starts_with("PB-12")),
            }
        }
    }

    #[test]
    fn a_plain_cubin_that_runs_on_a_minor_runs_on_the_later_ones(
        major in 7..14u16, minors in prop::array::uniform3(0..10u16), toolkit in any_toolkit(), family in any::<bool>(),
    ) {
        let mut minors = minors;
        minors[1..].sort_unstable();
        let [image, device, later] = minors.map(|minor| Arch(major * 10 + minor));
        prop_assume!(![image, device, later].into_iter().any(integrated));
        let suffix = if family { Suffix::Family } else { Suffix::Baseline };
        let image = Image { target: Target::Sm(image, suffix), toolkit };
        let runs = |device| verdict(&image, Some(device), None).is_ok();
        prop_assert!(!runs(device) || runs(later));
        prop_assert_eq!(runs(device), image.target.arch() <= Some(device));
    }

    #[test]
    fn an_image_for_one_chip_runs_on_that_chip_only(
        arch in any_arch(), device in any_arch(), toolkit in any_toolkit(), ptx in any::<bool>(),
    ) {
        let target = if ptx { Target::Compute(arch, Suffix::Specific) } else { Target::Sm(arch, Suffix::Specific) };
        let image = Image { target, toolkit };
        prop_assert_eq!(verdict(&image, Some(device), None).is_ok(), arch == device);
        prop_assert!(verdict(&image, Some(arch), None).is_ok());
    }

    #[test]
    fn an_image_for_a_family_never_leaves_it(arch in any_arch(), device in any_arch(), toolkit in any_toolkit()) {
        let image = Image { target: Target::Sm(arch, Suffix::Family), toolkit };
        if verdict(&image, Some(device), None).is_ok() {
            prop_assert!(arch.major() == device.major() && arch.minor() <= device.minor());
        }
    }

    #[test]
    fn a_newer_driver_refuses_nothing_that_an_older_one_takes(
        target in any_target(), toolkit in any_toolkit(), device in any_arch(), drivers in prop::array::uniform2(any_toolkit()),
    ) {
        let mut drivers = drivers;
        drivers.sort_unstable();
        let judged = drivers.map(|driver| verdict(&Image { target, toolkit }, Some(device), Some(driver)));
        prop_assert!(judged[0].is_err() || judged[1] == judged[0]);
    }

    #[test]
    fn the_best_is_taken_whatever_the_order(
        list in prop::collection::vec((any_target(), any_toolkit()), 0..9).prop_shuffle(), device in any_arch(),
        driver in any_toolkit(), allow_ptx in any::<bool>(), turn in 0..9usize,
    ) {
        let images: Vec<Image> = list.iter().map(|&(target, toolkit)| Image { target, toolkit }).collect();
        let best = |images: &[Image]| {
            let (best, trace) = select(images.iter().map(|i| (i, i.target)), Some(device), Some(driver), allow_ptx);
            assert_eq!(trace.len(), images.len());
            best
        };
        let found = best(&images);
        let mut turned = images.clone();
        turned.rotate_left(turn.min(images.len()));
        turned.reverse();
        prop_assert_eq!(best(&turned), found);
        // The rank is exact, family, baseline, PTX; then the highest architecture.
        for image in &images {
            if let Ok(accept) = verdict(image, Some(device), Some(driver)) && (allow_ptx || accept != Accept::Ptx) {
                let (rank, target) = found.expect("one of them runs");
                prop_assert!(rank < accept || (rank == accept && target >= image.target));
            }
        }
    }
}

/// The vectors of the compatibility rules, as they were collected: target, device, driver, verdict. Machine code is
/// by the oldest toolkit that knows the target where none is named.
#[test]
fn the_collected_vectors_hold() {
    let rows = [
        ("sm_80", "12.0", 80, 12020, "Accept"),
        ("sm_90a", "12.0", 90, 12000, "Accept"),
        ("sm_80", "12.0", 89, 12020, "Accept"),
        ("sm_90a", "12.0", 100, 13000, "ArchSpecific"),
        ("sm_86", "12.0", 80, 12020, "MinorTooNew"),
        ("sm_100a", "12.9", 103, 13000, "ArchSpecific"),
        ("sm_80", "12.0", 90, 12020, "Major"),
        ("sm_100f", "12.9", 103, 13000, "Accept"),
        ("sm_120f", "12.9", 121, 13000, "Accept"),
        ("sm_103f", "12.9", 100, 13000, "MinorTooNew"),
        ("sm_120", "12.9", 100, 13000, "Major"),
        ("sm_100f", "12.9", 120, 13000, "Family"),
        // PTX 8.4 is that of 12.4, 9.5 that of 13.5.
        ("compute_80", "12.4", 90, 12040, "Accept(PtxJit)"),
        ("compute_90a", "12.4", 100, 13000, "ArchSpecific"),
        ("compute_80", "13.5", 80, 13000, "PtxIsa"),
        ("sm_80", "13.5", 80, 12080, "DriverMajor"),
        // By the rules of minor-version compatibility.
        ("sm_80", "12.9", 80, 12020, "Accept"),
        ("sm_86", "12.0", 87, 12000, "Tegra"),
        ("sm_86", "12.0", 87, 13000, "Tegra"),
        ("sm_86", "12.0", 87, 0, "Tegra"),
    ];
    for (target, toolkit, device, driver, expected) in rows {
        let got = match judge(target, toolkit, device, driver) {
            Ok(Accept::Ptx) => "Accept(PtxJit)",
            Ok(_) => "Accept",
            Err("specific") => "ArchSpecific",
            Err("minor") => "MinorTooNew",
            Err("major") => "Major",
            Err("family") => "Family",
            Err("isa") => "PtxIsa",
            Err("driver major") => "DriverMajor",
            Err("integrated") => "Tegra",
            Err(other) => other,
        };
        assert_eq!(got, expected, "{target} of {toolkit} on {device} under {driver}");
    }
}

/// The last of those vectors: a fatbin that is compressed inside needs a driver of 12.4. None is packed, and none is
/// handed to a driver, whatever its version.
#[test]
fn a_compressed_fatbin_is_neither_packed_nor_handed_over() {
    use crate::bundle::{BundleWriter, Details, ImageDetails, Item, SpecDetails};
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/13.0-compressed.fatbin");
    let bytes = std::fs::read(path).unwrap();
    let target: Target = "sm_90a".parse().unwrap();
    // What the loader asks.
    let error = crate::fatbin::check_single(&bytes, target, "sample").unwrap_err();
    assert_eq!(error.code(), "PB-1417");
    let digest = crate::Digest::of(b"");
    let spec = SpecDetails {
        params: None,
        op: "norm".into(),
        uri: "norm-a".into(),
        source_key: digest,
        spec_id: digest,
        axes: Vec::new(),
        tactic: Vec::new(),
        snippet: None,
        entry: "sample".into(),
        options: std::collections::BTreeMap::new(),
        images: Vec::new(),
    };
    let image = ImageDetails {
        target,
        toolkit: Some(Toolkit { major: 13, minor: 0 }),
        toolchain: "nvrtc".into(),
        build_key: digest,
        size: 0,
        resources: None,
    };
    let error = BundleWriter::new(Details::default(), 3).push(Item { spec, image, bytes }).unwrap_err();
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("compressed"), "{error}");
}

#[test]
fn an_image_covers_a_target_or_lacks_some_of_its_devices() {
    let toolkit = Toolkit { major: 13, minor: 0 };
    let table = [
        ("sm_100a", "sm_100a", Ok(Accept::Exact)),
        ("sm_100f", "sm_100a", Ok(Accept::Family)),
        ("sm_100", "sm_100a", Ok(Accept::Baseline)),
        ("sm_100f", "sm_103a", Ok(Accept::Family)),
        ("sm_100a", "sm_103a", Err("PB-1203")),
        ("sm_80", "sm_90a", Err("PB-1201")),
        ("sm_100a", "sm_100f", Err("PB-1213")),
        ("sm_100f", "sm_100f", Ok(Accept::Family)),
        ("sm_100f", "sm_103f", Ok(Accept::Family)),
        ("sm_103f", "sm_100f", Err("PB-1202")),
        ("sm_100", "sm_103f", Ok(Accept::Baseline)),
        ("sm_100f", "sm_120f", Err("PB-1204")),
        ("sm_120a", "sm_120", Err("PB-1213")),
        ("sm_120f", "sm_120", Err("PB-1213")),
        ("sm_121a", "sm_121", Err("PB-1213")),
        ("sm_80", "sm_86", Ok(Accept::Baseline)),
        ("sm_86", "sm_80", Err("PB-1202")),
        ("sm_86", "sm_87", Err("PB-1206")),
        ("sm_87", "sm_87", Ok(Accept::Baseline)),
        ("sm_90a", "sm_90", Err("PB-1213")),
        ("sm_100a", "compute_100", Err("PB-1213")),
        ("sm_100", "compute_100", Err("PB-1213")),
        ("compute_80", "compute_90", Ok(Accept::Ptx)),
        ("compute_80", "compute_90a", Ok(Accept::Ptx)),
        ("compute_90", "compute_80", Err("PB-1205")),
        ("compute_90a", "compute_90", Err("PB-1213")),
        ("compute_100f", "compute_100", Err("PB-1213")),
        ("compute_100f", "compute_103f", Ok(Accept::Ptx)),
        ("compute_100a", "compute_100f", Err("PB-1213")),
        ("compute_90a", "compute_100", Err("PB-1203")),
        ("compute_80", "sm_80", Err("PB-1210")),
        ("compute_90", "sm_80", Err("PB-1205")),
        ("host", "host", Ok(Accept::Host)),
        ("host", "sm_80", Err("PB-1211")),
        ("sm_80", "host", Err("PB-1212")),
    ];
    for (image, wanted, expected) in table {
        let image = Image { target: image.parse().unwrap(), toolkit };
        let got = covers(&image, wanted.parse().unwrap()).map_err(|reject| reject.code());
        assert_eq!(got, expected, "{} for {wanted}", image.target);
    }
    let image = Image { target: "sm_100a".parse().unwrap(), toolkit };
    let error = covers(&image, "sm_100f".parse().unwrap()).unwrap_err().to_string();
    assert_eq!(error, "sm_100a runs on fewer devices than sm_100f stands for");
}

#[test]
fn the_best_covering_candidate_wins() {
    let toolkit = Toolkit { major: 13, minor: 0 };
    let images = ["sm_100", "sm_100a", "sm_100f", "sm_103f"];
    let images = images.map(|t| Image { target: t.parse().unwrap(), toolkit });
    let best = |wanted: &str| {
        let (best, trace) = select_covering(images.iter().map(|i| (i, i.target)), wanted.parse().unwrap());
        assert_eq!(trace.len(), images.len());
        best.map(|(accept, target)| format!("{accept:?} {target}"))
    };
    assert_eq!(best("sm_100f").as_deref(), Some("Family sm_100f"));
    assert_eq!(best("sm_103a").as_deref(), Some("Family sm_103f"));
    assert_eq!(best("sm_100a").as_deref(), Some("Exact sm_100a"));
    assert_eq!(best("sm_100").as_deref(), Some("Baseline sm_100"));
    assert_eq!(best("sm_120"), None);
}

fn choose(targets: &[&str], device: u16, allow_ptx: bool) -> (Option<(Accept, String)>, Trace) {
    let toolkit = Toolkit { major: 12, minor: 9 };
    let images: Vec<Image> = targets.iter().map(|t| Image { target: t.parse().unwrap(), toolkit }).collect();
    let candidates = images.iter().map(|i| (i, i.target.to_string()));
    select(candidates, Some(Arch(device)), Some(Toolkit { major: 13, minor: 0 }), allow_ptx)
}

#[test]
fn the_best_candidate_wins_whatever_the_order() {
    let mut targets = ["compute_80", "compute_90", "sm_80", "sm_90", "sm_90a", "sm_100", "sm_100f", "sm_103f"];
    for _ in 0..targets.len() {
        targets.rotate_left(1);
        let best = |device, ptx| choose(&targets, device, ptx).0.map(|(a, t)| format!("{a:?} {t}"));
        assert_eq!(best(90, true).as_deref(), Some("Exact sm_90a"));
        assert_eq!(best(100, true).as_deref(), Some("Family sm_100f"));
        assert_eq!(best(103, true).as_deref(), Some("Family sm_103f"));
        assert_eq!(best(89, true).as_deref(), Some("Baseline sm_80"));
        assert_eq!(best(120, true).as_deref(), Some("Ptx compute_90"));
        assert_eq!(best(120, false), None);
    }
    assert_eq!(choose(&["sm_80", "sm_86"], 89, false).0.unwrap().1, "sm_86");
}

#[test]
fn every_candidate_is_in_the_trace_with_a_reason() {
    let (best, trace) = choose(&["compute_80", "sm_90a", "sm_80"], 100, false);
    assert_eq!(best, None);
    let reasons: Vec<String> = trace.iter().map(|(_, r)| r.unwrap_err().to_string()).collect();
    assert_eq!(reasons[0], "compute_80 would be compiled by the driver, which was not asked for (PARBAKE_PTX)");
    assert_eq!(reasons[1], "sm_90a runs on compute capability 9.0 exactly; the device is 10.0");
    assert_eq!(reasons[2], "sm_80 runs on compute capability 8.x; the device is 10.0");
}
