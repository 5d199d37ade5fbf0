//! Tensor maps: what the driver is asked to encode, and how often.

use super::calls;
use crate::common::World;
use crate::fake::Machine;
use parbake::model::dtype::DType;
use parbake::model::settings::Forced;
use parbake::{Place, Stream, Tensor};
use std::ffi::c_void;

const M: i64 = 200;
const N: i64 = 512;
const K: i64 = 4096;

#[test]
fn a_product_on_hopper_has_its_maps_encoded_once() {
    if !Machine::with("9.0").runs("maps::a_product_on_hopper_has_its_maps_encoded_once") {
        return;
    }
    let world = World::new();
    let library = by_hopper(&world, &["bmm"]);
    if crate::common::toolchain(&library, "sm_90a", "12.9").is_none() {
        return;
    }
    let (bmm, bf16) = (library.op("bmm").unwrap(), DType::Bf16);
    let mut memory = vec![0u8; ((M * N + M * K + (N + 1) * K) * 2 + 256) as usize];
    let base = memory.as_mut_ptr().cast::<c_void>();
    let base = base.wrapping_byte_add(base.align_offset(256));
    let tensor = |at: i64, shape: &[i64]| Tensor::dense(base.wrapping_byte_add(at as usize), bf16, shape).unwrap();
    let (a_at, b_at) = (M * N * 2, (M * N + M * K) * 2);
    let call = |library: &parbake::Library, a: Tensor, b: Tensor| {
        let none = Tensor::ABSENT;
        let tensors = [tensor(0, &[1, M, N]), none, none, a, b, none, none, none];
        // SAFETY: the fake driver's kernels compute nothing.
        unsafe { library.call(bmm, &tensors, &[0.0, 132.0], Place::Cuda(0), Stream::DEFAULT) }
            .unwrap()
            .kernel
            .unwrap()
            .uri
            .clone()
    };
    let encoded = || calls("cuTensorMapEncodeTiled");
    let text = call(&library, tensor(a_at, &[1, M, K]), tensor(b_at, &[1, N, K]));
    assert!(text.contains("-p1-"), "the path of Hopper: {text}");
    let maps = encoded();
    assert_eq!(
        maps.iter().map(|c| (c.result, c.get("dims"))).collect::<Vec<_>>(),
        [(0, "4096,200,1"), (0, "4096,512,1")]
    );
    assert!(
        maps.iter().all(|c| c.get("strides").starts_with("8192,")
            && c.get("swizzle") == "3"
            && c.get("box").starts_with("64,")),
        "{maps:?}"
    );
    // The same tensors again: nobody is asked. Other rows are another map.
    call(&library, tensor(a_at, &[1, M, K]), tensor(b_at, &[1, N, K]));
    assert_eq!(encoded().len(), 2);
    call(&library, tensor(a_at, &[1, M, K]), tensor(b_at + 2 * K, &[1, N, K]));
    assert_eq!(encoded().len(), 3);
    // The other path, which has none, is taken unless this one is asked for.
    let other = call(&world.library(), tensor(a_at, &[1, M, K]), tensor(b_at, &[1, N, K]));
    assert!(other.contains("-p0-"), "{other}");
    assert_eq!(encoded().len(), 3);
}

/// The world's library, with the tactic `path` of some ops forced to 1.
fn by_hopper(world: &World, ops: &[&str]) -> parbake::Library {
    let mut config = world.config.clone();
    let forced = |op: &&str| Forced { op: (*op).to_owned(), tactic: vec![("path".to_owned(), 1)] };
    config.tactics = ops.iter().map(forced).collect();
    parbake::Library::open(config).unwrap()
}

/// Memory for the tensors of a call, one after the other.
struct Room {
    memory: Vec<u8>,
    used: usize,
}

impl Room {
    fn new() -> Self {
        Self { memory: vec![0; 64 << 20], used: 0 }
    }
    fn tensor(&mut self, dtype: DType, shape: &[i64]) -> Tensor {
        let base = self.memory.as_mut_ptr().cast::<c_void>();
        let at = base.wrapping_byte_add(base.align_offset(256) + self.used);
        self.used += (shape.iter().product::<i64>() as usize * dtype.bytes()).next_multiple_of(256);
        Tensor::dense(at, dtype, shape).unwrap()
    }
}

/// What a call of an op on the fake device launched: the name of its kernel, its grid along x, its shared memory.
fn launched(library: &parbake::Library, op: &str, tensors: &[Tensor], scalars: &[f64]) -> (String, u32, u32) {
    let op = library.op(op).unwrap();
    // SAFETY: the fake driver's kernels compute nothing.
    let called = unsafe { library.call(op, tensors, scalars, Place::Cuda(0), Stream::DEFAULT) }.unwrap();
    let launch = calls("cuLaunchKernelEx").pop().unwrap();
    let grid = launch.get("grid").split(',').next().unwrap().parse().unwrap();
    (called.kernel.unwrap().uri.clone(), grid, launch.get("shared").parse().unwrap())
}

/// Extents and boxes of the maps that were encoded since `seen` were.
fn encoded(seen: usize) -> Vec<(String, String)> {
    let of = |c: &crate::fake::Call| (c.get("dims").to_owned(), c.get("box").to_owned());
    calls("cuTensorMapEncodeTiled")[seen..].iter().map(of).collect()
}

