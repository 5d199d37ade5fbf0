//! Collectives of several ranks: threads of this process whose kernels meet in pools, on the host target.

use super::harness::library;
use parbake::binding::Random;
use parbake::model::dtype::DType;
use parbake::model::settings::Forced;
use parbake::{Error, Library, Place, Stream, Tensor};

const TYPES: [DType; 3] = [DType::F32, DType::Bf16, DType::F16];
/// What a pool begins with, in bytes, and its blocks.
const HEAD: i64 = 128 * 8 * 8 + 128 * 4;
const BLOCKS: i64 = 128;

/// Memory at a multiple of 256 bytes that several threads reach; the kernels keep the order.
struct Memory(*mut u8, usize);

// SAFETY: plain memory; who reads and writes it when is what is tested.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(bytes: usize, fill: u8) -> Self {
        let layout = std::alloc::Layout::from_size_align(bytes.max(256), 256).unwrap();
        // SAFETY: the layout has a size.
        let pointer = unsafe { std::alloc::alloc(layout) };
        assert!(!pointer.is_null());
        // SAFETY: just allocated.
        unsafe { pointer.write_bytes(fill, bytes.max(256)) };
        Self(pointer, bytes)
    }
    fn of(dtype: DType, values: &[f64]) -> Self {
        let memory = Self::new(values.len() * dtype.bytes(), 0);
        memory.bytes().chunks_exact_mut(dtype.bytes()).zip(values).for_each(|(raw, v)| dtype.store(*v, raw));
        memory
    }
    #[allow(clippy::mut_from_ref, reason = "one thread at a time, as above")]
    fn bytes(&self) -> &mut [u8] {
        // SAFETY: allocated with so many.
        unsafe { std::slice::from_raw_parts_mut(self.0, self.1) }
    }
    fn values(&self, dtype: DType) -> Vec<f64> {
        self.bytes().chunks_exact(dtype.bytes()).map(|raw| dtype.load(raw)).collect()
    }
    fn tensor(&self, dtype: DType, shape: &[i64]) -> Tensor {
        Tensor::dense(self.0.cast(), dtype, shape).unwrap()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let layout = std::alloc::Layout::from_size_align(self.1.max(256), 256).unwrap();
        // SAFETY: allocated with this layout.
        unsafe { std::alloc::dealloc(self.0, layout) };
    }
}

/// The pools of a group, with so many bytes for each block, and the addresses that each rank has of them.
struct Pools {
    memory: Vec<Memory>,
    addresses: Memory,
}

impl Pools {
    fn new(ranks: usize, region: i64) -> Self {
        let memory: Vec<_> = (0..ranks).map(|_| Memory::new((HEAD + 2 * BLOCKS * region) as usize, 0)).collect();
        let addresses: Vec<f64> = memory.iter().map(|m| m.0 as usize as f64).collect();
        Self { memory, addresses: Memory::of(DType::I64, &addresses) }
    }
    fn ranks(&self) -> usize {
        self.memory.len()
    }
    fn pool(&self, rank: usize) -> Tensor {
        self.memory[rank].tensor(DType::I32, &[self.memory[rank].1 as i64 / 4])
    }
    fn table(&self) -> Tensor {
        self.addresses.tensor(DType::I64, &[self.ranks() as i64])
    }
    /// Calls an op as one rank: outputs but the pool, inputs but the addresses, scalars behind rank and timeout.
    fn call(&self, library: &Library, op: &str, rank: usize, tensors: &[Tensor], scalars: &[f64]) -> Result<(), Error> {
        let id = library.op(op).unwrap();
        let def = library.definition(id);
        let mut given = tensors.iter();
        let all: Vec<Tensor> = (def.tensors.iter())
            .map(|t| match t.name.as_str() {
                "pool" => self.pool(rank),
                "pools" => self.table(),
                _ => *given.next().expect("a tensor is missing"),
            })
            .collect();
        let numbers: Vec<f64> = [rank as f64, 120_000.0].iter().chain(scalars).copied().collect();
        // SAFETY: the memory is this test's and outlives the call, which ends when the kernel does.
        unsafe { library.call(id, &all, &numbers, Place::Host, Stream::DEFAULT).map(drop) }
    }
    /// [`Pools::call`] that does not fail.
    fn done(&self, library: &Library, op: &str, rank: usize, tensors: &[Tensor], scalars: &[f64]) {
        self.call(library, op, rank, tensors, scalars).unwrap_or_else(|e| panic!("{}", e.report()));
    }
}

