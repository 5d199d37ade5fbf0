//! The library: all ops, the bundles and the store they are found in, and the kernels loaded so far.
//!
//! Look-up order: registry → bundles (explicit, installed, embedded) → store → JIT, if it is allowed → an error that names
//! everything that was searched. Nothing is written and no device is touched before something needs it.

use crate::binding::Binding;
use crate::bundles::Bundles;
use crate::check::Signature;
use crate::code::Place;
use crate::driver;
use crate::error::Error;
use crate::goal::Goal;
use crate::record::Recorder;
use crate::shared::Shared;
use crate::slot::Slot;
use crate::snippet::Snippets;
use crate::stats::{Counters, Stats};
use crate::store::Store;
use crate::tactic::{Blocked, Forced, TunedResults};
use crate::workspace::Workspace;
use once_cell::sync::OnceCell;
use parbake_model::identity::{Spec, SpecIndex};
use parbake_model::op::Op;
use parbake_model::settings::{Config, nearest};
use parbake_model::source::{KernelTree, OpSources, binding_digest, params_digest};
use parbake_model::{Digest, Target, space};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::BuildHasherDefault;
use std::path::Path;
use std::sync::{Arc, RwLock};

/// The number of an op in this library.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OpId(pub(crate) u16);

/// The number of a spec in this library.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SpecId {
    pub(crate) op: OpId,
    pub(crate) index: SpecIndex,
}

pub(crate) struct LoadedOp {
    op: Op,
    signature: Signature,
    /// The digests in the manifest of the op of that name, if this program was built with one.
    committed: Option<Committed>,
    /// Launcher and reference of that name in this program.
    binding: Option<&'static Binding>,
    /// Whether the launcher in this program belongs to the sources in use.
    fresh: OnceCell<bool>,
    sources: OnceCell<OpSources>,
}

#[derive(Clone, Copy)]
struct Committed {
    sources: Digest,
    binding: Digest,
    params: Digest,
}

/// Spreads a registry key, which no stranger chooses, over the table: one multiplication.
#[derive(Default)]
pub(crate) struct KeyHasher(u64);

