//! `parbake worker`: what a bake runs to compile. It speaks lines of JSON, and nobody types it.

use crate::output::{Failure, Output};
use parbake::{Library, Place, Site};
use parbake_codegen::baking::pool::{Answer, Request, Unit};
use parbake_codegen::toolchain::memory;
use parbake_model::VERSION;
use parbake_model::lock::{self, Lock};
use parbake_model::report::{Class, Report};
use parbake_model::settings::Config;
use std::io::{BufRead, Write};

/// Compiles what it is told on standard input, a line of JSON for each unit; `parbake build` starts it.
///
///   parbake worker </dev/null
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: Args, config: Config, _: Output) -> Result<(), Failure> {
    let library = Library::open(config.without_bundles())?;
    let mut out = std::io::stdout().lock();
    let mut say = |answer: &Answer| {
        let line = serde_json::to_string(answer).expect("bug: an answer is plain data") + "\n";
        out.write_all(line.as_bytes()).and_then(|()| out.flush())
    };
    // Whoever started it may be gone; then there is nothing left to do.
    let mut gone = say(&Answer::Ready).is_err();
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        if gone {
            break;
        }
        let answer = match serde_json::from_str::<Request>(&line) {
            Ok(request) => make(&library, request).map_or_else(Answer::Failed, Answer::Made),
            Err(why) => Answer::Failed(Box::new(
                Report::new("PB-1151", Class::Usage, "a worker does not understand what it is asked for")
                    .caused_by(why),
            )),
        };
        gone = say(&answer).is_err();
    }
    Ok(())
}

fn make(library: &Library, request: Request) -> Result<Box<Unit>, Box<Report>> {
    let Request { spec, target, toolkit, profile, scratch } = request;
    let lock = Lock { schema: lock::SCHEMA, library: VERSION.to_owned(), targets: Vec::new(), specs: vec![spec] };
    let wanted = library.locked(&lock, &[Site::Place(Place::Host)]).map_err(|e| Box::new(e.report()))?;
    let wanted = &wanted[0];
    memory::forget_peak();
    let language = library.definition(wanted.op).language;
    let toolchain = library.toolchain_of(language, target, toolkit)?;
    let made = library.obtain(wanted.op, &wanted.spec, target, &*toolchain, profile);
    let (artifact, origin) = made.map_err(|e| Box::new(e.report()))?;
    let file = match &artifact.path {
        Some(folder) => folder.join(&artifact.metadata.file),
        None => {
            let file = scratch.join(artifact.metadata.build_key.to_string());
            super::build::write(&file, &artifact.bytes)?;
            file
        }
    };
    let peak_kib = memory::resident_kib("self").map_or(0, |memory| memory.peak);
    let compiled = origin != parbake::decision::Origin::Store;
    Ok(Box::new(Unit { metadata: artifact.metadata, file, compiled, peak_kib }))
}
