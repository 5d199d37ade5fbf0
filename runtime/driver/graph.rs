//! Graphs: launches of a stream that are captured once and started together, without what each costs the processor.

use super::{Current, DriverError, Handle, Ready};
use crate::code::Stream;
use crate::error::Error;

/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`: what other threads do breaks no capture.
const THREAD_LOCAL: i32 = 1;

/// A graph that can be started.
pub(crate) struct Graph {
    ready: &'static Ready,
    ordinal: i32,
    executable: Handle,
}

impl Graph {
    /// Captures the launches of `work` on a stream, which is not the default one.
    ///
    /// # Errors
    /// What the work or the driver fails with; the stream is captured no more then.
    pub(crate) fn capture(
        ready: &'static Ready,
        ordinal: i32,
        stream: Stream,
        work: impl FnOnce() -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let table = &ready.table;
        let _current = Current::enter(ready, ordinal)?;
        let (mut graph, mut executable) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: a stream of ours; plain out-parameters; a graph is destroyed once, and not used after.
        unsafe {
            table.check("cuStreamBeginCapture", (table.begin_capture)(stream.0, THREAD_LOCAL))?;
            let done = work();
            let ended = table.check("cuStreamEndCapture", (table.end_capture)(stream.0, &raw mut graph));
            let made = done.and_then(|()| ended.map_err(Error::from)).and_then(|()| {
                let code = (table.graph_instantiate)(&raw mut executable, graph, 0);
                Ok(table.check("cuGraphInstantiate", code)?)
            });
            if !graph.is_null() {
                (table.graph_destroy)(graph);
            }
            made?;
        }
        Ok(Self { ready, ordinal, executable })
    }

    /// Starts it on a stream.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Safety
    /// The memory that its launches use is valid until the stream has passed it.
    pub(crate) unsafe fn launch(&self, stream: Stream) -> Result<(), DriverError> {
        let _current = Current::enter(self.ready, self.ordinal)?;
        // SAFETY: the caller vouches for the memory; the graph lives.
        let code = unsafe { (self.ready.table.graph_launch)(self.executable, stream.0) };
        self.ready.table.check("cuGraphLaunch", code)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if let Ok(_current) = Current::enter(self.ready, self.ordinal) {
            // SAFETY: made by `capture`, destroyed once.
            unsafe { (self.ready.table.graph_exec_destroy)(self.executable) };
        }
    }
}
