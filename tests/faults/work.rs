//! What a worker does.

use parbake::model::Target;
use parbake::model::identity::Profile;
use parbake::model::op::Op;
use parbake::model::settings::Config;
use parbake::{Error, Goal, Library, Place};
use parbake_codegen::artifact::Made;
use parbake_codegen::baking::{self, Packing};
use std::path::Path;
use std::time::Duration;

/// Twelve kernels, by number.
pub(crate) fn key(number: usize) -> (&'static str, Vec<(String, String)>) {
    let op = ["rmsnorm", "fused_add_rmsnorm"][number % 2];
    let dtype = ["f32", "f16", "bf16"][number / 2 % 3];
    let (block, rows) = [("128", "8"), ("512", "1")][number / 6 % 2];
    let values = [("dtype", dtype), ("block", block), ("rows", rows), ("vec", "16"), ("peel", "0")];
    (op, values.map(|(name, value)| (name.to_owned(), value.to_owned())).into())
}

/// What came of a kernel: where it came from, or code and text of the error.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Answer {
    pub(crate) from: Option<String>,
    pub(crate) code: String,
    pub(crate) report: String,
}

impl Answer {
    fn of(result: Result<String, Error>) -> Self {
        let report = result.as_ref().err().map(Error::report);
        Self {
            code: report.as_ref().map_or(String::new(), |r| r.code.to_string()),
            report: report.map_or(String::new(), |r| r.to_string()),
            from: result.ok(),
        }
    }
}

fn load(library: &Library, number: usize) -> Answer {
    let (op, values) = key(number);
    let load = || {
        let op = library.op(op)?;
        let spec = library.spec(op, &values, Target::Host)?;
        library.kernel(op, &spec, Place::Host).map(|(_, origin)| origin.to_string())
    };
    Answer::of(load())
}

/// Compiles for a GPU; nothing is loaded.
fn obtain(library: &Library, number: usize, target: &str) -> Answer {
    let (op, values) = key(number);
    let target: Target = target.parse().unwrap();
    let toolchain = match library.toolchain(target, None) {
        Ok(toolchain) => toolchain,
        Err(report) => {
            return Answer { from: None, code: report.code.to_string(), report: report.to_string() };
        }
    };
    let obtain = || {
        let op = library.op(op)?;
        let spec = library.spec(op, &values, target)?;
        library.obtain(op, &spec, target, &*toolchain, Profile::Release).map(|(_, origin)| origin.to_string())
    };
    Answer::of(obtain())
}

/// Bakes one kernel for the host target into a bundle.
fn bake(library: &Library, number: usize, path: &str) -> Answer {
    let (op, values) = key(number);
    let bake = || -> Result<String, Error> {
        let id = library.op(op)?;
        let spec = library.spec(id, &values, Target::Host)?;
        let toolchain = library.toolchain(Target::Host, None).unwrap();
        let (artifact, origin) = library.obtain(id, &spec, Target::Host, &*toolchain, Profile::Release)?;
        let ops = library.ops().map(|(_, op)| op);
        let mut plan = baking::plan(ops, op, &baking::Only::new(), &[Target::Host]).unwrap();
        plan.jobs.retain(|job| job.spec.uri == spec.uri);
        let made = Made { bytes: artifact.bytes, metadata: artifact.metadata };
        let params = |op: &Op| library.op(&op.name).and_then(|id| library.params_digest(id)).map_err(|e| e.report());
        let packer = |_, _| unreachable!("bug: shared objects are packed as they are");
        std::fs::write(
            path,
            baking::pack(
                &plan,
                vec![made],
                &Packing { params: &params, nvfatbin: &packer, level: 3, threads: 1, keep: None },
            )
            .unwrap(),
        )
        .unwrap();
        Ok(origin.to_string())
    };
    Answer::of(bake())
}

/// Waits until all workers of a race are ready: each leaves a file, and the test then leaves `go`.
fn line_up() {
    let Ok(folder) = std::env::var("PARBAKE_TEST_START") else { return };
    std::fs::write(Path::new(&folder).join(format!("ready-{}", std::process::id())), "").unwrap();
    while !Path::new(&folder).join("go").exists() {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// `load 0,1,2 [times N | threads N | libraries N]`, `obtain 0 sm_90a` or `bake 0 FILE`.
pub(crate) fn run(job: &str) {
    let level = std::env::var("PARBAKE_TEST_LOG").map_or(tracing::Level::DEBUG, |level| level.parse().unwrap());
    tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).init();
    let words: Vec<&str> = job.split(' ').collect();
    let keys: Vec<usize> = words[1].split(',').map(|n| n.parse().unwrap()).collect();
    let count: usize = words.get(3).map_or(1, |n| n.parse().unwrap_or(1));
    let open = || Library::open(Config::from_env().unwrap()).unwrap();
    let library = open();
    if words[0] == "obtain" {
        return answer(&obtain(&library, keys[0], words[2]));
    }
    if words[0] == "bake" {
        return answer(&bake(&library, keys[0], words[2]));
    }
    // Finding the compiler takes longer than a fake compilation, and may fail.
    let _ = library.toolchain_for(Goal::Host);
    line_up();
    match words.get(2) {
        Some(&"threads") => {
            let barrier = std::sync::Barrier::new(count);
            let one = |_| {
                barrier.wait();
                load(&library, keys[0])
            };
            in_threads(count, &one);
        }
        Some(&"libraries") => in_threads(count, &|_| load(&open(), keys[0])),
        _ => {
            for _ in 0..count {
                keys.iter().for_each(|key| answer(&load(&library, *key)));
            }
        }
    }
}

fn in_threads(count: usize, one: &(dyn Fn(usize) -> Answer + Sync)) {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|i| scope.spawn(move || one(i))).collect();
        threads.into_iter().for_each(|thread| answer(&thread.join().unwrap()));
    });
}

fn answer(answer: &Answer) {
    println!("\nANSWER {}", serde_json::to_string(answer).unwrap());
}
