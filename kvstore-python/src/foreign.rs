//! Arrays of other libraries, as values of a call and as its outputs.

use std::sync::Arc;

use kvstore::{DType, TensorSpec};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};

use crate::convert;
use crate::dlpack::{Block, HOST, is_host};
use crate::error::{invalid, type_error};
use crate::pytorch;

/// Returns the array that an object of another library is; none when it is no array.
///
/// # Errors
/// A `TypeError` when the library does not hand it out, or for elements that no tensor has.
pub(crate) fn block(object: &Bound<'_, PyAny>) -> PyResult<Option<Arc<Block>>> {
    let py = object.py();
    let has_interface = || object.hasattr(intern!(py, "__array_interface__"));
    if !object.hasattr(intern!(py, "__dlpack__"))? {
        return if has_interface()? { by_interface(object).map(Some) } else { Ok(None) };
    }
    match pytorch::plain(object).and_then(|plain| capsule(&plain)) {
        Ok(capsule) => Ok(Some(Arc::new(Block::from_capsule(&capsule)?))),
        // NumPy before 2.1 hands out nothing that is for reading only, and no elements of other packages.
        Err(_) if has_interface()? => by_interface(object).map(Some),
        Err(reason) => Err(refused(object, reason)),
    }
}

/// Returns the array as [`block`], if it can be written to.
///
/// # Errors
/// Those of [`block`]; for memory that is for reading only, and where several elements are one place in it.
pub(crate) fn writable(object: &Bound<'_, PyAny>) -> PyResult<Option<Arc<Block>>> {
    let Some(block) = block(object)? else { return Ok(None) };
    let class = object.get_type();
    // It does not say so of the memory that it hands out.
    let is_jax = class.module().is_ok_and(|module| module.to_string_lossy().starts_with("jax"));
    if is_jax || !block.is_writable() {
        let text = format!("out: {} {} is for reading only", class.name()?, block.spec());
        return Err(invalid(object.py(), text));
    }
    if block.repeats_elements() {
        let text = format!(
            "out: {} {} is expanded, several of its elements are one place in memory",
            class.name()?,
            block.spec()
        );
        return Err(invalid(object.py(), text));
    }
    Ok(Some(block))
}

/// Asks the object for its elements: as they are on the host, or as a copy there.
fn capsule<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyCapsule>> {
    let py = object.py();
    let name = intern!(py, "__dlpack__");
    let is_on_host = is_on_host(object)?;
    let options = PyDict::new(py);
    options.set_item("max_version", (1, 0))?;
    if !is_on_host {
        options.set_item("dl_device", (HOST, 0))?;
    }
    let capsule = match object.call_method(name, (), Some(&options)) {
        // A library from before there were versions.
        Err(error) if is_on_host && error.is_instance_of::<PyTypeError>(py) => {
            object.call_method0(name)?
        }
        other => other?,
    };
    Ok(capsule.cast_into()?)
}

fn is_on_host(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let name = intern!(object.py(), "__dlpack_device__");
    if !object.hasattr(name)? {
        return Ok(true);
    }
    let device: Bound<'_, PyTuple> = object.call_method0(name)?.cast_into()?;
    // Libraries name the kind by an enumeration of their own.
    let kind: i32 = device.get_item(0)?.call_method0("__int__")?.extract()?;
    Ok(is_host(kind))
}

fn refused(object: &Bound<'_, PyAny>, reason: PyErr) -> PyErr {
    let py = object.py();
    let class = object.get_type().name().map(|name| name.to_string()).unwrap_or_default();
    let asks_for_gradient =
        object.getattr("requires_grad").is_ok_and(|it| it.is_truthy().unwrap_or(false));
    let hint = if asks_for_gradient {
        ": it takes part in a gradient, use `.detach()` or `torch.no_grad()`"
    } else if !is_on_host(object).unwrap_or(true) {
        ": it is on a device, bring it to the host first (`.cpu()`, `.get()`)"
    } else {
        ""
    };
    let error =
        type_error(py, format!("a `{class}` does not hand out its elements{hint}: {reason}"));
    error.set_cause(py, Some(reason));
    error
}

/// Reads what NumPy's array interface says, version 3.
fn by_interface(object: &Bound<'_, PyAny>) -> PyResult<Arc<Block>> {
    let py = object.py();
    let interface = object.getattr(intern!(py, "__array_interface__"))?;
    let typestr: String = interface.get_item("typestr")?.extract()?;
    let dtype = dtype(object, &typestr).ok_or_else(|| {
        let name = object.getattr("dtype").map_or_else(|_| typestr.clone(), |it| it.to_string());
        type_error(py, format!("dtype `{name}`: expected one of {}", convert::dtypes()))
    })?;
    let shape: Vec<usize> = interface.get_item("shape")?.extract()?;
    let (address, is_read_only): (usize, bool) = interface.get_item("data")?.extract()?;
    let strides = interface.call_method1("get", ("strides",))?.extract()?;
    let spec = TensorSpec::new(shape, dtype);
    Block::at(address, !is_read_only, spec, strides, object).map(Arc::new)
}

/// Returns the dtype that such a text means, in the machine's byte order.
fn dtype(object: &Bound<'_, PyAny>, typestr: &str) -> Option<DType> {
    let other_order = if cfg!(target_endian = "little") { '>' } else { '<' };
    let kind = typestr.strip_prefix(|order| order != other_order)?;
    Some(match kind {
        "f4" => DType::F32,
        "f8" => DType::F64,
        "f2" => DType::F16,
        "u1" => DType::U8,
        "i1" => DType::I8,
        "i4" => DType::I32,
        "i8" => DType::I64,
        // NumPy has no letter for it: a package of its own makes it.
        "V2" if object.getattr("dtype").ok()?.to_string() == "bfloat16" => DType::Bf16,
        _ => return None,
    })
}
