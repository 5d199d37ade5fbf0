//! How long launches take: many of them between two marks, started as one graph where a graph can be made.
//!
//! Events are the driver's marks. Where computing is confidential they are no measure of time; the device's own clock is,
//! read by a kernel of one thread before and after.

use crate::code::{Code, Place, Stream};
use crate::driver::graph::Graph;
use crate::driver::{self, Current, Handle, Ready, confidential};
use crate::error::Error;
use crate::memory::{self, Event, Memory};
use crate::tactic::TacticError;
use cudarc::driver::sys;
use parbake_model::settings::{Config, TuneTimer};
use std::ffi::c_void;
use std::time::Instant;

/// Stores the device's clock, in nanoseconds. The driver compiles it: it is the same for every device.
const STAMP: &[u8] = b".version 7.0
.target sm_75
.address_size 64
.visible .entry parbake_stamp(.param .u64 out)
{
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u64 %rd3, %globaltimer;
    st.global.u64 [%rd2], %rd3;
    ret;
}
\0";

/// What marks are made with.
pub(crate) enum Timer {
    /// The clock of this process, for the host.
    Clock,
    Events(Gpu, [Event; 2]),
    /// The device's own clock, read by a kernel before and after.
    Stamped(Gpu, Stamps),
}

/// A device, and the stream that work goes to.
pub(crate) struct Gpu {
    ready: &'static Ready,
    ordinal: i32,
    stream: Stream,
}

/// The kernel that reads the clock, and where to.
pub(crate) struct Stamps {
    function: Handle,
    memory: Memory,
}

impl Timer {
    /// What measures at a place, by the settings.
    ///
    /// # Errors
    /// A timer that is not there; what the driver says.
    pub(crate) fn new(place: Place, config: &Config) -> Result<Self, Error> {
        let Place::Cuda(ordinal) = place else {
            return match config.tune_timer {
                TuneTimer::Auto => Ok(Self::Clock),
                _ => Err(TacticError::Timer {
                    what: "events and the device's clock are of GPUs".to_owned(),
                    expected: "auto on the host",
                }
                .into()),
            };
        };
        let (ready, _) = driver::device(ordinal)?;
        let gpu = Gpu { ready, ordinal, stream: memory::stream(place)? };
        let clock = match config.tune_timer {
            TuneTimer::Auto => confidential::is(config.confidential),
            asked => asked == TuneTimer::GlobalTimer,
        };
        if !clock {
            let _current = Current::enter(ready, ordinal)?;
            return Ok(Self::Events(gpu, [Event::new(ready, ordinal)?, Event::new(ready, ordinal)?]));
        }
        let Code::Cuda { function, .. } = Code::load_cuda(ready, ordinal, STAMP, "parbake_stamp")? else {
            unreachable!("bug: code of a device is of a device")
        };
        Ok(Self::Stamped(gpu, Stamps { function, memory: Memory::new(place, &[0; 16])? }))
    }

    /// Its name in results.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Clock => "clock",
            Self::Events(..) => "events",
            Self::Stamped(..) => "globaltimer",
        }
    }

    /// The stream that work has to go to.
    pub(crate) fn stream(&self) -> Stream {
        match self {
            Self::Clock => Stream::DEFAULT,
            Self::Events(gpu, _) | Self::Stamped(gpu, _) => gpu.stream,
        }
    }

    /// The work as a graph, if it can be one.
    pub(crate) fn graph(&self, work: impl FnOnce() -> Result<(), Error>) -> Option<Graph> {
        match self {
            Self::Clock => None,
            Self::Events(gpu, _) | Self::Stamped(gpu, _) => {
                let made = Graph::capture(gpu.ready, gpu.ordinal, gpu.stream, work);
                made.inspect_err(|error| tracing::info!(%error, "launches are measured without a graph")).ok()
            }
        }
    }

    /// Microseconds that the work takes, which goes to the timer's stream.
    ///
    /// # Errors
    /// What the work or the driver fails with; a clock that does not go on.
    pub(crate) fn time(&mut self, work: impl FnOnce() -> Result<(), Error>) -> Result<f64, Error> {
        match self {
            Self::Clock => {
                let start = Instant::now();
                work()?;
                Ok(start.elapsed().as_secs_f64() * 1e6)
            }
            Self::Events(gpu, [from, to]) => {
                let table = &gpu.ready.table;
                let _current = Current::enter(gpu.ready, gpu.ordinal)?;
                let mut milliseconds = 0f32;
                // SAFETY: events and stream live as long as the timer; plain out-parameters.
                unsafe {
                    table.check("cuEventRecord", (table.event_record)(from.handle, gpu.stream.0))?;
                    work()?;
                    table.check("cuEventRecord", (table.event_record)(to.handle, gpu.stream.0))?;
                    table.check("cuEventSynchronize", (table.event_synchronize)(to.handle))?;
                    let code = (table.event_elapsed)(&raw mut milliseconds, from.handle, to.handle);
                    table.check("cuEventElapsedTime", code)?;
                }
                Ok(f64::from(milliseconds) * 1e3)
            }
            Self::Stamped(gpu, stamps) => {
                stamps.mark(gpu, 0)?;
                work()?;
                stamps.mark(gpu, 8)?;
                let read = stamps.memory.read()?;
                let at = |i: usize| read[i..i + 8].iter().rev().fold(0u64, |n, byte| n << 8 | u64::from(*byte));
                match at(8).checked_sub(at(0)) {
                    Some(nanoseconds) if nanoseconds > 0 => Ok(nanoseconds as f64 / 1e3),
                    _ => Err(TacticError::Timer {
                        what: "the device's clock did not go on during a measurement".to_owned(),
                        expected: "events",
                    }
                    .into()),
                }
            }
        }
    }
}

impl Stamps {
    fn mark(&mut self, gpu: &Gpu, offset: usize) -> Result<(), Error> {
        let table = &gpu.ready.table;
        let _current = Current::enter(gpu.ready, gpu.ordinal)?;
        let mut address = self.memory.pointer() as u64 + offset as u64;
        let mut params = [(&raw mut address).cast::<c_void>()];
        let config = sys::CUlaunchConfig {
            gridDimX: 1,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 1,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            hStream: gpu.stream.0.cast(),
            attrs: std::ptr::null_mut(),
            numAttrs: 0,
        };
        // SAFETY: the kernel takes one address, of memory that the timer keeps; the driver copies what `params` points at.
        let code =
            unsafe { (table.launch)(&raw const config, self.function, params.as_mut_ptr(), std::ptr::null_mut()) };
        Ok(table.check("cuLaunchKernelEx", code)?)
    }
}
