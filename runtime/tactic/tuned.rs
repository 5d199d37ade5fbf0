//! Tuned results in use. They are read when the library opens, and judged when a place is first asked about: what was
//! measured on another machine, or of another artifact, is named and not used.

use super::{TacticError, machine, read};
use crate::binding::{MAX_TACTICS, Tactic};
use crate::code::{Kernel, Place};
use crate::error::Error;
use crate::goal::Goal;
use crate::library::{Library, OpId};
use parbake_model::identity::Spec;
use parbake_model::tuned::{MAX_BYTES, Machine, Tuned, Tuning, bucket};
use parbake_model::{Digest, Toolkit};
use serde::Serialize;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// What a result is worth at a place.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Verdict {
    /// The file.
    pub file: PathBuf,
    /// The result, as a person writes it.
    pub result: String,
    /// The device that it was measured on.
    pub device: String,
    /// What it measured, in microseconds.
    pub median_us: f64,
    /// Why it is not used; none if it is.
    pub unfit: Option<String>,
}

/// A result that is used.
#[derive(Debug)]
pub(crate) struct Hit {
    axes: Vec<usize>,
    /// In the op's order, as [`bucket`] has them.
    dims: Vec<i64>,
    pub(crate) tactic: Tactic,
    image: Digest,
    toolkit: Option<Toolkit>,
    words: String,
    /// Set once the kernel proves to be another artifact.
    spoiled: AtomicBool,
}

impl Hit {
    /// Whether the kernel is what was measured; it is said once if it is not, and the result is not used again.
    pub(crate) fn is_of(&self, kernel: &Kernel) -> bool {
        if kernel.image == self.image {
            return true;
        }
        if !self.spoiled.swap(true, Ordering::Relaxed) {
            let by = |toolkit: Option<Toolkit>| toolkit.map_or(String::new(), |t| format!(" (CUDA {t})"));
            let measured = format!("{}{}", self.image.short(12), by(self.toolkit));
            let here = format!("{}{}", kernel.image.short(12), by(kernel.toolkit));
            tracing::warn!(result = self.words, measured, here, "a tuned result is not used: it is of another image");
        }
        false
    }
}

/// Results that fit a place, by op.
type Table = HashMap<OpId, Vec<Arc<Hit>>>;

/// All results, and what they are worth where.
#[derive(Debug, Default)]
pub(crate) struct TunedResults {
    results: Vec<(PathBuf, Tuning)>,
    places: RwLock<HashMap<Place, Arc<Table>>>,
}

impl TunedResults {
    /// Reads all of the files.
    pub(crate) fn read(files: &[PathBuf]) -> Result<Self, TacticError> {
        let mut all = Self::default();
        for path in files {
            let tuned = Tuned::from_json(&read(path, MAX_BYTES)?);
            let tuned = tuned.map_err(|source| TacticError::Tuned { path: path.clone(), source })?;
            all.results.extend(tuned.results.into_iter().map(|t| (path.clone(), t)));
        }
        Ok(all)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.results.is_empty()
    }
}

impl Library {
    /// The tuned result for a call, if there is one that fits.
    pub(crate) fn tuned_for(
        &self,
        op: OpId,
        axes: &[usize],
        dims: &[i64],
        place: Place,
        goal: Goal,
    ) -> Result<Option<Arc<Hit>>, Error> {
        let known = self.tuned.places.read().unwrap_or_else(PoisonError::into_inner).get(&place).cloned();
        let table = match known {
            Some(table) => table,
            None => self.judge(place, goal)?,
        };
        let Some(hits) = table.get(&op) else { return Ok(None) };
        let def = self.definition(op);
        let same = |hit: &&Arc<Hit>| {
            let mut extents = def.dims.iter().zip(dims).zip(&hit.dims);
            hit.axes == axes && extents.all(|((d, extent), kept)| bucket(def, &d.name, *extent) == *kept)
        };
        Ok(hits.iter().find(same).filter(|hit| !hit.spoiled.load(Ordering::Relaxed)).cloned())
    }

