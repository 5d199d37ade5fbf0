//! Arguments are judged before a kernel is looked for; nothing is launched or written after an error.

mod common;

use common::World;
use parbake::model::dtype::DType;
use parbake::{Error, Library, Place, Stream, Tensor};

struct Call {
    data: Vec<f32>,
    out: (DType, Vec<i64>, Vec<i64>, usize),
    x: (DType, Vec<i64>, Vec<i64>, usize),
    weight: (DType, Vec<i64>, Vec<i64>, usize),
    scalars: Vec<f64>,
}

impl Call {
    fn good() -> Self {
        Self {
            data: vec![1.0; 4096],
            out: (DType::F32, vec![2, 8], vec![8, 1], 0),
            x: (DType::F32, vec![2, 8], vec![8, 1], 1024),
            weight: (DType::F32, vec![8], vec![1], 2048),
            scalars: vec![1e-6, 0.0],
        }
    }

    fn run(&mut self, library: &Library) -> Result<(), Error> {
        let base = self.data.as_mut_ptr();
        let tensor = |(dtype, shape, strides, at): &(DType, Vec<i64>, Vec<i64>, usize)| {
            Tensor::new(base.wrapping_byte_add(4 * at).cast(), *dtype, shape, strides).unwrap()
        };
        let tensors = [tensor(&self.out), tensor(&self.x), tensor(&self.weight)];
        // SAFETY: every tensor that passes the check lies within `data`.
        unsafe {
            library
                .call(library.op("rmsnorm").unwrap(), &tensors, &self.scalars, Place::Host, Stream::DEFAULT)
                .map(drop)
        }
    }
}

#[test]
fn every_violation_is_named_with_what_was_expected_and_got() {
    let mut world = World::new();
    // A call that got past its check would fail differently: nothing is covered.
    world.config.jit = false;
    let library = world.library();
    type Change = fn(&mut Call);
    let cases: &[(Change, &str)] = &[
        (|c| c.x.0 = DType::F16, "x: dtype: expected f32"),
        (|c| (c.x.1, c.x.2) = (vec![2, 8, 1], vec![8, 1, 1]), "x: rank: expected 2 dimensions"),
        (|c| c.weight.1 = vec![9], "weight: shape: expected hidden = 8"),
        (|c| c.x.1 = vec![3, 8], "x: shape: expected rows = 2"),
        (|c| c.x.2 = vec![8, 2], "x: stride: expected 1 in dimension 1"),
        (|c| c.out.2 = vec![4, 1], "out: stride: expected at least 8"),
        (|c| c.x.2 = vec![-8, 1], "x: stride: expected 0 or more"),
        (|c| c.out.3 = 1028, "out: aliasing: expected no overlap, or the very same memory with `x`"),
        (|c| c.out.3 = 2048, "out: aliasing: expected no overlap with `weight`"),
        (|c| c.scalars[0] = f64::NAN, "eps: value: expected 0 to 1, got NaN"),
        (|c| c.scalars[0] = -1.0, "eps: value"),
        (|c| c.scalars.truncate(1), "call: count: expected 3 tensors and 2 scalars"),
        (|c| (c.out.1, c.x.1, c.weight.1) = (vec![2, 0], vec![2, 0], vec![0]), "hidden from 1 to 65536"),
    ];
    for (change, expected) in cases {
        let mut call = Call::good();
        change(&mut call);
        let error = call.run(&library).unwrap_err();
        let text = error.report().to_string();
        assert!(matches!(error, Error::Arguments(_)), "{text}");
        assert!(text.contains(expected), "no `{expected}` in\n{text}");
        assert!(text.contains("rmsnorm"), "{text}");
        assert!(call.data.iter().all(|v| *v == 1.0), "memory was written");
    }
    // All at once, not the first only.
    let mut call = Call::good();
    (call.x.0, call.weight.1, call.scalars[0]) = (DType::F16, vec![9], 7.0);
    let text = call.run(&library).unwrap_err().report().to_string();
    assert!(text.contains("x: dtype") && text.contains("weight: shape") && text.contains("eps: value"), "{text}");
    assert!(matches!(Call::good().run(&library), Err(Error::NotCovered(_))));
    assert!(!world.config.workspace.exists());
}

#[test]
fn zero_rows_are_no_work_even_where_nothing_is_covered() {
    let mut world = World::new();
    world.config.jit = false;
    let mut call = Call::good();
    (call.out.1, call.x.1) = (vec![0, 8], vec![0, 8]);
    call.run(&world.library()).unwrap();
}

#[test]
fn in_place_is_allowed_where_the_op_says_so() {
    let library = World::new().library();
    let mut call = Call::good();
    call.out.3 = call.x.3;
    call.run(&library).unwrap();
    assert!(call.data[1024..1040].iter().all(|v| (v - 1.0).abs() < 1e-5));
}
