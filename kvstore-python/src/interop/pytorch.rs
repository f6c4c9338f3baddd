//! Properties of PyTorch tensors that `DLPack` does not express: gradients and negated views.

#![expect(unsafe_code, reason = "PyTorch describes its streams by numbers")]

use kvstore::Queue;
use pyo3::exceptions::PyBufferError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::interpreter::error::optional;
use crate::interpreter::finalization;

/// Returns the tensor to export instead of `object`. Returns `object` itself if it is not a PyTorch
/// tensor.
///
/// Under `torch.no_grad()`, a tensor with `requires_grad` is detached, as in PyTorch's own
/// functions. Otherwise it is returned unchanged, and PyTorch then rejects the export.
///
/// # Errors
/// - A `BufferError` for a negated view, which PyTorch would export with the wrong sign.
pub(crate) fn plain<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let Some(takes_part) =
        optional(py, finalization::attribute(object, intern!(py, "requires_grad")))?
    else {
        return Ok(object.clone());
    };
    if let Some(is_negated) =
        optional(py, finalization::call_method(object, intern!(py, "is_neg"), ()))?
        && is_negated.is_truthy()?
    {
        return Err(PyBufferError::new_err("it is a negated view, use `.resolve_neg()`"));
    }
    if takes_part.is_truthy()? && !records_gradients(py)? {
        return finalization::call_method(object, intern!(py, "detach"), ());
    }
    Ok(object.clone())
}

/// Returns the stream that PyTorch uses for a tensor on a GPU after a call. From now on, PyTorch
/// reuses the memory of the tensor only after the work in our stream. Returns `None` for other
/// objects.
pub(crate) fn release_to(object: &Bound<'_, PyAny>, ours: usize) -> PyResult<Option<Queue>> {
    let py = object.py();
    let Some(torch) = loaded(py)? else { return Ok(None) };
    let Some(tensor) = optional(py, torch.getattr(intern!(py, "Tensor")))? else { return Ok(None) };
    if !object.is_instance(&tensor)? {
        return Ok(None);
    }
    let released = || {
        let cuda = torch.getattr(intern!(py, "cuda"))?;
        let device = finalization::attribute(object, intern!(py, "device"))?;
        let stream = cuda.getattr(intern!(py, "ExternalStream"))?;
        let stream = finalization::call(&stream, (ours, &device), None)?;
        finalization::call_method(object, intern!(py, "record_stream"), (stream,))?;
        current_stream(&cuda, &device)
    };
    // Versions of PyTorch for other GPUs have no such streams.
    optional(py, released())
}

/// Returns PyTorch's current stream on a GPU.
fn current_stream(cuda: &Bound<'_, PyAny>, device: &Bound<'_, PyAny>) -> PyResult<Queue> {
    let py = cuda.py();
    let stream = finalization::call_method(cuda, intern!(py, "current_stream"), (device,))?;
    let number: usize = stream.getattr(intern!(py, "cuda_stream"))?.extract()?;
    // PyTorch calls the legacy default stream 0.
    // SAFETY: PyTorch has this stream, and keeps its streams until the process ends.
    Ok(unsafe { Queue::from_number(number.max(1)) })
}

/// Returns whether a stream is the one that PyTorch now uses on a GPU.
pub(crate) fn is_current_stream(py: Python<'_>, device: i32, queue: Queue) -> PyResult<bool> {
    let Some(torch) = loaded(py)? else { return Ok(false) };
    let current = || {
        let cuda = torch.getattr(intern!(py, "cuda"))?;
        // Otherwise the question would make PyTorch open the GPU.
        let is_used = finalization::call_method(&cuda, intern!(py, "is_initialized"), ())?;
        if !is_used.is_truthy()? {
            return Ok(None);
        }
        current_stream(&cuda, device.into_pyobject(py)?.as_any()).map(Some)
    };
    Ok(optional(py, current())?.flatten() == Some(queue))
}

/// Increments PyTorch's version counters of the tensors that were written to. A backward pass that
/// needs their old values then fails.
///
/// Ignores objects that are not tensors. Does nothing in PyTorch before 2.1, which lacks the
/// function.
pub(crate) fn note_writes(py: Python<'_>, objects: &[Py<PyAny>]) -> PyResult<()> {
    if objects.is_empty() {
        return Ok(());
    }
    let Some(torch) = loaded(py)? else { return Ok(()) };
    // While PyTorch is being imported, `torch.Tensor` may be missing.
    let Some(tensor) = optional(py, torch.getattr(intern!(py, "Tensor")))? else { return Ok(()) };
    let note = |name| torch.getattr("autograd")?.getattr("graph")?.getattr(name);
    let Some(note) = optional(py, note("increment_version"))? else { return Ok(()) };
    // Every tensor was written to, so note all of them before raising an interrupt.
    let noted = objects.iter().map(|object| {
        let object = object.bind(py);
        if object.is_instance(&tensor)? {
            finalization::call(&note, (object,), None)?;
        }
        Ok(())
    });
    noted.fold(Ok(()), PyResult::and)
}

/// Advice about sparse tensors, which have no dense memory, for error messages.
pub(crate) const ROWS_OF_SPARSE: &str = ": pass a row-sparse gradient as `t = t.coalesce()` and \
    `nd.sparse.row_sparse_array((t.values(), t.indices()[0]), shape=tuple(t.shape), dtype=..)`, \
    any other sparse tensor as `t.to_dense()`";

/// Returns the layout of a sparse tensor, ready for a message, or `None` for a dense tensor.
///
/// # Errors
/// - An exception raised while the layout is read, if it must be passed on.
pub(crate) fn sparse_layout(object: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let py = object.py();
    let layout = finalization::attribute(object, intern!(py, "layout"));
    let layout = layout.and_then(|layout| finalization::text(&layout)?.extract::<String>());
    let layout = optional(py, layout)?;
    let sparse = layout.filter(|layout| layout.starts_with("torch.sparse"));
    Ok(sparse.map(|layout| format!(", it is `{layout}`")))
}

fn records_gradients(py: Python<'_>) -> PyResult<bool> {
    match loaded(py)? {
        Some(torch) => {
            finalization::call_method(&torch, intern!(py, "is_grad_enabled"), ())?.is_truthy()
        }
        None => Ok(true),
    }
}

/// Returns PyTorch if the program has imported it. Importing it would take seconds.
fn loaded(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    static MODULES: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let modules = MODULES.import(py, "sys", "modules")?;
    let torch = optional(py, modules.get_item(intern!(py, "torch")))?;
    Ok(torch.filter(|torch| !torch.is_none()))
}
