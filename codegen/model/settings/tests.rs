use super::config::strict;
use super::*;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

fn config(pairs: &[(&str, &str)]) -> Result<Config, BadSetting> {
    Config::from_pairs(pairs.iter().map(|(n, v)| (n.to_string(), v.to_string())))
}

#[test]
fn every_setting_in_the_table_has_a_field() {
    assert!(SETTINGS.is_sorted_by_key(|s| s.name));
    for setting in SETTINGS {
        let value = match setting.kind {
            "boolean" => "off",
            "targets" => "80,90a",
            "number" | "seconds" => "3",
            "required|warn|off" => "off",
            "bundle version:library version" => concat!("9.9.9:", env!("CARGO_PKG_VERSION")),
            "0|1|3|5|10" => "5",
            "auto|on|off" => "on",
            "auto|events|globaltimer" => "events",
            k if k.starts_with("op:") => "rmsnorm:block=512",
            k if k.starts_with("http://") => "https://mirror.example",
            k if k.starts_with("bytes") => "3G",
            k if k.starts_with("error|") => "info",
            k if k.starts_with("release|") => "lineinfo",
            _ => "/x",
        };
        let config = config(&[(setting.name, value)]).unwrap();
        assert_eq!(config.shown(setting), (value.to_owned(), "environment"));
    }
}

#[test]
fn zero_is_off_and_nonsense_is_an_error() {
    assert!(!config(&[("PARBAKE_JIT", "0")]).unwrap().jit);
    assert!(config(&[("PARBAKE_JIT", "")]).unwrap().jit);
    assert_eq!(config(&[("PARBAKE_JIT", "maybe")]).unwrap_err().name, "PARBAKE_JIT");
    assert!(config(&[("PARBAKE_WORKSPACE", "~/x")]).is_err());
    assert!(config(&[("PARBAKE_ARCHS", "99")]).is_err());
    assert!(config(&[("PARBAKE_JOBS", "0")]).is_err());
    for (name, value) in [
        ("PARBAKE_LOG", "2"),
        ("PARBAKE_LOG", "debug"),
        ("PARBAKE_LOG_DEST", "calls.log"),
        ("PARBAKE_LOG_DEST", "/var/log/%d"),
        ("PARBAKE_DUMP_COUNT", "0"),
        ("PARBAKE_DUMP_BYTES", "0"),
        ("PARBAKE_MIRROR", "/srv/bundles"),
        ("PARBAKE_SOURCES", "/srv/bundles,bundles"),
    ] {
        assert_eq!(config(&[(name, value)]).unwrap_err().name, name, "{value}");
    }
}

#[test]
fn bytes_have_units_and_are_never_none() {
    for (text, expected) in [
        ("1500000", Some(1_500_000)),
        ("8G", Some(8 << 30)),
        ("512 MiB", Some(512 << 20)),
        ("1kb", Some(1024)),
        ("2T", Some(2 << 40)),
        ("0", None),
        ("G", None),
        ("1.5G", None),
        ("-1", None),
        ("8X", None),
        ("99999999999T", None),
    ] {
        assert_eq!(bytes(text), expected, "{text}");
    }
    assert!(config(&[("PARBAKE_MEMORY", "much")]).is_err());
    assert!(config(&[("PARBAKE_LOCK_TIMEOUT", "0")]).is_err());
}

#[test]
fn a_value_that_is_not_utf8_is_an_error() {
    use std::os::unix::ffi::OsStringExt;
    let bytes = |name: &str| (OsString::from(name), OsString::from_vec(b"/a\xff".to_vec()));
    let error = |pairs: Vec<_>| strict(Config::from_os_pairs(pairs.into_iter())).unwrap_err().to_string();
    let expected = "setting PARBAKE_KERNELS: expected UTF-8, also in a path, got `/a\u{fffd}`";
    assert_eq!(error(vec![bytes("PARBAKE_WORKSPACE"), bytes("PARBAKE_KERNELS")]), expected);
    // Other people's variables are none of our business.
    assert!(strict(Config::from_os_pairs([bytes("OTHER"), bytes("PARBAKE_TEST_X")].into_iter())).is_ok());
}

#[test]
fn workspace_follows_the_documented_order() {
    let at = |pairs| config(pairs).unwrap().workspace;
    assert_eq!(at(&[("PARBAKE_WORKSPACE", "/w"), ("HOME", "/h")]), Path::new("/w"));
    assert_eq!(at(&[("XDG_CACHE_HOME", "/c"), ("HOME", "/h")]), Path::new("/c/parbake"));
    assert_eq!(at(&[("XDG_CACHE_HOME", "c"), ("HOME", "/h")]), Path::new("/h/.cache/parbake"));
    assert!(at(&[]).file_name().unwrap().to_str().unwrap().starts_with("parbake-"));
}

