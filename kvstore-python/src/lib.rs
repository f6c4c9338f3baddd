//! The native module behind the Python package `mxkv`. It converts arguments and results, and
//! leaves all decisions to the `kvstore` crate.
//!
//! Each module imports only those before it:
//!
//! - `interpreter`: exceptions, signals, and the end of the interpreter
//! - `runtime`: functions about the process
//! - `numpy`, `convert`: single arguments
//! - `interop`: arrays of other libraries, and arrays exported to them
//! - `array`: the classes of arrays
//! - `arguments`: keys, values and outputs of the verbs
//! - `store`: stores, servers, optimizers, snapshots, checkpoints

#![cfg_attr(test, allow(clippy::disallowed_macros, reason = "a test may abort without memory"))]

mod arguments;
mod array;
mod convert;
mod interop;
mod interpreter;
mod numpy;
mod runtime;
mod store;

/// The native part of the package `mxkv`. Programs use the package's own modules.
#[pyo3::pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::array::classes::PyArray;
    #[pymodule_export]
    use super::array::classes::PyRows;
    #[pymodule_export]
    use super::array::classes::set_np;
    #[pymodule_export]
    use super::array::file::{load, save};
    #[pymodule_export]
    use super::array::making::{
        arange, concatenate, from_array, full, random_normal, random_seed, random_uniform,
    };
    #[pymodule_export]
    use super::runtime::{
        device_memory, doctor, dtype_names, error_codes, live_bytes, memory_limit, num_gpus,
        pooled_bytes, set_memory_limit, synchronize, trim, version,
    };
    #[pymodule_export]
    use super::store::checkpoint::PyCheckpoint;
    #[pymodule_export]
    use super::store::handle::PyStore;
    #[pymodule_export]
    use super::store::optimizer::{PyOptimizer, PyScheduler, PyState, is_flag, optimizer_names};
    #[pymodule_export]
    use super::store::server::{PyServer, serve_job};
    #[pymodule_export]
    use super::store::snapshot::PySnapshot;
    #[pymodule_export]
    use super::store::updater::push_staleness;

    /// Attaches to the interpreter once while it is running. On the first attach, `PyO3` checks
    /// twice whether the interpreter is running, and panics if it ends between the two checks.
    #[pymodule_init]
    fn begin(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.py().detach(|| Python::attach(|_| Ok::<_, PyErr>(())))?;
        super::store::checkpoint::wait_at_exit(module)
    }
}