/// Runs a closure as each rank, on threads of their own, and gives what each returned.
fn ranks<T: Send>(count: usize, run: impl Fn(usize) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..count).map(|rank| scope.spawn(move || run(rank))).collect();
        threads.into_iter().map(|t| t.join().expect("a rank does not panic")).collect()
    })
}

/// Values of a type, of a rank.
fn values(dtype: DType, count: usize, seed: u64) -> Vec<f64> {
    let mut random = Random::new(seed);
    (0..count).map(|_| dtype.round(random.normal())).collect()
}

/// The sum over ranks in f32 and in their order, which is what the op says.
fn sums(inputs: &[Vec<f64>]) -> Vec<f64> {
    let mut total: Vec<f32> = inputs[0].iter().map(|v| *v as f32).collect();
    for input in &inputs[1..] {
        total.iter_mut().zip(input).for_each(|(t, v)| *t += *v as f32);
    }
    total.into_iter().map(f64::from).collect()
}

/// A library that takes this tactic of all_reduce.
fn forced(library: &Library, shots: u32) -> Library {
    let mut config = library.config().clone();
    config.tactics = vec![Forced { op: "all_reduce".to_owned(), tactic: vec![("shots".to_owned(), shots)] }];
    Library::open(config).unwrap()
}

/// All-reduce of random data by all ranks: bit for bit the sum in the order of ranks.
fn all_reduce(library: &Library, pools: &Pools, dtype: DType, elements: usize, seed: u64, in_place: bool) {
    let count = pools.ranks();
    let inputs: Vec<_> = (0..count).map(|r| values(dtype, elements, seed + r as u64)).collect();
    let expected: Vec<f64> = sums(&inputs).into_iter().map(|v| dtype.round(v)).collect();
    let got = ranks(count, |rank| {
        let x = Memory::of(dtype, &inputs[rank]);
        let out = Memory::new(elements * dtype.bytes(), 0xff);
        let to = if in_place { &x } else { &out };
        let shape = [elements as i64];
        let tensors = [to.tensor(dtype, &shape), x.tensor(dtype, &shape)];
        pools.done(library, "all_reduce", rank, &tensors, &[]);
        to.values(dtype)
    });
    for (rank, got) in got.iter().enumerate() {
        assert!(*got == expected, "all_reduce of {elements} {dtype:?}, rank {rank} of {count}");
    }
}

#[test]
fn sums_over_ranks_are_right() {
    let libraries = [1, 2].map(|shots| forced(library(), shots));
    // One access, blocks and shares that are not full, several blocks, several accesses of a thread.
    for (turn, elements) in [8usize, 24, 1000, 4096, 4104, 70_008].into_iter().enumerate() {
        for count in [1, 2, 3, 4, 8] {
            if elements > 10_000 && count > 3 {
                continue;
            }
            let pools = Pools::new(count, 16 << 10);
            for (shots, library) in libraries.iter().enumerate() {
                let dtype = TYPES[(turn + count + shots) % 3];
                all_reduce(library, &pools, dtype, elements, 7 * turn as u64, turn % 2 == 0);
            }
        }
    }
}

