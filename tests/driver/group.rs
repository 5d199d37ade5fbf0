//! Pools of a group: what the driver is asked for, and what is said where it refuses.

use super::calls;
use crate::fake::{Machine, setting};
use parbake::group::Pool;
use parbake::{Error, Place};

/// A pool on each device, as ranks of one process have them.
fn pools(devices: &[i32]) -> (Vec<Pool>, Vec<Vec<u8>>) {
    let pools: Vec<_> = devices.iter().map(|d| Pool::new(Place::Cuda(*d), 4096).unwrap()).collect();
    let handles = pools.iter().map(Pool::handle).collect();
    (pools, handles)
}

/// As if a pool were of another process: what tells processes apart is changed.
fn of_another_process(handle: &[u8]) -> Vec<u8> {
    let mut handle = handle.to_vec();
    handle[32..48].fill(7);
    handle
}

#[test]
fn threads_of_a_process_reach_each_other_without_handles_of_the_driver() {
    if !Machine::with("9.0;9.0;9.0").runs("group::threads_of_a_process_reach_each_other_without_handles_of_the_driver")
    {
        return;
    }
    // Two ranks on one device, too.
    let (mut pools, handles) = pools(&[0, 1, 1]);
    let own: Vec<u64> = pools.iter().map(Pool::address).collect();
    for (rank, pool) in pools.iter_mut().enumerate() {
        assert_eq!(pool.open(rank, &handles).unwrap(), own);
    }
    // Again: what is enabled already is no error.
    assert_eq!(pools[0].open(0, &handles).unwrap(), own);
    let enabled: Vec<_> = calls("cuCtxEnablePeerAccess").into_iter().filter(|c| c.result == 0).collect();
    let between: Vec<_> = enabled.iter().map(|c| (c.get("context"), c.get("peer"))).collect();
    assert_eq!(between, [("0", "1"), ("1", "0")]);
    assert!(calls("cuIpcOpenMemHandle_v2").is_empty());
    drop(pools);
    assert_eq!(calls("cuMemFree_v2").len(), 3);
}

#[test]
fn processes_open_each_others_pools_and_close_them() {
    if !Machine::with("9.0;9.0").runs("group::processes_open_each_others_pools_and_close_them") {
        return;
    }
    let (mut pools, mut handles) = pools(&[0, 1]);
    handles[1] = of_another_process(&handles[1]);
    let addresses = pools[0].open(0, &handles).unwrap();
    assert_eq!(addresses, [pools[0].address(), pools[1].address() + 0x1000]);
    // Opened once more, the first are closed before.
    pools[0].open(0, &handles).unwrap();
    assert_eq!((calls("cuIpcOpenMemHandle_v2").len(), calls("cuIpcCloseMemHandle").len()), (2, 1));
    drop(pools);
    assert_eq!(calls("cuIpcCloseMemHandle").len(), 2);
    let contexts: Vec<_> = calls("cuIpcOpenMemHandle_v2").iter().map(|c| c.get("context").to_owned()).collect();
    assert_eq!(contexts, ["0", "0"]);
}

#[test]
fn each_way_not_to_share_memory_has_its_code_and_its_advice() {
    let test = "group::each_way_not_to_share_memory_has_its_code_and_its_advice";
    let two = || Machine::with("9.0;9.0");
    let rows = [
        (two().set("FAKE_CUDA_APART", "1"), "PB-2162 same device 0 cannot reach the memory of rank 1, on device 1"),
        (two().set("FAKE_CUDA_APART", "1"), "PB-2162 other nvidia-smi topo"),
        (
            two().failing("cuIpcGetMemHandle=801"),
            "PB-2163 other cuIpcGetMemHandle failed with CUDA_ERROR_NOT_SUPPORTED",
        ),
        (
            two().failing("cuIpcOpenMemHandle_v2=205"),
            "PB-2163 other cuIpcOpenMemHandle failed with CUDA_ERROR_MAP_FAILED",
        ),
        (two().failing("cuIpcOpenMemHandle_v2=400"), "PB-2163 other --ipc=host"),
        (two().failing("cuDeviceCanAccessPeer=999"), "PB-2102 same cuDeviceCanAccessPeer failed"),
        (two().failing("cuCtxEnablePeerAccess=2"), "PB-2121 same cuCtxEnablePeerAccess failed"),
    ];
    for (machine, expected) in rows {
        if !machine.set("FAKE_CUDA_EXPECT", expected).runs(test) {
            continue;
        }
        let expected = setting("FAKE_CUDA_EXPECT");
        let mut words = expected.splitn(3, ' ');
        let (code, process, says) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
        let (mut pools, mut handles) = pools(&[0, 1]);
        if process == "other" {
            handles[1] = of_another_process(&handles[1]);
        }
        let report = pools[0].open(0, &handles).unwrap_err().report();
        assert_eq!(report.code, code, "{report}");
        assert!(report.to_string().contains(says), "no {says:?} in {report}");
        assert!(!report.help.is_empty(), "{report}");
        return;
    }
}

#[test]
fn a_pool_needs_a_device_with_room_and_no_capture() {
    let test = "group::a_pool_needs_a_device_with_room_and_no_capture";
    let one = || Machine::with("9.0:H200:2");
    let rows = [
        (one(), "3 4096 PB-2116 there is no device 3"),
        (one(), "0 4194304 PB-2121 cuMemAlloc"),
        (one().failing("cuDeviceGetUuid_v2=999"), "0 4096 PB-2102 cuDeviceGetUuid"),
        (one().set("FAKE_CUDA_CAPTURE", "implicit"), "0 4096 PB-2120 cuMemAlloc"),
    ];
    for (machine, expected) in rows {
        if !machine.set("FAKE_CUDA_EXPECT", expected).runs(test) {
            continue;
        }
        let expected = setting("FAKE_CUDA_EXPECT");
        let words: Vec<_> = expected.splitn(4, ' ').collect();
        let made = Pool::new(Place::Cuda(words[0].parse().unwrap()), words[1].parse().unwrap());
        let report = made.map_err(|e: Error| e.report()).expect_err("it was refused");
        assert!(report.code == words[2] && report.to_string().contains(words[3]), "{report}");
        // What was allocated is freed.
        let given = calls("cuMemAlloc_v2").into_iter().filter(|c| c.result == 0).count();
        assert_eq!(given, calls("cuMemFree_v2").len());
        return;
    }
}
