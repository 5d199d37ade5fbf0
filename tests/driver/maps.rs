//! Tensor maps: what the driver is asked to encode, and how often.

use super::calls;
use crate::common::World;
use crate::fake::Machine;
use parbake::model::dtype::DType;
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
    let library = world.library();
    if crate::common::toolchain(&library, "sm_90a", "12.9").is_none() {
        return;
    }
    let (bmm, bf16) = (library.op("bmm").unwrap(), DType::Bf16);
    let mut memory = vec![0u8; ((M * N + M * K + (N + 1) * K) * 2 + 256) as usize];
    let base = memory.as_mut_ptr().cast::<c_void>();
    let base = base.wrapping_byte_add(base.align_offset(256));
    let tensor = |at: i64, shape: &[i64]| Tensor::dense(base.wrapping_byte_add(at as usize), bf16, shape).unwrap();
    let (a_at, b_at) = (M * N * 2, (M * N + M * K) * 2);
    let call = |a: Tensor, b: Tensor| {
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
    let text = call(tensor(a_at, &[1, M, K]), tensor(b_at, &[1, N, K]));
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
    call(tensor(a_at, &[1, M, K]), tensor(b_at, &[1, N, K]));
    assert_eq!(encoded().len(), 2);
    call(tensor(a_at, &[1, M, K]), tensor(b_at + 2 * K, &[1, N, K]));
    assert_eq!(encoded().len(), 3);
    // Rows that are no multiple of 16 bytes apart are for the other path.
    let other = call(tensor(a_at, &[1, M, 1001]), tensor(b_at, &[1, N, 1001]));
    assert!(other.contains("-p0-"), "{other}");
    assert_eq!(encoded().len(), 3);
}
