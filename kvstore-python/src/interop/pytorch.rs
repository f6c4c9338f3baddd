//! Properties of PyTorch tensors that `DLPack` does not express: gradients, negated views, and the
//! streams that use them.

#![expect(unsafe_code, reason = "PyTorch describes its streams by numbers")]

use kvstore::Queue;
use pyo3::exceptions::PyBufferError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use super::stream;
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

/// Calls `export` while PyTorch has the GPU of a tensor as its current one. Returns its result, and
/// the stream that PyTorch uses for the tensor after the call. From now on, PyTorch reuses the
/// memory of the tensor only after the work in our stream. For other objects, only calls `export`.
///
/// # Errors
/// - The errors of `export`.
/// - A `BufferError` while PyTorch captures its stream into a graph, which would contain our work.
pub(crate) fn export<T>(
    object: &Bound<'_, PyAny>,
    ours: usize,
    export: impl FnOnce() -> PyResult<T>,
) -> PyResult<(T, Option<Queue>)> {
    let py = object.py();
    let Some((cuda, device)) = cuda_of(object)? else { return Ok((export()?, None)) };
    // PyTorch may remember another GPU than that of the driver's context.
    let current = finalization::attribute(&cuda, intern!(py, "device"))?;
    let current = finalization::call(&current, (&device,), None)?;
    finalization::call_method(&current, intern!(py, "__enter__"), ())?;
    let exported = released(object, (&cuda, &device), ours)
        .and_then(|released_to| Ok((export()?, Some(released_to))));
    let nothing = (py.None(), py.None(), py.None());
    finalization::call_method(&current, intern!(py, "__exit__"), nothing)?;
    exported
}

/// Returns the module `torch.cuda` and the device of a tensor, or `None` for other objects.
fn cuda_of<'py>(
    object: &Bound<'py, PyAny>,
) -> PyResult<Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
    let py = object.py();
    let Some(torch) = loaded(py)? else { return Ok(None) };
    // While PyTorch is being imported, its attributes may be missing.
    let Some(tensor) = optional(py, torch.getattr(intern!(py, "Tensor")))? else { return Ok(None) };
    if !object.is_instance(&tensor)? {
        return Ok(None);
    }
    let cuda = torch.getattr(intern!(py, "cuda"))?;
    Ok(Some((cuda, finalization::attribute(object, intern!(py, "device"))?)))
}

fn released(
    object: &Bound<'_, PyAny>,
    (cuda, device): (&Bound<'_, PyAny>, &Bound<'_, PyAny>),
    ours: usize,
) -> PyResult<Queue> {
    let py = object.py();
    if is_capturing(cuda)? {
        return Err(PyBufferError::new_err(
            "PyTorch captures its stream into a graph, which would contain work of the store",
        ));
    }
    let stream = finalization::attribute(cuda, intern!(py, "ExternalStream"))?;
    let stream = finalization::call(&stream, (ours, device), None)?;
    finalization::call_method(object, intern!(py, "record_stream"), (stream,))?;
    let current = finalization::call_method(cuda, intern!(py, "current_stream"), (device,))?;
    let number: usize = current.getattr(intern!(py, "cuda_stream"))?.extract()?;
    // PyTorch calls the legacy default stream 0.
    // SAFETY: PyTorch has this stream, and keeps it while it is the current one.
    Ok(unsafe { Queue::from_number(number.max(stream::LEGACY)) })
}

/// Returns whether PyTorch captures its current stream into a graph.
fn is_capturing(cuda: &Bound<'_, PyAny>) -> PyResult<bool> {
    let name = intern!(cuda.py(), "is_current_stream_capturing");
    finalization::call_method(cuda, name, ())?.is_truthy()
}

/// Returns whether a wait for a GPU would invalidate a graph that PyTorch captures.
pub(crate) fn captures(py: Python<'_>) -> bool {
    let captures = || {
        let Some(torch) = loaded(py)? else { return Ok(false) };
        let cuda = torch.getattr(intern!(py, "cuda"))?;
        // Otherwise the question would make PyTorch open a GPU.
        let is_used = finalization::call_method(&cuda, intern!(py, "is_initialized"), ())?;
        Ok::<_, PyErr>(is_used.is_truthy()? && is_capturing(&cuda)?)
    };
    // A finalizer cannot raise.
    captures().unwrap_or(false)
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