impl std::hash::Hasher for KeyHasher {
    fn write(&mut self, _: &[u8]) {
        unreachable!("bug: a registry key is one number");
    }
    fn write_u64(&mut self, key: u64) {
        let product = u128::from(key ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

/// All ops, and the kernels loaded so far.
pub struct Library {
    pub(crate) config: Config,
    pub(crate) tree: Option<KernelTree>,
    pub(crate) workspace: Workspace,
    pub(crate) store: Store,
    pub(crate) shared: Option<Shared>,
    ops: Vec<LoadedOp>,
    /// The op of each launcher in this program, in the manifest's order; none if the kernel folder lacks it.
    built_in: Vec<Option<OpId>>,
    pub(crate) bundles: Bundles,
    pub(crate) blocked: Blocked,
    pub(crate) forced: Forced,
    pub(crate) tuned: TunedResults,
    pub(crate) kernels: RwLock<HashMap<u64, Arc<Slot>, BuildHasherDefault<KeyHasher>>>,
    pub(crate) uncovered: RwLock<HashSet<u64>>,
    pub(crate) counters: Counters,
    pub(crate) recorder: Option<Recorder>,
    pub(crate) snippets: Snippets,
    #[cfg(feature = "jit")]
    pub(crate) jit: crate::jit::Jit,
}

impl Library {
    /// A library with these settings. Bundles are opened; nothing is written, and no device is touched.
    ///
    /// # Errors
    /// Op definitions that are wrong, a blocklist or tuned results of the settings that cannot be used, a bundle of the settings that cannot be used, or an installed one that is damaged or
    /// belongs to another version or launch ABI. An installed one that cannot be read or is not signed is a warning.
    pub fn open(config: Config) -> Result<Self, Error> {
        crate::log::start(&config);
        let workspace = Workspace::of(&config);
        for part in [workspace.store(), workspace.generated()] {
            // Bundles still serve, so this is no error; a look-up that needs the folder names it.
            let _ = workspace.trusted(&part).inspect_err(Workspace::say_distrust);
        }
        let tree = match &config.kernels {
            Some(folder) => Some(KernelTree::folder(folder.clone())),
            None => crate::embedded::sources(),
        };
        let ops = read_ops(config.kernels.as_deref(), tree.as_ref())?;
        let bundles = Bundles::open(&config)?;
        let by_name = |name: &str| find(&ops, name).map(|id| (id, &ops[usize::from(id.0)].op));
        let blocked = Blocked::read(&config.blocklist, by_name)?;
        let forced = Forced::of(&config.tactics, by_name)?;
        let tuned = TunedResults::read(&config.tuned)?;
        let place = |b: &Binding| ops.iter().position(|o| o.op.name == b.op).map(|i| OpId(i as u16));
        Ok(Self {
            built_in: crate::modules::BINDINGS.iter().map(place).collect(),
            tree,
            store: Store::new(workspace.clone()),
            shared: Shared::of(&config, &workspace),
            workspace,
            ops,
            bundles,
            blocked,
            forced,
            tuned,
            kernels: RwLock::default(),
            uncovered: RwLock::default(),
            counters: Counters::default(),
            recorder: config.record.as_deref().map(Recorder::new),
            snippets: Snippets::default(),
            #[cfg(feature = "jit")]
            jit: crate::jit::Jit::default(),
            config,
        })
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }
    /// Whether the shared store was of no use to this process, which has been said then.
    #[must_use]
    pub fn shared_store_failed(&self) -> bool {
        self.shared.as_ref().is_some_and(Shared::failed)
    }
    /// The workspace.
    #[must_use]
    pub fn workspace(&self) -> &Workspace {
        &self.workspace
    }
    /// What was loaded so far, from where, and what it cost.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.counters.read()
    }
    /// Names of the bundles in use, in look-up order.
    pub fn bundles(&self) -> impl Iterator<Item = &str> {
        self.bundles.names()
    }
    /// Bundles in use, in look-up order, each with the targets that it holds images for.
    pub fn bundle_targets(&self) -> impl Iterator<Item = (&str, BTreeSet<Target>)> {
        self.bundles.targets()
    }
    /// Installed bundles that were passed over, each with its reason.
    pub fn refused_bundles(&self) -> impl Iterator<Item = (&str, &str)> {
        self.bundles.refused()
    }
    /// Whether a bundle with these details may be used by this library at all: same caret range of versions, same
    /// launch ABI. Its images are judged one by one, by their source keys.
    #[must_use]
    pub fn accepts(details: &parbake_model::bundle::Details) -> bool {
        crate::bundles::fits(&details.library, details.launch_abi)
    }
    /// The toolchain that a look-up of an op in CUDA C++ would compile with for a goal.
    ///
    /// # Errors
    /// A report that says where it was searched, and what to install.
    #[cfg(feature = "jit")]
    pub fn toolchain_for(
        &self,
        goal: Goal,
    ) -> Result<Arc<dyn parbake_codegen::toolchain::Toolchain>, parbake_model::Report> {
        self.jit.on_demand(self, parbake_model::Language::Cuda, goal)
    }
    /// All ops, sorted by family and name.
    pub fn ops(&self) -> impl Iterator<Item = (OpId, &Op)> {
        self.ops.iter().enumerate().map(|(i, o)| (OpId(i as u16), &o.op))
    }
    /// The definition of an op.
    #[must_use]
    pub fn definition(&self, op: OpId) -> &Op {
        &self.ops[usize::from(op.0)].op
    }
    /// What arguments of an op are checked against.
    pub(crate) fn signature(&self, op: OpId) -> &Signature {
        &self.ops[usize::from(op.0)].signature
    }
    /// The Rust side of an op: its launcher and reference.
    ///
    /// # Errors
    /// If the op was added or changed after this program was built: a launcher never runs a kernel of other sources.
    pub fn binding(&self, op: OpId) -> Result<&'static Binding, Error> {
        let loaded = &self.ops[usize::from(op.0)];
        // The launcher that was built in fills the struct of the sources that it was built from, and no other.
        let fresh = || match (&self.config.kernels, &self.tree, loaded.committed) {
            (None, ..) => true,
            (Some(_), Some(tree), Some(built)) => binding_digest(tree, &loaded.op).is_ok_and(|b| b == built.binding),
            _ => false,
        };
        let folder = || self.config.kernels.clone().unwrap_or_default();
        loaded
            .binding
            .filter(|_| *loaded.fresh.get_or_init(fresh))
            .ok_or_else(|| Error::OtherLauncher { op: loaded.op.name.clone(), folder: folder() })
    }

    /// The op of that name, or of that `family/name`.
    ///
    /// # Errors
    /// If there is none; the error names the nearest.
    pub fn op(&self, name: &str) -> Result<OpId, Error> {
        find(&self.ops, name)
    }

    /// The op of a launcher in this program, by its place in the manifest: what a generated export calls.
    ///
    /// # Errors
    /// If the kernel folder does not have it.
    pub fn built_in(&self, place: usize) -> Result<OpId, Error> {
        match self.built_in.get(place) {
            Some(Some(op)) => Ok(*op),
            _ => self.op(built_in_name(place)),
        }
    }

    /// The spec with these axis and tactic values, given as text. Tactics that are not named take their default for
    /// the target.
    ///
    /// # Errors
    /// An unknown name or value, or an axis without a value.
    pub fn spec(&self, op: OpId, values: &[(String, String)], target: Target) -> Result<Spec, Error> {
        let def = self.definition(op);
        let unknown = |what: String, expected: String, got: &str| Error::UnknownValue {
            op: def.name.clone(),
            what,
            expected,
            got: got.to_owned(),
        };
        for (name, _) in values {
            let names = || def.axes.iter().map(|a| a.name.as_str()).chain(def.tactics.iter().map(|t| t.name.as_str()));
            if !names().any(|n| n == name) {
                return Err(unknown(
                    format!("there is no axis or tactic `{name}`"),
                    names().collect::<Vec<_>>().join(", "),
                    name,
                ));
            }
        }
        let given = |name: &str| values.iter().rev().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
        let (mut axes, mut snippet) = (Vec::new(), None);
        for axis in &def.axes {
            let legal = || axis.values.iter().map(|v| v.value.as_str()).collect::<Vec<_>>().join(", ");
            let value = match given(&axis.name) {
                Some(value) => value,
                None if axis.values.len() == 1 => &axis.values[0].value,
                None => {
                    return Err(unknown(
                        format!("axis `{}` has no value", axis.name),
                        format!("{}=… with one of {}", axis.name, legal()),
                        "nothing",
                    ));
                }
            };
            let own = axis.open.as_ref().and_then(|_| self.named_snippet(op, axis, value));
            let found = own.as_ref().map(|_| 0).or_else(|| axis.values.iter().position(|v| v.value == value));
            axes.push(
                found.ok_or_else(|| unknown(format!("axis `{}` has no value `{value}`", axis.name), legal(), value))?,
            );
            snippet = own.or(snippet);
        }
        // The element size of a default may be illegal for this element type: the first legal spec is taken then.
        let forced = |i: usize| self.forced.value(op, i);
        let named = def.tactics.iter().enumerate().any(|(i, t)| given(&t.name).is_some() || forced(i).is_some());
        let default = default_tactic(def, target);
        let mut tactic = Vec::new();
        for (i, t) in def.tactics.iter().enumerate() {
            let legal = || t.values.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
            let usual = || forced(i).or(default.get(&t.name).copied()).map(|v| v.to_string());
            let value = given(&t.name).map_or_else(usual, |v| Some(v.to_owned()));
            let value = value.unwrap_or_else(|| t.values[0].to_string());
            let found = t.values.iter().position(|v| v.to_string() == value);
            tactic.push(
                found.ok_or_else(|| unknown(format!("tactic `{}` has no value `{value}`", t.name), legal(), &value))?,
            );
        }
        let spec = Spec::at(def, Spec::index(def, &axes, &tactic));
        let found = if named || space::check(def, &spec, Some(target)).is_ok() {
            spec
        } else {
            let mut alike = space::specs(def).map(|(s, _)| s).filter(|s| s.axes == spec.axes);
            alike.find(|s| space::check(def, s, Some(target)).is_ok()).unwrap_or(spec)
        };
        match snippet {
            Some(snippet) => found.with_snippet(def, (*snippet).clone()).map_err(Error::Snippet),
            None => Ok(found),
        }
    }

    /// What a place needs.
    ///
    /// # Errors
    /// If there is no such device.
    pub fn goal(&self, place: Place) -> Result<Goal, Error> {
        let Place::Cuda(ordinal) = place else { return Ok(Goal::Host) };
        let (ready, device) = driver::device(ordinal)?;
        Ok(Goal::Device(device.arch, ready.version))
    }

    /// What this library would compile an op from. Files are hashed only if a kernel folder is configured.
    ///
    /// # Errors
    /// Sources that cannot be read.
    pub fn sources_digest(&self, op: OpId) -> Result<Digest, Error> {
        let loaded = &self.ops[usize::from(op.0)];
        match (&self.config.kernels, loaded.committed) {
            (None, Some(committed)) => Ok(committed.sources),
            _ => Ok(self.sources(op)?.digest),
        }
    }

    /// The digest of the declaration of an op's parameters, as this library's launcher fills them.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn params_digest(&self, op: OpId) -> Result<Digest, Error> {
        let loaded = &self.ops[usize::from(op.0)];
        match (&self.config.kernels, &self.tree, loaded.committed) {
            (Some(_), Some(tree), _) => Ok(params_digest(tree, &loaded.op)?),
            (_, _, Some(committed)) => Ok(committed.params),
            _ => Err(Error::NoSources { uri: loaded.op.name.clone() }),
        }
    }

