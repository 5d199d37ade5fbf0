//! The utility families against their references: on the host target, and on every GPU there is, with longer lists.

mod common;

#[path = "utilities/activation.rs"]
mod activation;
#[path = "utilities/attention.rs"]
mod attention;
#[path = "utilities/cascade.rs"]
mod cascade;
#[path = "utilities/collective.rs"]
mod collective;
#[path = "utilities/gemm.rs"]
mod gemm;
#[path = "utilities/harness.rs"]
mod harness;
#[path = "utilities/mla.rs"]
mod mla;
#[path = "utilities/moe.rs"]
mod moe;
#[path = "utilities/norm.rs"]
mod norm;
#[path = "utilities/page.rs"]
mod page;
#[path = "utilities/quantization.rs"]
mod quantization;
#[path = "utilities/refusals.rs"]
mod refusals;
#[path = "utilities/rope.rs"]
mod rope;
#[path = "utilities/sampling.rs"]
mod sampling;
#[path = "utilities/schedules.rs"]
mod schedules;
#[path = "utilities/topk.rs"]
mod topk;
