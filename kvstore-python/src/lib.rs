//! The native module behind the Python package `mxkv`: it translates and decides nothing.
//!
//! - `error`: errors and panics become exceptions; every call without the interpreter's lock
//! - `keys`, `arguments`: keys, values and outputs of the verbs; `listed`: in lists and lists of lists; `mapped`: in maps
//! - `convert`: every other conversion of arguments and results
//! - `dlpack`: what the protocol's structures mean; `block`: memory of other libraries; `export`: memory for them; `stream`: streams of GPUs
//! - `foreign`: arrays of other libraries as values and as outputs; `pytorch`: what only PyTorch's tensors have
//! - `ndarray`, `operators`, `row_operators`, `indexing`, `making`: the arrays
//! - `numpy`: exports to NumPy
//! - `store`, `snapshot`, `checkpoint`, `optimizer`, `rows`, `file`, `runtime`: the other classes and functions, one file each
//! - `updater`: the way back, from a push into a Python function; `ending`: where the interpreter ends meanwhile
//! - `interrupt`: signal handlers during long work

#![cfg_attr(
    test,
    allow(clippy::disallowed_macros, reason = "a test may abort when memory runs out")
)]

mod arguments;
mod block;
mod checkpoint;
mod convert;
mod dlpack;
mod ending;
mod error;
mod export;
mod file;
mod foreign;
mod indexing;
mod interrupt;
mod keys;
mod listed;
mod making;
mod mapped;
mod ndarray;
mod numpy;
mod operators;
mod optimizer;
mod pytorch;
mod row_operators;
mod rows;
mod runtime;
mod snapshot;
mod store;
mod stream;
mod updater;

/// What the package `mxkv` is made of. Programs use the package's own modules.
#[pyo3::pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::checkpoint::PyCheckpoint;
    #[pymodule_export]
    use super::file::{load, save};
    #[pymodule_export]
    use super::making::{
        arange, concatenate, from_array, full, random_normal, random_seed, random_uniform,
    };
    #[pymodule_export]
    use super::ndarray::PyArray;
    #[pymodule_export]
    use super::optimizer::{PyOptimizer, PyScheduler, PyState, is_flag, optimizer_names};
    #[pymodule_export]
    use super::rows::PyRows;
    #[pymodule_export]
    use super::runtime::{
        device_memory, doctor, dtype_names, error_codes, live_bytes, memory_limit, num_gpus,
        pooled_bytes, set_memory_limit, synchronize, trim, version,
    };
    #[pymodule_export]
    use super::snapshot::PySnapshot;
    #[pymodule_export]
    use super::store::PyStore;

    /// Attaches once while the interpreter is certainly there: the first time `pyo3` asks twice whether it is, and panics in
    /// a thread whose interpreter ends in between.
    #[pymodule_init]
    fn begin(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.py().detach(|| Python::attach(|_| Ok::<_, PyErr>(())))?;
        super::checkpoint::wait_at_exit(module)
    }
}