    /// The sources of an op.
    ///
    /// # Errors
    /// If there are none, or they cannot be read.
    pub fn sources(&self, op: OpId) -> Result<&OpSources, Error> {
        let loaded = &self.ops[usize::from(op.0)];
        let tree = self.tree.as_ref().ok_or_else(|| Error::NoSources { uri: loaded.op.name.clone() })?;
        Ok(loaded.sources.get_or_try_init(|| OpSources::read(tree, &loaded.op))?)
    }
}

/// The op of that name, or of that `family/name`.
fn find(ops: &[LoadedOp], name: &str) -> Result<OpId, Error> {
    let found = ops.iter().position(|o| o.op.name == name || o.op.path() == name);
    found.map(|i| OpId(i as u16)).ok_or_else(|| {
        let known: Vec<String> = ops.iter().map(|o| o.op.name.clone()).collect();
        let nearest = nearest(name, known.iter().map(String::as_str)).map(str::to_owned);
        Error::UnknownOp { given: name.to_owned(), nearest, known }
    })
}

/// The name of an op of this program, by its place in the manifest.
pub(crate) fn built_in_name(place: usize) -> &'static str {
    crate::modules::BINDINGS.get(place).map_or("", |b| b.op)
}

fn default_tactic(op: &Op, target: Target) -> std::collections::BTreeMap<String, u32> {
    let reached =
        op.default_tactics.iter().rfind(|d| target.arch().is_some_and(|a| d.since.arch().is_none_or(|s| s <= a)));
    reached.or(op.default_tactics.first()).map(|d| d.tactic.clone()).unwrap_or_default()
}