fn all_gather(library: &Library, pools: &Pools, dtype: DType, elements: usize, seed: u64) {
    let count = pools.ranks();
    let inputs: Vec<_> = (0..count).map(|r| values(dtype, elements, seed + r as u64)).collect();
    let got = ranks(count, |rank| {
        let (x, out) = (Memory::of(dtype, &inputs[rank]), Memory::new(count * elements * dtype.bytes(), 0xff));
        let out_tensor = out.tensor(dtype, &[count as i64, elements as i64]);
        pools.done(library, "all_gather", rank, &[out_tensor, x.tensor(dtype, &[elements as i64])], &[]);
        out.values(dtype)
    });
    for (rank, got) in got.iter().enumerate() {
        assert!(*got == inputs.concat(), "all_gather of {elements} {dtype:?}, rank {rank} of {count}");
    }
}

fn reduce_scatter(library: &Library, pools: &Pools, dtype: DType, elements: usize, seed: u64) {
    let count = pools.ranks();
    let inputs: Vec<_> = (0..count).map(|r| values(dtype, count * elements, seed + r as u64)).collect();
    let expected: Vec<f64> = sums(&inputs).into_iter().map(|v| dtype.round(v)).collect();
    let got = ranks(count, |rank| {
        let (x, out) = (Memory::of(dtype, &inputs[rank]), Memory::new(elements * dtype.bytes(), 0xff));
        let x_tensor = x.tensor(dtype, &[count as i64, elements as i64]);
        pools.done(library, "reduce_scatter", rank, &[out.tensor(dtype, &[elements as i64]), x_tensor], &[]);
        out.values(dtype)
    });
    assert!(got.concat() == expected, "reduce_scatter of {elements} {dtype:?}, {count} ranks");
}

/// What an element may differ by, and does at most.
fn close(what: &str, dtype: DType, got: &[f64], expected: &[f64]) {
    for (i, (got, want)) in got.iter().zip(expected).enumerate() {
        let bound = dtype.ulp(*want) + 4e-6 * want.abs();
        assert!((got - dtype.round(*want)).abs() <= bound, "{what}, element {i}: {got} where {want} is expected");
    }
}

/// All-reduce, addition and norm: `given` says which of out and quant there are.
fn all_reduce_rmsnorm(
    library: &Library,
    pools: &Pools,
    dtype: DType,
    (rows, hidden): (usize, usize),
    seed: u64,
    given: (bool, bool),
) {
    let (count, size) = (pools.ranks(), rows * hidden);
    let inputs: Vec<_> = (0..count).map(|r| values(dtype, size, seed + r as u64)).collect();
    let (residual, weight) = (values(dtype, size, seed + 70), values(dtype, hidden, seed + 71));
    let total: Vec<f64> = sums(&inputs).iter().zip(&residual).map(|(a, b)| f64::from(*a as f32 + *b as f32)).collect();
    let scale = 0.25;
    let mut normal = Vec::new();
    for row in total.chunks(hidden) {
        let factor = 1.0 / (row.iter().map(|v| v * v).sum::<f64>() / hidden as f64 + 1e-6).sqrt();
        normal.extend(row.iter().zip(&weight).map(|(v, w)| v * factor * (w + 1.0)));
    }
    let got = ranks(count, |rank| {
        let [x, r, w] = [&inputs[rank], &residual, &weight].map(|v| Memory::of(dtype, v));
        let (out, quant, s) =
            (Memory::new(size * dtype.bytes(), 0xff), Memory::new(size, 0xff), Memory::of(DType::F32, &[scale]));
        let shape = [rows as i64, hidden as i64];
        let tensors = [
            r.tensor(dtype, &shape),
            if given.0 { out.tensor(dtype, &shape) } else { Tensor::ABSENT },
            if given.1 { quant.tensor(DType::E4m3, &shape) } else { Tensor::ABSENT },
            x.tensor(dtype, &shape),
            r.tensor(dtype, &shape),
            w.tensor(dtype, &[hidden as i64]),
            if seed.is_multiple_of(2) { s.tensor(DType::F32, &[1]) } else { Tensor::ABSENT },
        ];
        pools.done(library, "all_reduce_rmsnorm", rank, &tensors, &[1e-6, 1.0, scale]);
        [r.values(dtype), out.values(dtype), quant.values(DType::E4m3)]
    });
    let what = format!("all_reduce_rmsnorm of {rows} x {hidden} {dtype:?}, {count} ranks");
    let bits = |v: &[f64]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    for (rank, [sum, out, quant]) in got.iter().enumerate() {
        assert!(
            *sum == total.iter().map(|v| dtype.round(*v)).collect::<Vec<_>>(),
            "{what}: the residual of rank {rank}"
        );
        assert!(bits(out) == bits(&got[0][1]) && bits(quant) == bits(&got[0][2]), "{what}: rank {rank} has other bits");
    }
    if given.0 {
        close(&what, dtype, &got[0][1], &normal);
    }
    if given.1 {
        let scaled: Vec<f64> = normal.iter().map(|v| (v / scale).clamp(-448.0, 448.0)).collect();
        close(&what, DType::E4m3, &got[0][2], &scaled);
    }
}

