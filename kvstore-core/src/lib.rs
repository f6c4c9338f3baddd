//! A key-value store of named tensors that many devices share. This crate has the semantics, the
//! optimizers and the CPU backend.
//!
//! ```
//! use kvstore_core::{Backends, CpuBackend, Device, Key, KvStore, LocalStore, Tensor};
//!
//! let backends = Backends::new(vec![CpuBackend::new()]);
//! let store = LocalStore::new("local", backends.clone()).expect("a known name");
//! let key = Key::new("3")?;
//! let ones = Tensor::from_slice(&backends, Device::cpu(0), [2, 3], &[1f32; 6])?;
//! store.init(&[key.clone()], &[ones.clone().into()])?;
//! // A push sums the three values of the key.
//! let values = [ones.clone().into(), ones.clone().into(), ones.into()];
//! store.push(&[key.clone(), key.clone(), key.clone()], &values, 0)?;
//! assert_eq!(store.pull(&[key], 0)?[0].to_vec::<f32>()?, [3.0; 6]);
//! # Ok::<(), kvstore_core::Error>(())
//! ```
//!
//! Two traits are the extension points of the crate. Other crates implement them: [`Backend`] for a
//! kind of memory, and [`KvStore`] for a kind of store.
//!
//! `docs/design.md` has a map of the folders, in the order in which they may import each other.

#![cfg_attr(test, allow(clippy::disallowed_macros, reason = "a test may abort without memory"))]

pub mod backend;
mod checkpoint;
mod codec;
pub mod compression;
mod cpu;
pub mod fallible;
mod file;
mod ndarray;
mod noise;
pub mod norm;
pub mod optimizer;
pub mod process;
mod rows;
mod rule;
mod staleness;
mod store;
mod tensor;
mod types;

pub use backend::registry::{Availability, Backends, BackendsBuilder};
pub use backend::storage;
pub use backend::{
    Backend, Check, CurrentDevice, DeviceInterop, DeviceMemory, ForeignMemory, Queue,
};
pub use checkpoint::{
    Checkpoint, CheckpointProgress, Checkpoints, OptimizerStates, PartList, SnapshotPieces,
};
pub use compression::Compression;
pub use cpu::CpuBackend;
#[doc(hidden)]
pub use file::replace_file;
pub use half::{bf16, f16};
pub use ndarray::{ArrayList, NDArray};
pub use noise::Distribution;
pub use optimizer::{LrScheduler, Optimizer, OptimizerState, StepUnit, Warmup};
pub use rows::{RowSparse, Value, check_ids};
pub use staleness::{push_staleness, with_staleness};
#[doc(hidden)]
pub use store::scratch;
pub use store::{
    BlockSums, CompleteSums, Description, GroupMember, KeyStats, KvStore, LocalStore, OnExisting,
    OnMembers, OnRewind, OnStart, Outputs, PulledValue, Rewound, Snapshot, SnapshotFile,
    SnapshotSource, StartedPush, Updater, WorkerGroup, check_clip, check_clipped_dtype,
    check_compressed,
};
pub use tensor::{ExportedTensor, Generator, Range, Tensor, arange};
pub use types::{
    Axis, BinaryOp, BoxError, DType, Device, DeviceKind, Element, Error, ErrorCode, Key, Layout,
    Reduction, Result, Scalar, Shape, TensorSpec, UnaryOp, dtype, key, panic_text,
};
