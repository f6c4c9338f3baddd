//! A store of named tensors that many devices share: its semantics, and the CPU.
//!
//! ```
//! use kvstore_core::{Backends, CpuBackend, Device, Key, KvStore, LocalStore, Tensor};
//!
//! let backends = Backends::new(vec![CpuBackend::new()]);
//! let store = LocalStore::new("local", backends.clone()).expect("a known name");
//! let key = Key::new("3")?;
//! let ones = Tensor::from_slice(&backends, Device::cpu(0), [2, 3], &[1f32; 6])?;
//! store.init(&[key.clone()], &[ones.clone().into()])?;
//! // Three values of one key are summed.
//! let values = [ones.clone().into(), ones.clone().into(), ones.into()];
//! store.push(&[key.clone(), key.clone(), key.clone()], &values, 0)?;
//! assert_eq!(store.pull(&[key], 0)?[0].to_vec::<f32>()?, [3.0; 6]);
//! # Ok::<(), kvstore_core::Error>(())
//! ```
//!
//! Three seams hold the crate together, each a trait that other crates implement:
//! [`Backend`] (what one kind of memory can do), [`Reducer`] (where the values of a key become one)
//! and [`KvStore`] (what the verbs mean).

#![cfg_attr(test, allow(clippy::disallowed_macros, reason = "a test may abort without memory"))]

pub mod backend;
mod backends;
mod checkpoint;
mod codes;
pub mod compression;
mod cpu;
mod device;
pub mod dtype;
mod error;
mod exchange;
pub mod fallible;
mod file;
pub mod key;
mod layout;
mod local;
mod lr_scheduler;
mod merge;
mod ndarray;
mod ops;
pub mod optimizer;
mod parts;
mod policy;
pub mod process;
mod push;
mod random;
mod reducer;
mod residual;
mod row_arithmetic;
mod row_merge;
mod row_plan;
mod row_pull;
mod row_sparse;
mod row_sum;
mod scratch;
mod shape;
mod snapshot;
pub mod storage;
mod store;
mod table;
mod tensor;
mod updater;
mod value;

pub use backend::{Backend, Check, DeviceMemory};
pub use backends::{Backends, Looked};
pub use checkpoint::{Checkpoint, CheckpointProgress, Checkpoints, OptimizerStates};
pub use compression::Compression;
pub use cpu::CpuBackend;
pub use device::{Device, DeviceKind};
pub use dtype::{DType, Element, Scalar};
pub use error::{BoxError, Error, ErrorCode, Result};
pub use exchange::{Exchange, ForeignMemory, Queue};
pub use half::{bf16, f16};
pub use key::Key;
pub use layout::{Axis, Layout};
pub use local::LocalStore;
pub use lr_scheduler::{LrScheduler, Warmup};
pub use ndarray::{ArrayList, NDArray};
pub use ops::{BinaryOp, Reduction, UnaryOp};
pub use optimizer::{Optimizer, OptimizerState};
pub use random::{Distribution, Generator};
pub use reducer::{DeviceReducer, HostReducer, Reducer};
pub use row_sparse::RowSparse;
pub use shape::{Shape, TensorSpec};
pub use snapshot::Snapshot;
pub use store::{Description, Existing, KeyStats, KvStore, Pulled, WorkerGroup};
pub use tensor::{Range, Shown, Tensor, arange};
pub use updater::{Assign, Updater};
pub use value::Value;
