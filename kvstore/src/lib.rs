//! A store of named tensors that many devices share.
//!
//! `init` stores a value under a key. `push` sums any number of values per key and passes the sum
//! to an updater or optimizer. `pull` copies the newest value to any number of arrays.
//!
//! ```
//! use kvstore::{DType, Device, create, ones, zeros};
//!
//! let store = create("local")?;
//! let shape = [2, 3];
//! store.init("3", &ones(shape, DType::F32, Device::cpu(0))?)?;
//!
//! // The store sums the values of a key. They may be on different devices.
//! let replicas = [0, 1, 2].map(|i| ones(shape, DType::F32, Device::cpu(i)));
//! let replicas = replicas.into_iter().collect::<Result<Vec<_>, _>>()?;
//! store.push("3", &replicas)?;
//!
//! let out = zeros(shape, DType::F32, Device::cpu(0))?;
//! store.pull("3", &out)?;
//! assert_eq!(out.to_vec::<f32>()?, [3.0; 6]);
//! # Ok::<(), kvstore::Error>(())
//! ```
//!
//! See [`Store`], [`NDArray`] and the functions of this page.

#![cfg_attr(test, allow(clippy::disallowed_macros, reason = "a test may abort without memory"))]

mod arrays;
mod checkpoint;
mod create;
#[cfg(feature = "dist")]
mod dist;
#[cfg(any(feature = "dist", feature = "net"))]
mod environment;
mod memory_limit;
#[cfg(feature = "net")]
mod net;
mod pairs;
pub mod random;
mod runtime;
mod settings;
mod store;
mod update;
mod values;
mod workers;

pub use arrays::{arange, array, array_from, from_bytes, full, ones, read_arrays, zeros};
pub use checkpoint::finish_checkpoints;
pub use create::{create, create_with};
#[cfg(feature = "dist")]
pub use dist::create_on;
#[cfg(feature = "net")]
pub use net::{DEFAULT_ADDRESS, LaunchedJob, Role, SERVER_OPTIONS, connect, serve, status_of};
pub use pairs::{Arrays, IntoArrays, IntoKeys, Keys, Pairs};
pub use runtime::{
    backends, device_memory, doctor, host_live_bytes, live_bytes, memory_limit, num_gpus,
    pooled_bytes, set_memory_limit, synchronize, trim,
};
pub use store::Store;
pub use update::{update, update_rows};
pub use values::ToValue;

#[cfg(feature = "dist")]
pub use kvstore_dist::{Group, LocalCollective, transport};

#[cfg(feature = "net")]
pub use kvstore_net::{
    Certificates, CommandHandler, Coordinator, Difference, IncompleteRecord, JournalMode,
    JournalStatus, LatePush, NetStore, NetStoreOptions, RecoveryStatus, ReplayOptions,
    ReplayReport, ReplayedKey, ReplayedStep, Server, ServerOptions, ServerStatus, StepMember,
    TraceContext, replay, replay_steps,
};

#[doc(hidden)]
pub use kvstore_core::fallible;
pub use kvstore_core::{
    ArrayList, Axis, Backend, Backends, BinaryOp, BoxError, Check, Checkpoint, CheckpointProgress,
    Checkpoints, Compression, CurrentDevice, DType, Description, Device, DeviceInterop, DeviceKind,
    DeviceMemory, Distribution, Element, Error, ErrorCode, ExportedTensor, ForeignMemory,
    Generator, GroupMember, Key, KeyStats, KvStore, Layout, LrScheduler, NDArray, OnExisting,
    Optimizer, OptimizerState, OptimizerStates, PulledValue, Queue, Range, Reduction, Result,
    Rewound, RowSparse, Scalar, Shape, Snapshot, SnapshotFile, SnapshotSource, Tensor, TensorSpec,
    UnaryOp, Updater, Value, Warmup, WorkerGroup, bf16, f16, push_staleness, storage::Storage,
};

/// Runs the Rust code of the manual.
#[cfg(doctest)]
mod manual {
    #[doc = include_str!("../../docs/getting-started/rust.md")]
    struct GettingStarted;

    #[doc = include_str!("../../docs/guides/checkpoints.md")]
    struct Checkpoints;

    #[doc = include_str!("../../docs/guides/embeddings.md")]
    struct Embeddings;

    #[doc = include_str!("../../docs/guides/servers.md")]
    struct Servers;

    #[doc = include_str!("../../docs/guides/operations.md")]
    struct Operations;
}
