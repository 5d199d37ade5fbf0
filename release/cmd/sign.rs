//! `parbake sign`: signs bundles, and makes the pair of keys to do so.

use super::{build, inspect};
use crate::output::{Failure, Output};
use minisign::{KeyPair, PublicKey, SecretKey, SecretKeyBox};
use parbake::signature::{self, Keys};
use parbake_model::bundle::Bundle;
use parbake_model::report::{Class, Report};
use parbake_model::settings::Config;
use serde::Serialize;
use std::io::{Cursor, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Signs bundles with a minisign key: `norm.pbk` gets `norm.pbk.minisig` beside it.
///
/// A bundle is verified first, and nothing is signed unless all of them are whole. Who has PARBAKE_PUBLIC_KEYS set to
/// the public key then uses bundles with such a signature only.
///
///   parbake sign --generate-key release
///
///   parbake sign norm.pbk --key release.key
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Bundles
    #[arg(value_name = "FILE", required_unless_present = "generate_key")]
    files: Vec<PathBuf>,
    /// The secret key, as minisign or `--generate-key` writes it
    #[arg(long, value_name = "FILE", required_unless_present = "generate_key")]
    key: Option<PathBuf>,
    /// What the signature says, signed too [default: name, version and contents of the bundle]
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
    /// Makes a pair of keys: PREFIX.key, which is secret, and PREFIX.pub
    #[arg(long, value_name = "PREFIX", conflicts_with_all = ["files", "key", "comment"])]
    generate_key: Option<PathBuf>,
    #[command(flatten)]
    password: Password,
}

/// How the password of a secret key is come by.
#[derive(clap::Args)]
pub(crate) struct Password {
    /// The first line of this file is the password of the key, instead of asking on the terminal
    #[arg(long, value_name = "FILE", conflicts_with = "no_password")]
    password_file: Option<PathBuf>,
    /// The key is not protected by a password
    #[arg(long)]
    no_password: bool,
}

#[derive(Serialize)]
struct SignedBundle {
    bundle: PathBuf,
    signature: PathBuf,
    key: String,
    comment: String,
    /// How many bytes of the bundle, from its start, are covered.
    signed_bytes: u64,
}

#[derive(Serialize)]
struct Generated {
    secret_key: PathBuf,
    public_key: PathBuf,
    id: String,
    /// What PARBAKE_PUBLIC_KEYS takes.
    text: String,
}

pub(crate) fn run(args: Args, _: Config, out: Output) -> Result<(), Failure> {
    if let Some(prefix) = &args.generate_key {
        let generated = generate(prefix, &args.password)?;
        out.show(&generated, || {
            format!(
                "{}: keep it secret\n{}: key {}\nPARBAKE_PUBLIC_KEYS={}\n",
                generated.secret_key.display(),
                generated.public_key.display(),
                generated.id,
                generated.text
            )
        });
        return Ok(());
    }
    if args.comment.as_ref().is_some_and(|c| c.chars().any(char::is_control)) {
        return Err(Report::new("PB-3180", Class::Usage, "a comment is one line of text").into());
    }
    let (mut bundles, mut bad) = (Vec::new(), Vec::new());
    for path in &args.files {
        match whole(path) {
            Ok(bundle) => bundles.push((path, bundle)),
            Err(reports) => bad.extend(reports),
        }
    }
    if !bad.is_empty() {
        return Err(bad.into());
    }
    let key = secret_key(args.key.as_deref().unwrap_or(Path::new("")), &args.password)?;
    let signed = bundles.iter().map(|(path, bundle)| sign(path, bundle, &key, args.comment.as_deref()));
    let signed = signed.collect::<Result<Vec<_>, Report>>()?;
    out.show(&serde_json::json!({ "signed": signed }), || {
        signed.iter().map(|s| format!("{}: signed by {}\n", s.signature.display(), s.key)).collect()
    });
    Ok(())
}

/// Opens a bundle and checks all of it: a signature says that somebody vouches for it.
fn whole(path: &Path) -> Result<Bundle, Vec<Report>> {
    let bundle = inspect::open(path).map_err(|report| vec![report])?;
    match bundle.verify() {
        Ok(_) => Ok(bundle),
        Err(errors) => {
            let what = format!("{} is not signed: it is damaged", path.display());
            let report = Report::new("PB-3181", Class::Failed, what);
            let report = errors.iter().fold(report, |report, e| report.caused_by(format!("{}: {e}", e.code())));
            Err(vec![report.help(format!("parbake verify {}", path.display()))])
        }
    }
}

fn sign(path: &Path, bundle: &Bundle, key: &SecretKey, comment: Option<&str>) -> Result<SignedBundle, Report> {
    let bytes = bundle.signed_bytes().map_err(|e| Report::new(e.code(), Class::Failed, e.to_string()))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name: String = name.chars().filter(|c| !c.is_control()).collect();
    // No time: what is signed is the contents, and their digest says which.
    let default = format!("file:{name}\tlibrary:{}\tindex:{}", bundle.library(), bundle.index_digest());
    let comment = comment.unwrap_or(&default);
    let (signature, public) = signature_of(&bytes, key, comment, "header and index of a parbake bundle")?;
    let place = signature::beside(path);
    build::write(&place, signature.as_bytes())?;
    // Read back as everybody else will read it.
    let keys = Keys::read(&[public.to_base64()]).map_err(|e| e.report())?;
    let signed = signature::check(&keys, path, &bytes).map_err(|e| e.report(path))?;
    let signed_bytes = bundle.signed_size();
    let key = signed.key.to_string();
    Ok(SignedBundle { bundle: path.to_owned(), signature: place, key, comment: signed.comment, signed_bytes })
}