/// Calls one after the other, with nothing between them that would order ranks but they themselves.
fn in_a_row(library: &Library, pools: &Pools, op: &str, rows: &[i64]) {
    ranks(2, |rank| {
        let (x, out) = (Memory::of(DType::Bf16, &[1.0; 520]), Memory::new(2 * 520 * 2, 0xff));
        let shape: Vec<i64> = rows.iter().copied().chain([520]).collect();
        let tensors = [out.tensor(DType::Bf16, &shape), x.tensor(DType::Bf16, &[520])];
        for _ in 0..4 {
            pools.done(library, op, rank, &tensors, &[]);
        }
    });
}

/// Several calls of an op by two ranks with few threads, where a library has a schedule of its own.
pub(crate) fn by_two_ranks(library: &Library, op: &str) {
    let pools = Pools::new(2, 4096);
    for seed in 0..3 {
        match op {
            "all_reduce" => {
                for library in [1, 2].map(|shots| forced(library, shots)) {
                    all_reduce(&library, &pools, DType::Bf16, 520, seed, seed == 1);
                    in_a_row(&library, &pools, op, &[]);
                }
            }
            "all_gather" => {
                all_gather(library, &pools, DType::Bf16, 520, seed);
                in_a_row(library, &pools, op, &[2]);
            }
            "reduce_scatter" => reduce_scatter(library, &pools, DType::Bf16, 264, seed),
            "all_reduce_rmsnorm" => all_reduce_rmsnorm(library, &pools, DType::Bf16, (3, 200), seed, (true, true)),
            _ => panic!("{op} is not of this family"),
        }
    }
}

#[test]
fn gathers_and_scatters_are_right() {
    let types = [DType::E4m3, DType::Bf16, DType::F32, DType::U8, DType::F16];
    for (turn, elements) in [16usize, 48, 1008, 4096, 20_016].into_iter().enumerate() {
        for count in [1, 2, 3, 8] {
            if elements > 10_000 && count > 3 {
                continue;
            }
            let pools = Pools::new(count, 64 << 10);
            all_gather(library(), &pools, types[(turn + count) % types.len()], elements, turn as u64);
            reduce_scatter(library(), &pools, TYPES[(turn + count) % 3], elements, turn as u64);
            all_gather(library(), &pools, types[turn], elements, turn as u64 + 9);
        }
    }
}

#[test]
fn sums_are_normalised() {
    let given = [(true, false), (false, true), (true, true)];
    // Rows of one access, of some threads, of several accesses, and more rows than blocks.
    for (turn, shape) in [(1, 8), (3, 200), (2, 4104), (1, 16_384), (260, 16)].into_iter().enumerate() {
        for count in [1, 2, 4] {
            let pools = Pools::new(count, 64 << 10);
            let dtype = TYPES[(turn + count) % 3];
            all_reduce_rmsnorm(library(), &pools, dtype, shape, turn as u64, given[(turn + count) % 3]);
        }
    }
}

