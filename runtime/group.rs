//! Memory that the ranks of a group reach: a pool for each of them, for the collectives.
//!
//! A rank makes a [`Pool`] and gives its handle to the others, by whatever channel they have; with the handles of all it
//! opens the others' pools. Ranks may be processes of one host, or threads of one process. A pool is allocated here and
//! not taken from a framework, whose allocator may use memory that the driver shares with nobody.

use crate::code::Place;
use crate::driver::{self, Current, DriverError, IpcHandle};
use crate::error::Error;
use crate::memory::Memory;
use once_cell::sync::Lazy;
use parbake_model::Digest;
use parbake_model::report::{Class, Report};
use std::ffi::c_int;
use std::hash::{BuildHasher, Hasher, RandomState};

/// The most ranks of a group.
pub const MAX_RANKS: usize = 8;
/// Bytes of a handle.
pub const HANDLE_BYTES: usize = 160;

const MAGIC: &[u8; 8] = b"PBPOOL01";
/// What the driver shares between processes are whole blocks of so many bytes.
const BLOCK: usize = 2 << 20;
/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`.
const LAZY_PEER_ACCESS: u32 = 1;
const PEER_ALREADY_ENABLED: c_int = 704;

/// Why ranks cannot share a pool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    /// Handles, ranks or sizes that do not go together.
    #[error("the pools of a group do not go together: {what}")]
    Unfit {
        /// What is wrong.
        what: String,
        /// What was expected.
        expected: String,
        /// What came.
        got: String,
    },
    /// A rank of another host, or of another process where memory is that of one.
    #[error("rank {rank} is out of reach: {why}")]
    Apart {
        /// The rank.
        rank: usize,
        /// Where it is.
        why: &'static str,
    },
    /// The driver says that one GPU cannot reach the other.
    #[error("device {device} cannot reach the memory of rank {rank}, on device {peer}")]
    NoAccess {
        /// The rank.
        rank: usize,
        /// This rank's device.
        device: i32,
        /// The other's.
        peer: i32,
    },
    /// The driver shares the memory with no other process.
    #[error("the pool of rank {rank} cannot be shared with another process")]
    NotShared {
        /// The rank.
        rank: usize,
        /// What the driver said.
        #[source]
        source: DriverError,
    },
}

impl GroupError {
    /// For a person.
    #[must_use]
    pub fn report(&self) -> Report {
        let new = |code, class| Report::new(code, class, self.to_string());
        let elsewhere = "NCCL is for such groups: torch.distributed, for one";
        match self {
            Self::Unfit { expected, got, .. } => new("PB-2160", Class::Usage)
                .with("expected", expected)
                .with("got", got)
                .help("every rank makes a pool of the same size, and opens the handles of all ranks in the order of ranks"),
            Self::Apart { .. } => new("PB-2161", Class::Environment).help(elsewhere),
            Self::NoAccess { .. } => new("PB-2162", Class::Environment)
                .help(format!("see `nvidia-smi topo -p2p r`, and whether a virtual machine or an IOMMU is between; {elsewhere}")),
            Self::NotShared { source, .. } => new("PB-2163", Class::Environment).caused_by(source).help(format!(
                "containers need one IPC namespace (--ipc=host), and each rank needs to see all GPUs; {elsewhere}"
            )),
        }
    }
}

/// Tells processes apart, also those of containers, whose numbers may be the same.
fn process() -> [u8; 16] {
    static TOKEN: Lazy<[u8; 16]> = Lazy::new(|| {
        let half = || RandomState::new().build_hasher().finish().to_le_bytes();
        let mut token = [0; 16];
        token[..8].copy_from_slice(&half());
        token[8..].copy_from_slice(&half());
        token
    });
    *TOKEN
}

/// Tells hosts apart: the same for all containers of one. None if the system does not say.
fn host() -> Option<[u8; 16]> {
    let id = std::fs::read("/proc/sys/kernel/random/boot_id").ok()?;
    let mut found = [0; 16];
    found.copy_from_slice(&Digest::of(&id).0[..16]);
    Some(found)
}

/// What ranks tell each other of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Handle {
    bytes: u64,
    address: u64,
    /// −1 for the host.
    ordinal: i32,
    /// What the driver said when it was asked for the handle between processes.
    shared: i32,
    process: [u8; 16],
    host: Option<[u8; 16]>,
    device: [u8; 16],
    ipc: [u8; 64],
}

/// The next bytes of a handle.
fn take<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let (head, tail) = rest.split_at(N);
    *rest = tail;
    head.try_into().expect("bug: it was split there")
}

impl Handle {
    fn write(&self) -> Vec<u8> {
        let mut text = MAGIC.to_vec();
        text.extend(self.bytes.to_le_bytes());
        text.extend(self.address.to_le_bytes());
        text.extend(self.ordinal.to_le_bytes());
        text.extend(self.shared.to_le_bytes());
        text.extend(self.process);
        text.extend(self.host.unwrap_or_default());
        text.extend(self.device);
        text.extend(self.ipc);
        text.resize(HANDLE_BYTES, 0);
        text
    }
    fn read(text: &[u8]) -> Option<Self> {
        let mut rest = (text.len() == HANDLE_BYTES && text.starts_with(MAGIC)).then(|| &text[8..])?;
        Some(Self {
            bytes: u64::from_le_bytes(take(&mut rest)),
            address: u64::from_le_bytes(take(&mut rest)),
            ordinal: i32::from_le_bytes(take(&mut rest)),
            shared: i32::from_le_bytes(take(&mut rest)),
            process: take(&mut rest),
            host: Some(take(&mut rest)).filter(|h| *h != [0; 16]),
            device: take(&mut rest),
            ipc: take(&mut rest),
        })
    }
}

/// The pool of one rank, and those of the others that it has opened. What was opened is closed, and the memory freed, when it
/// is dropped: after the work of all ranks with it is done.
pub struct Pool {
    place: Place,
    /// Freed with the pool.
    _memory: Memory,
    handle: Handle,
    opened: Vec<u64>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("place", &self.place).field("handle", &self.handle).finish_non_exhaustive()
    }
}

impl Pool {
    /// Allocates zeroed memory at a place, aligned to 256 bytes.
    ///
    /// # Errors
    /// No such device, no room; during the capture of a stream, which an allocation would break.
    pub fn new(place: Place, bytes: usize) -> Result<Self, Error> {
        // Nothing else is to lie in what is shared.
        let room = if place == Place::Host { bytes } else { bytes.next_multiple_of(BLOCK) };
        let mut memory = Memory::new(place, &vec![0; room])?;
        let mut handle = Handle {
            bytes: bytes as u64,
            address: memory.pointer() as u64,
            ordinal: -1,
            shared: 0,
            process: process(),
            host: host(),
            device: [0; 16],
            ipc: [0; 64],
        };
        if let Place::Cuda(ordinal) = place {
            let (ready, _) = driver::device(ordinal)?;
            let _current = Current::enter(ready, ordinal)?;
            handle.ordinal = ordinal;
            handle.device = driver::uuid(ready, ordinal)?;
            let mut ipc = IpcHandle([0; 64]);
            // SAFETY: a plain out-parameter, and memory that was just allocated. Only other processes need it: what it fails with
            // is told where one of them wants it.
            handle.shared = unsafe { (ready.table.ipc_get)(&raw mut ipc, handle.address) };
            handle.ipc = ipc.0;
            // The zeros are there before anybody else can write.
            // SAFETY: the context is current.
            ready.table.check("cuCtxSynchronize", unsafe { (ready.table.synchronize)() })?;
        }
        Ok(Self { place, _memory: memory, handle, opened: Vec::new() })
    }

    /// Its first byte.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.handle.address
    }

    /// How many bytes it has.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.handle.bytes
    }

    /// What the other ranks open it by: [`HANDLE_BYTES`] bytes.
    #[must_use]
    pub fn handle(&self) -> Vec<u8> {
        self.handle.write()
    }

    /// Opens the pools of the other ranks, and gives the addresses of all as this rank sees them.
    ///
    /// # Errors
    /// Handles that are none, of pools of another size, or without this one at its rank; ranks on other hosts; a GPU that this
    /// one does not reach; memory that the driver does not share. Nothing is left open then.
    pub fn open(&mut self, rank: usize, handles: &[Vec<u8>]) -> Result<Vec<u64>, Error> {
        let unfit =
            |what: String, expected: String, got: String| Err(Error::Group(GroupError::Unfit { what, expected, got }));
        let count = handles.len();
        if !(1..=MAX_RANKS).contains(&count) || rank >= count {
            return unfit(
                "ranks".to_owned(),
                format!("1 to {MAX_RANKS} ranks, this one among them"),
                format!("rank {rank} of {count}"),
            );
        }
        let mut read = Vec::new();
        for (r, handle) in handles.iter().enumerate() {
            match Handle::read(handle) {
                Some(handle) => read.push(handle),
                None => {
                    return unfit(
                        format!("the handle of rank {r}"),
                        format!("{HANDLE_BYTES} bytes that a pool of this version gave"),
                        format!("{} bytes", handle.len()),
                    );
                }
            }
        }
        if read[rank] != self.handle {
            return unfit(format!("the handle of rank {rank}"), "that of this pool".to_owned(), "another".to_owned());
        }
        if let Some(r) = read.iter().position(|h| h.bytes != self.handle.bytes) {
            return unfit(
                format!("the pool of rank {r}"),
                format!("{} bytes, as here", self.handle.bytes),
                format!("{} bytes", read[r].bytes),
            );
        }
        self.close();
        let addresses: Result<Vec<u64>, Error> =
            read.iter().enumerate().map(|(r, handle)| self.reach(r, handle)).collect();
        if addresses.is_err() {
            self.close();
        }
        addresses
    }

    /// The address of a rank's pool as this one sees it.
    fn reach(&mut self, rank: usize, handle: &Handle) -> Result<u64, Error> {
        let apart = |why| Err(Error::Group(GroupError::Apart { rank, why }));
        if *handle == self.handle {
            return Ok(handle.address);
        }
        if handle.host.is_some() && self.handle.host.is_some() && handle.host != self.handle.host {
            return apart("it is on another host");
        }
        let same = handle.process == self.handle.process;
        let Place::Cuda(ordinal) = self.place else {
            return match (same, handle.ordinal) {
                (true, -1) => Ok(handle.address),
                (true, _) => apart("its pool is in the memory of a GPU, and this one in that of the CPU"),
                _ => apart("pools in the memory of the CPU are for the threads of one process"),
            };
        };
        if handle.ordinal < 0 {
            return apart("its pool is in the memory of the CPU, and this one in that of a GPU");
        }
        let (ready, _) = driver::device(ordinal)?;
        let table = &ready.table;
        let _current = Current::enter(ready, ordinal)?;
        // In another process its GPU may have another number, or none.
        let peer = match same {
            true => Some(handle.ordinal),
            false => {
                ready.devices.iter().map(|d| d.ordinal).find(|o| driver::uuid(ready, *o).ok() == Some(handle.device))
            }
        };
        if let Some(peer) = peer.filter(|peer| *peer != ordinal)
            && !driver::can_access(ready, ordinal, peer)?
        {
            return Err(Error::Group(GroupError::NoAccess { rank, device: ordinal, peer }));
        }
        if same {
            if handle.ordinal != ordinal {
                let context = driver::primary(ready, handle.ordinal)?;
                // SAFETY: the retained context of a device that can be reached.
                let code = unsafe { (table.peer_enable)(context, 0) };
                if code != PEER_ALREADY_ENABLED {
                    table.check("cuCtxEnablePeerAccess", code)?;
                }
            }
            return Ok(handle.address);
        }
        let shared = |source| Error::Group(GroupError::NotShared { rank, source });
        table.check("cuIpcGetMemHandle", handle.shared).map_err(shared)?;
        let mut address = 0;
        // SAFETY: a plain out-parameter, and a handle that the driver gave to the other process.
        let code = unsafe { (table.ipc_open)(&raw mut address, IpcHandle(handle.ipc), LAZY_PEER_ACCESS) };
        table.check("cuIpcOpenMemHandle", code).map_err(shared)?;
        self.opened.push(address);
        Ok(address)
    }

    /// Closes what was opened.
    fn close(&mut self) {
        let opened = std::mem::take(&mut self.opened);
        if let (Place::Cuda(ordinal), false) = (self.place, opened.is_empty())
            && let Ok((ready, _)) = driver::device(ordinal)
            && let Ok(_current) = Current::enter(ready, ordinal)
        {
            for address in opened {
                // SAFETY: opened by `reach`, closed once.
                unsafe { (ready.table.ipc_close)(address) };
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pools(count: usize) -> (Vec<Pool>, Vec<Vec<u8>>) {
        let pools: Vec<_> = (0..count).map(|_| Pool::new(Place::Host, 4096).unwrap()).collect();
        let handles = pools.iter().map(Pool::handle).collect();
        (pools, handles)
    }

    #[test]
    fn threads_of_a_process_see_each_others_pools() {
        let (mut pools, handles) = pools(3);
        let own: Vec<u64> = pools.iter().map(Pool::address).collect();
        for (rank, pool) in pools.iter_mut().enumerate() {
            assert_eq!(pool.open(rank, &handles).unwrap(), own);
            // SAFETY: the pool is alive, and as long as it says.
            let bytes = unsafe { std::slice::from_raw_parts(pool.address() as *const u8, pool.bytes() as usize) };
            assert!(bytes.len() == 4096 && bytes.iter().all(|b| *b == 0));
        }
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        let (mut pools, handles) = pools(2);
        let mut code = |rank, handles: &[Vec<u8>]| {
            let report = pools[0].open(rank, handles).unwrap_err().report();
            (report.code, report.to_string())
        };
        let refused =
            |(code, text): (&str, String), part: &str| assert!(code == "PB-2160" && text.contains(part), "{text}");
        refused(code(0, &[]), "rank 0 of 0");
        refused(code(2, &handles), "rank 2 of 2");
        refused(code(1, &handles), "that of this pool");
        refused(code(0, &[handles[0].clone(), vec![1; 7]]), "7 bytes");
        let other = Pool::new(Place::Host, 8192).unwrap().handle();
        refused(code(0, &[handles[0].clone(), other]), "8192 bytes");

        let changed = |change: fn(&mut Handle)| {
            let mut handle = Handle::read(&handles[1]).unwrap();
            change(&mut handle);
            handle.write()
        };
        let far = code(0, &[handles[0].clone(), changed(|h| h.host = Some([7; 16]))]);
        assert!(far.0 == "PB-2161" && far.1.contains("another host") && far.1.contains("NCCL"), "{}", far.1);
        let process = code(0, &[handles[0].clone(), changed(|h| h.process = [7; 16])]);
        assert!(process.0 == "PB-2161" && process.1.contains("threads of one process"), "{}", process.1);
        let gpu = code(0, &[handles[0].clone(), changed(|h| h.ordinal = 0)]);
        assert!(gpu.0 == "PB-2161" && gpu.1.contains("memory of a GPU"), "{}", gpu.1);
    }
}