/// What the generated manifest says of an op.
#[derive(serde::Deserialize)]
struct ManifestOp {
    op: Op,
    sources: Digest,
    binding: Digest,
    params: Digest,
}

/// All ops: from the kernel folder if there is one and definitions can be parsed here, else from the manifest. Sources
/// are read when an op is used.
fn read_ops(folder: Option<&Path>, tree: Option<&KernelTree>) -> Result<Vec<LoadedOp>, Error> {
    #[derive(serde::Deserialize)]
    struct Manifest {
        ops: Vec<ManifestOp>,
    }
    let text = include_str!("../generated-manifest/ops.json");
    let manifest: Manifest = serde_json::from_str(text).expect("bug: generated-manifest/ops.json is damaged");
    let load = |op: Op, built: Option<&ManifestOp>| LoadedOp {
        committed: built.map(|m| Committed { sources: m.sources, binding: m.binding, params: m.params }),
        binding: crate::modules::BINDINGS.iter().find(|b| b.op == op.name),
        fresh: OnceCell::new(),
        sources: OnceCell::new(),
        signature: Signature::of(&op),
        op,
    };
    #[cfg(feature = "jit")]
    if let (Some(folder), Some(tree)) = (folder, tree) {
        let ops = parbake_codegen::registry::definitions(folder, tree).map_err(|e| Error::Definitions {
            code: e.code(),
            message: e.to_string(),
            cause: std::error::Error::source(&e).map(ToString::to_string),
        })?;
        let built = |op: &Op| manifest.ops.iter().find(|m| m.op.name == op.name);
        return Ok(ops.into_iter().map(|op| load(op.clone(), built(&op))).collect());
    }
    let _ = (folder, tree);
    Ok(manifest.ops.iter().map(|m| load(m.op.clone(), Some(m))).collect())
}