/// Calls of all kinds and sizes on one pool, one after the other, while ranks come late by chance: blocks of a call are more or fewer
/// than those of the one before, and what a call leaves behind is not what the next one takes.
#[test]
fn calls_in_turn_take_what_was_meant_for_them() {
    let libraries = [1, 2].map(|shots| forced(library(), shots));
    for count in [2, 4] {
        let (pools, late) = (Pools::new(count, 8 << 10), 300);
        ranks(count, |rank| {
            let mut random = Random::new(rank as u64 + 17);
            for turn in 0..200u64 {
                // What all ranks do alike follows from the turn.
                let mut same = Random::new(turn);
                let elements = [8, 64, 4096, 5000, 8200][same.below(5) as usize];
                let dtype = TYPES[same.below(3) as usize];
                let inputs: Vec<_> = (0..count).map(|r| values(dtype, elements, 1000 * turn + r as u64)).collect();
                let x = Memory::of(dtype, &inputs[rank]);
                let tensor = x.tensor(dtype, &[elements as i64]);
                if random.below(4) == 0 {
                    std::thread::sleep(std::time::Duration::from_micros(random.below(late)));
                }
                let expected = if same.below(3) == 0 {
                    let out = Memory::new(count * elements * dtype.bytes(), 0xff);
                    let shape = [count as i64, elements as i64];
                    pools.done(library(), "all_gather", rank, &[out.tensor(dtype, &shape), tensor], &[]);
                    (out.values(dtype), inputs.concat())
                } else {
                    let by = &libraries[same.below(2) as usize];
                    pools.call(by, "all_reduce", rank, &[tensor, tensor], &[]).unwrap();
                    (x.values(dtype), sums(&inputs).into_iter().map(|v| dtype.round(v)).collect())
                };
                assert!(expected.0 == expected.1, "turn {turn}, rank {rank} of {count}: {elements} {dtype:?}");
            }
        });
    }
}

#[test]
fn nothing_is_done_without_elements() {
    let pools = Pools::new(2, 256);
    ranks(2, |rank| {
        let x = Memory::new(0, 0);
        let (none, many) = (x.tensor(DType::F16, &[0]), x.tensor(DType::F16, &[2, 0]));
        pools.done(library(), "all_reduce", rank, &[none, none], &[]);
        pools.done(library(), "all_gather", rank, &[many, none], &[]);
        pools.done(library(), "reduce_scatter", rank, &[none, many], &[]);
    });
    assert!(pools.memory.iter().all(|m| m.bytes().iter().all(|b| *b == 0)), "a pool was written");
    // And the next call with some is right.
    all_reduce(library(), &pools, DType::F16, 64, 1, false);
}

/// Ranks that call different things, or not at all, are told so; nobody waits for ever, or takes what is not meant for it.
#[test]
fn ranks_that_differ_are_told() {
    let call = |pools: &Pools, rank: usize, elements: usize| {
        let x = Memory::of(DType::F32, &vec![1.0; elements]);
        let tensor = x.tensor(DType::F32, &[elements as i64]);
        let id = library().op("all_reduce").unwrap();
        let all = [tensor, pools.pool(rank), tensor, pools.table()];
        // SAFETY: as for every call here.
        let called = unsafe { library().call(id, &all, &[rank as f64, 300.0], Place::Host, Stream::DEFAULT) };
        called.err().map(|e| e.report().to_string()).unwrap_or_default()
    };
    let pools = Pools::new(2, 4096);
    let said = ranks(2, |rank| call(&pools, rank, [64, 128][rank]));
    assert!(said.iter().any(|s| s.contains("called something else")), "{said:?}");
    assert!(said.iter().all(|s| !s.is_empty()), "{said:?}");

    let pools = Pools::new(2, 4096);
    let said = call(&pools, 0, 64);
    assert!(said.contains("rank 1 has not come") && said.contains("all_reduce"), "{said}");
}