fn boxes(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(dims, size)| ((*dims).to_owned(), (*size).to_owned())).collect()
}

#[test]
fn groups_on_hopper_come_in_boxes_of_their_tiles() {
    if !Machine::with("9.0").runs("maps::groups_on_hopper_come_in_boxes_of_their_tiles") {
        return;
    }
    let world = World::new();
    let library = by_hopper(&world, &["group_mm"]);
    if crate::common::toolchain(&library, "sm_90a", "12.9").is_none() {
        return;
    }
    let (mut room, none) = (Room::new(), Tensor::ABSENT);
    let (m, n, k, groups) = (200, 512, 1024, 4);
    let [out, a, b, indptr, rows] = [
        room.tensor(DType::Bf16, &[m, n]),
        room.tensor(DType::Bf16, &[m, k]),
        room.tensor(DType::Bf16, &[groups, n, k]),
        room.tensor(DType::I32, &[groups + 1]),
        room.tensor(DType::I32, &[m]),
    ];
    let tensors = [out, a, b, indptr, none, none, none, none, none, none, none];
    // 200 rows of 4 groups have 7 tiles of 64 rows at most, and 4 of 128 columns. Six stages of 64 + 128 rows of 128 bytes,
    // two panels.
    let (uri, grid, shared) = launched(&library, "group_mm", &tensors, &[0.0, 64.0, 132.0]);
    assert!(uri.contains("-t64-l0-p1-"), "{uri}");
    assert_eq!((grid, shared), (28, 6 * (64 + 128) * 128 + 1024 + 2 * 64 * 272));
    assert_eq!(encoded(0), boxes(&[("1024,200,1", "64,64,1"), ("1024,512,4", "64,128,1")]));
    // No more blocks than multiprocessors.
    let (uri, grid, shared) = launched(&library, "group_mm", &tensors, &[0.0, 128.0, 5.0]);
    assert!(uri.contains("-p1-"), "{uri}");
    assert_eq!((grid, shared > 200 << 10), (5, true));
    assert_eq!(encoded(2)[0], boxes(&[("1024,200,1", "64,128,1")])[0]);
    // Rows that lie anywhere are no box.
    let seen = encoded(0).len();
    let gathered = [out, a, b, indptr, none, none, rows, none, none, none, none];
    let (uri, ..) = launched(&world.library(), "group_mm", &gathered, &[0.0, 64.0, 132.0]);
    assert!(uri.contains("-p0-") && encoded(seen).is_empty(), "{uri}");
}

#[test]
fn weights_of_experts_on_hopper_come_in_boxes_of_128_rows() {
    if !Machine::with("9.0").runs("maps::weights_of_experts_on_hopper_come_in_boxes_of_128_rows") {
        return;
    }
    let world = World::new();
    let library = by_hopper(&world, &["moe_gate_up", "moe_gate_up_quant"]);
    if crate::common::toolchain(&library, "sm_90a", "12.9").is_none() {
        return;
    }
    let mut room = Room::new();
    let (m, tokens, experts, hidden, inner) = (4096, 2048, 8, 1024, 256);
    let [indptr, rows] = [&[experts + 1][..], &[m]].map(|shape| room.tensor(DType::I32, shape));
    // Four or five stages of 256 rows of weights and those of x, and a panel of 16 rows of both products.
    let shared_of = |uri: &str, prefix: &str| {
        let rows = [16, 32, 64, 128].into_iter().find(|rows| uri.contains(&format!("-{prefix}{rows}-"))).unwrap();
        (if rows == 128 { 4 } else { 5 }) * (256 + rows) * 128 + 1024 + 16 * (256 * 4 + 16)
    };
    let [out, x, w] = [&[m, inner][..], &[tokens, hidden], &[experts, 2 * inner, hidden]]
        .map(|shape| room.tensor(DType::Bf16, shape));
    let tensors = [out, x, w, indptr, rows, Tensor::ABSENT];
    let (uri, grid, shared) = launched(&library, "moe_gate_up", &tensors, &[0.0, 7.0, 60.0]);
    assert!(uri.contains("-p1-"), "{uri}");
    assert_eq!((grid, shared), (60, shared_of(&uri, "t")));
    assert_eq!(encoded(0), boxes(&[("1024,512,8", "64,128,1")]));

    let [out, x, w] = [&[m, inner][..], &[tokens, hidden], &[experts, 2 * inner, hidden]]
        .map(|shape| room.tensor(DType::E4m3, shape));
    let [scale, x_scale, w_scale] =
        [&[m, inner / 128][..], &[tokens, hidden / 128], &[experts, 2 * inner / 128, hidden / 128]]
            .map(|shape| room.tensor(DType::F32, shape));
    let tensors = [out, scale, x, x_scale, w, w_scale, indptr, rows];
    let (uri, grid, shared) = launched(&library, "moe_gate_up_quant", &tensors, &[0.0, 7.0, 1e-10, 60.0]);
    assert!(uri.contains("-p1-"), "{uri}");
    assert_eq!((grid, shared), (60, shared_of(&uri, "r")));
    assert_eq!(encoded(1), boxes(&[("1024,512,8", "128,128,1")]));
}