    /// What each tuned result is worth at a place. Whether the image is the one that was measured shows when it is loaded.
    ///
    /// # Errors
    /// If there is no such device; sources that cannot be read.
    pub fn tuned(&self, place: Place) -> Result<Vec<Verdict>, Error> {
        let here = machine(place, self.goal(place)?)?;
        let verdict = |(file, tuning): &(PathBuf, Tuning)| Verdict {
            file: file.clone(),
            result: tuning.to_string(),
            device: tuning.machine.device.clone(),
            median_us: tuning.timing.median_us,
            unfit: self.hit_of(tuning, &here).err(),
        };
        Ok(self.tuned.results.iter().map(verdict).collect())
    }

    fn judge(&self, place: Place, goal: Goal) -> Result<Arc<Table>, Error> {
        let here = machine(place, goal)?;
        let mut table = Table::new();
        for (file, tuning) in &self.tuned.results {
            match self.hit_of(tuning, &here) {
                Ok((op, hit)) => table.entry(op).or_default().push(Arc::new(hit)),
                // A file may hold the results of a whole fleet.
                Err(why) if tuning.machine.device != here.device => {
                    tracing::debug!(result = %tuning, file = %file.display(), why, "a tuned result is not used");
                }
                Err(why) => {
                    tracing::warn!(result = %tuning, file = %file.display(), why, "a tuned result is not used");
                }
            }
        }
        let table = Arc::new(table);
        self.tuned.places.write().unwrap_or_else(PoisonError::into_inner).insert(place, table.clone());
        Ok(table)
    }

    /// A result as calls look for it, or why it does not fit.
    fn hit_of(&self, tuning: &Tuning, here: &Machine) -> Result<(OpId, Hit), String> {
        let was = &tuning.machine;
        let text = |driver: &Option<String>| driver.clone().unwrap_or_else(|| "none".to_owned());
        for (what, was, is) in [
            ("on", was.device.clone(), here.device.clone()),
            ("for", was.target.to_string(), here.target.to_string()),
            ("under driver", text(&was.driver), text(&here.driver)),
            ("with library", was.library.clone(), here.library.clone()),
        ] {
            if was != is {
                return Err(format!("measured {what} {was}; here it is {is}"));
            }
        }
        let op = self.op(&tuning.op).map_err(|e| e.to_string())?;
        let def = self.definition(op);
        let values: Vec<(String, String)> = tuning.axes.to_vec();
        let tactic = tuning.tactic.iter().map(|(name, value)| (name.clone(), value.to_string()));
        let spec = self.spec(op, &values.into_iter().chain(tactic).collect::<Vec<_>>(), here.target);
        let spec = spec.map_err(|e| e.to_string())?;
        if spec.spec_id != tuning.artifact.spec_id {
            return Err("the op has other options now".to_owned());
        }
        let sources = self.sources_digest(op).map_err(|e| e.to_string())?;
        if spec.source_key(def, sources).digest != tuning.artifact.source_key {
            return Err("the kernel's sources are others now".to_owned());
        }
        let extent = |d: &parbake_model::op::Dim| tuning.dims.get(&d.name).map(|n| bucket(def, &d.name, *n));
        let dims = def.dims.iter().map(extent).collect::<Option<Vec<_>>>();
        let dims = dims.ok_or_else(|| "the op has other shape symbols now".to_owned())?;
        Ok((op, self.hit_with(op, &spec, dims, tuning)?))
    }

    fn hit_with(&self, op: OpId, spec: &Spec, dims: Vec<i64>, tuning: &Tuning) -> Result<Hit, String> {
        let axes = self.axis_places(op, spec).map_err(|e| e.to_string())?;
        let axes = axes.ok_or_else(|| "the op has no such value of an axis".to_owned())?;
        let mut tactic = Tactic([0; MAX_TACTICS]);
        tactic.0.iter_mut().zip(&spec.tactic).for_each(|(place, (_, value))| *place = *value);
        Ok(Hit {
            axes,
            dims,
            tactic,
            image: tuning.artifact.image,
            toolkit: tuning.artifact.toolkit,
            words: tuning.to_string(),
            spoiled: AtomicBool::new(false),
        })
    }
}