/// A signature over some bytes, and the key to check it with. The same bytes have another signature each time.
pub(super) fn signature_of(
    bytes: &[u8],
    key: &SecretKey,
    comment: &str,
    what: &str,
) -> Result<(String, PublicKey), Report> {
    let failed = |e: minisign::PError| Report::new("PB-3182", Class::Failed, "the key does not sign").caused_by(e);
    let public = PublicKey::from_secret_key(key).map_err(failed)?;
    let untrusted = format!("signature of {what}");
    let signature = minisign::sign(Some(&public), key, Cursor::new(bytes), Some(comment), Some(&untrusted));
    Ok((signature.map_err(failed)?.to_string(), public))
}

/// Reads the secret key. One without a password is taken only if that was said: it is as good as signed for anybody.
pub(super) fn secret_key(path: &Path, args: &Password) -> Result<SecretKey, Report> {
    let unreadable = || Report::new("PB-3183", Class::Environment, format!("cannot read `{}`", path.display()));
    let text = std::fs::read_to_string(path).map_err(|e| unreadable().caused_by(e))?;
    let bad = |e: minisign::PError| {
        let report = Report::new("PB-3184", Class::Usage, format!("`{}` cannot be used to sign", path.display()));
        report.with("expected", "a secret key of minisign").caused_by(e)
    };
    let boxed = || SecretKeyBox::from_string(&text).map_err(bad);
    match (boxed()?.into_unencrypted_secret_key(), args.no_password) {
        (Ok(key), true) => Ok(key),
        (Ok(_), false) => {
            let what = format!("`{}` is not protected by a password", path.display());
            Err(Report::new("PB-3185", Class::Usage, what).help("pass `--no-password` to use it all the same"))
        }
        (Err(e), true) => Err(bad(e).help("without `--no-password` its password is asked for")),
        (Err(_), false) => boxed()?.into_secret_key(Some(password(args, false)?)).map_err(bad),
    }
}

/// The password: from a file, or from the terminal, twice for a new key.
fn password(args: &Password, new: bool) -> Result<String, Report> {
    if let Some(path) = &args.password_file {
        let text = std::fs::read_to_string(path).map_err(|e| {
            Report::new("PB-3183", Class::Environment, format!("cannot read `{}`", path.display())).caused_by(e)
        })?;
        return Ok(text.lines().next().unwrap_or_default().to_owned());
    }
    let ask = |prompt: &str| {
        rpassword::prompt_password(prompt).map_err(|e| {
            Report::new("PB-3186", Class::Environment, "a password cannot be asked for")
                .caused_by(e)
                .help("pass `--password-file FILE`, or `--no-password` for a key without one")
        })
    };
    let first = ask("Password of the key: ")?;
    if new && first != ask("The same once more: ")? {
        return Err(Report::new("PB-3187", Class::Usage, "the passwords differ"));
    }
    Ok(first)
}

/// Makes a pair of keys and writes both; files that are there are left alone.
fn generate(prefix: &Path, args: &Password) -> Result<Generated, Report> {
    let named = |suffix: &str| {
        let mut name = prefix.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let (secret, public) = (named(".key"), named(".pub"));
    for path in [&secret, &public] {
        if path.symlink_metadata().is_ok() {
            return Err(Report::new("PB-3188", Class::Usage, format!("`{}` is there already", path.display()))
                .help("a key is never overwritten; choose another name"));
        }
    }
    let failed = |e: minisign::PError| Report::new("PB-3189", Class::Failed, "no key was made").caused_by(e);
    let pair = if args.no_password {
        KeyPair::generate_unencrypted_keypair()
    } else {
        KeyPair::generate_encrypted_keypair(Some(password(args, true)?))
    };
    let pair = pair.map_err(failed)?;
    let text = pair.pk.to_base64();
    let comment = format!("parbake secret key, {}", if args.no_password { "not encrypted" } else { "encrypted" });
    let boxed = pair.sk.to_box(Some(&comment)).map_err(failed)?.into_string();
    create(&secret, 0o600, &boxed)?;
    create(&public, 0o644, &pair.pk.to_box().map_err(failed)?.into_string())?;
    let id = Keys::read(std::slice::from_ref(&text)).map_err(|e| e.report())?.ids().map(|id| id.to_string()).collect();
    Ok(Generated { secret_key: secret, public_key: public, id, text })
}

/// Writes a file that is not there yet.
fn create(path: &Path, mode: u32, text: &str) -> Result<(), Report> {
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(mode).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
    written.map_err(|e| build::cannot_write(path).caused_by(e))
}