#[test]
fn installed_bundles_lie_below_the_data_folders() {
    let at = |pairs: &[(&str, &str)]| config(pairs).unwrap().installed;
    let paths = |all: &[&str]| all.iter().map(PathBuf::from).collect::<Vec<_>>();
    let all = at(&[("XDG_DATA_HOME", "/d"), ("XDG_DATA_DIRS", "/a:b::/c:/a"), ("HOME", "/h")]);
    assert_eq!(all, paths(&["/d/parbake/bundles", "/a/parbake/bundles", "/c/parbake/bundles"]));
    let system = ["/usr/local/share/parbake/bundles", "/usr/share/parbake/bundles"];
    assert_eq!(at(&[]), paths(&system));
    assert_eq!(at(&[("HOME", "/h")])[0], Path::new("/h/.local/share/parbake/bundles"));
    assert_eq!(config(&[]).unwrap().without_bundles().installed, paths(&[]));
}

#[test]
fn keys_make_signatures_required_and_only_the_setting_itself_changes_that() {
    let policy = |pairs: &[(&str, &str)]| config(pairs).map(|c| c.signature);
    let keys = ("PARBAKE_PUBLIC_KEYS", "RWabc, /etc/key.pub");
    assert_eq!(policy(&[]), Ok(SignaturePolicy::Off));
    assert_eq!(policy(&[keys]), Ok(SignaturePolicy::Required));
    assert_eq!(policy(&[keys, ("PARBAKE_SIGNATURE", "warn")]), Ok(SignaturePolicy::Warn));
    assert_eq!(policy(&[keys, ("PARBAKE_SIGNATURE", "off")]), Ok(SignaturePolicy::Off));
    assert_eq!(config(&[keys]).unwrap().public_keys, ["RWabc", "/etc/key.pub"]);
    let setting = SETTINGS.iter().find(|s| s.name == "PARBAKE_SIGNATURE").unwrap();
    assert_eq!(config(&[keys]).unwrap().shown(setting).0, "required");
    for (name, value) in
        [("PARBAKE_SIGNATURE", "required"), ("PARBAKE_SIGNATURE", "yes"), ("PARBAKE_PUBLIC_KEYS", "key.pub")]
    {
        assert_eq!(policy(&[(name, value)]).unwrap_err().name, name, "{value}");
    }
}

#[test]
fn a_bypass_is_a_pair_of_versions_and_the_second_is_ours() {
    let of = |text: &str| config(&[("PARBAKE_VERSION_BYPASS", text)]).map(|c| c.version_bypass.unwrap());
    let ours = crate::VERSION;
    let bypass = of(&format!("0.7.0-rc.1:{ours}")).unwrap();
    assert_eq!((bypass.bundle.as_str(), bypass.library.as_str()), ("0.7.0-rc.1", ours));
    for malformed in ["on", "1.0", "1.0:", ":1.0", "1.0:2.0:3.0", "*:1.0", "1.0 :1.0"] {
        let error = of(malformed).unwrap_err();
        assert!(error.expected.contains("<bundle version>:<library version>"), "{malformed}: {error}");
    }
    assert!(of("0.7.0:9.9.9").unwrap_err().expected.contains("this library is"));
}

#[test]
fn an_unknown_variable_is_a_warning_with_the_nearest_name() {
    let config = config(&[("PARBAKE_JITS", "1"), ("PARBAKE_TEST_X", "1"), ("PARBAKE_WHEEL_X", "1")]).unwrap();
    assert_eq!(config.warnings, ["unknown setting PARBAKE_JITS; the nearest one is PARBAKE_JIT"]);
}

#[test]
fn an_unknown_variable_that_is_near_to_nothing_has_no_nearest_name() {
    let config = config(&[("PARBAKE_QQQQQQQQ", "1")]).unwrap();
    assert_eq!(config.warnings, ["unknown setting PARBAKE_QQQQQQQQ; `parbake config` lists those there are"]);
}

#[test]
fn all_bad_values_are_reported_and_the_good_ones_hold() {
    let pairs = [("PARBAKE_JIT", "maybe"), ("PARBAKE_CACHE", "off"), ("PARBAKE_JOBS", "0")];
    let (config, bad) = Config::read(pairs.map(|(n, v)| (n.to_owned(), v.to_owned())));
    assert_eq!(bad.iter().map(|b| b.name).collect::<Vec<_>>(), ["PARBAKE_JIT", "PARBAKE_JOBS"]);
    assert!(!config.cache && config.jit && config.jobs > 0);
    // Keys that cannot be used neither let anything pass nor make a second complaint.
    let pairs = [("PARBAKE_PUBLIC_KEYS", "key.pub"), ("PARBAKE_SIGNATURE", "required")];
    let (config, bad) = Config::read(pairs.map(|(n, v)| (n.to_owned(), v.to_owned())));
    assert_eq!(bad.iter().map(|b| b.name).collect::<Vec<_>>(), ["PARBAKE_PUBLIC_KEYS"]);
    assert_eq!(config.signature, SignaturePolicy::Required);
}
