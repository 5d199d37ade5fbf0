//! One case: an op, its axes, shapes and scalars, run on random data at every place and compared with its reference.

use crate::common::World;
use parbake::model::space;
use parbake::trial::{Outcome, Trial};
use parbake::{Library, Place};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// The library of this process: what one test compiles, another loads.
pub(crate) fn library() -> &'static Library {
    static LIBRARY: OnceLock<(World, Library)> = OnceLock::new();
    let (_, library) = LIBRARY.get_or_init(|| {
        let world = World::new();
        let library = world.library();
        (world, library)
    });
    library
}

/// Every GPU; without one the host target, which is slow and takes the short lists only.
pub(crate) fn places() -> &'static [Place] {
    static PLACES: OnceLock<Vec<Place>> = OnceLock::new();
    PLACES.get_or_init(|| {
        let devices = parbake::driver::ready().map(|r| r.devices.as_slice()).unwrap_or_default();
        let devices: Vec<_> = devices.iter().map(|d| Place::Cuda(d.ordinal)).collect();
        if devices.is_empty() { vec![Place::Host] } else { devices }
    })
}

/// Whether the peers' whole lists of shapes are run: on a GPU, where `PARBAKE_TEST_FULL` asks for them. The references
/// take most of the time; `tests/gpu` has whole lists that are checked on the GPU itself.
pub(crate) fn gpu() -> bool {
    places() != [Place::Host] && std::env::var_os("PARBAKE_TEST_FULL").is_some()
}

/// A call on random data.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    op: String,
    axes: BTreeMap<String, String>,
    trial: BTreeMap<String, i64>,
    scalars: BTreeMap<String, f64>,
    with: Vec<String>,
    seed: u64,
    pad: i64,
    offset: usize,
    large: bool,
}

#[allow(dead_code, reason = "each family uses its own part")]
impl Case {
    /// The op with the sizes of its first example.
    pub(crate) fn new(op: &str) -> Self {
        let empty = BTreeMap::new();
        Self {
            op: op.to_owned(),
            axes: empty,
            trial: BTreeMap::new(),
            scalars: BTreeMap::new(),
            with: Vec::new(),
            seed: 1,
            pad: 0,
            offset: 0,
            large: false,
        }
    }
    /// A value of an axis.
    pub(crate) fn axis(mut self, name: &str, value: &str) -> Self {
        self.axes.insert(name.to_owned(), value.to_owned());
        self
    }
    /// Values of shape symbols.
    pub(crate) fn dims(mut self, dims: &[(&str, i64)]) -> Self {
        self.trial.extend(dims.iter().map(|(n, v)| ((*n).to_owned(), *v)));
        self
    }
    /// The value of a scalar.
    pub(crate) fn scalar(mut self, name: &str, value: f64) -> Self {
        self.scalars.insert(name.to_owned(), value);
        self
    }
    /// With an optional tensor.
    pub(crate) fn with(mut self, name: &str) -> Self {
        self.with.push(name.to_owned());
        self
    }
    /// Other random data.
    pub(crate) fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }
    /// Elements between rows, and before the first.
    pub(crate) fn strided(mut self, pad: i64, offset: usize) -> Self {
        (self.pad, self.offset) = (pad, offset);
        self
    }
    /// Only on GPUs, and in full runs.
    pub(crate) fn large(mut self) -> Self {
        self.large = true;
        self
    }

    fn trial(&self, library: &Library) -> Trial {
        let def = library.definition(library.op(&self.op).unwrap());
        let mut trial = Trial::example(def, self.axes.clone());
        trial.dims.extend(self.trial.clone());
        trial.scalars.extend(self.scalars.clone());
        trial.with = self.with.iter().cloned().collect();
        (trial.seed, trial.pad, trial.offset) = (self.seed, self.pad, self.offset);
        trial.derive(def);
        trial
    }

    /// The op's name.
    pub(crate) fn op(&self) -> &str {
        &self.op
    }

    /// Whether it has tiles of scales, which are dense.
    pub(crate) fn tiled(&self) -> bool {
        self.scalars.get("layout").is_some_and(|layout| *layout < 2.0) || self.op == "block_scale_interleave"
    }

    /// Runs it at one place by some library.
    pub(crate) fn try_by(&self, library: &Library, place: Place) -> Result<Outcome, parbake::Error> {
        self.trial(library).run(library, library.op(&self.op).unwrap(), place)
    }

    /// Runs it at one place; nothing if the combination does not exist there.
    pub(crate) fn run_at(&self, place: Place) -> Option<Outcome> {
        let library = library();
        let op = library.op(&self.op).unwrap();
        let trial = self.trial(library);
        let target = library.goal(place).unwrap().target();
        let axes: Vec<_> = trial.axes.iter().map(|(n, v)| (n.clone(), v.clone())).collect();
        let spec = library.spec(op, &axes, target).unwrap();
        let def = library.definition(op);
        // Tactics are the launcher's business: the combination of axes exists if some spec does.
        let exists = space::specs(def).any(|(s, _)| s.axes == spec.axes && space::check(def, &s, Some(target)).is_ok());
        let fails = |e: parbake::Error| -> Outcome { panic!("{self:?} at {place}: {}", e.report()) };
        exists.then(|| trial.run(library, op, place).unwrap_or_else(fails))
    }

    /// Runs it everywhere; it must be right, and exist somewhere.
    pub(crate) fn check(&self) {
        if self.large && !gpu() {
            return;
        }
        for &place in places() {
            if let Some(outcome) = self.run_at(place) {
                assert!(outcome.ok, "{self:?} at {place}: {outcome:#?}");
            }
        }
    }
}

/// Cross product: `for_each!` without a macro.
#[allow(dead_code, reason = "each family uses its own part")]
pub(crate) fn pairs<'a, A: Copy, B: Copy>(a: &'a [A], b: &'a [B]) -> impl Iterator<Item = (A, B)> + 'a {
    a.iter().flat_map(move |a| b.iter().map(move |b| (*a, *b)))
}
