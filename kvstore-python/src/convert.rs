//! Every conversion of arguments: keys, values, outputs, devices, dtypes, numbers.

use std::sync::Arc;

use kvstore::{
    ArrayOrRows, Arrays, DType, Device, DeviceKind, Key, Keys, NDArray, Pairs, Scalar, Shape,
};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyFloat, PyInt, PyList, PyString, PyTuple, PyType};

use crate::block::Block;
use crate::error::{detached, to_python, type_error};
use crate::foreign;
use crate::ndarray::PyArray;
use crate::rows::PyRows;

/// Returns the names of all dtypes, for messages.
pub(crate) fn dtypes() -> String {
    DType::ALL.map(DType::name).join(", ")
}

/// Returns the dtype with this name.
pub(crate) fn dtype(py: Python<'_>, name: &str) -> PyResult<DType> {
    DType::from_name(name)
        .map_err(|_| type_error(py, format!("dtype `{name}`: expected one of {}", dtypes())))
}

/// A device by the name of its kind and its number.
pub(crate) type DeviceName = (String, u32);

pub(crate) fn device(py: Python<'_>, (kind, ordinal): DeviceName) -> PyResult<Device> {
    let kind = DeviceKind::from_name(&kind).map_err(|error| to_python(py, error))?;
    Ok(Device::new(kind, ordinal))
}

/// Returns the device that a `mxkv.Context` names.
pub(crate) fn device_like(object: &Bound<'_, PyAny>) -> PyResult<Device> {
    let part = |name| object.getattr(name);
    let (Ok(kind), Ok(ordinal)) = (part("device_type"), part("device_id")) else {
        return Err(type_error(object.py(), "expected a device, such as `cpu()`"));
    };
    device(object.py(), (kind.extract()?, ordinal.extract()?))
}

/// Returns the dtype that a program means by its name, as NumPy's, or as a type of Python's.
pub(crate) fn dtype_like(object: &Bound<'_, PyAny>) -> PyResult<DType> {
    static NAME_OF: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = object.py();
    let name = NAME_OF.import(py, "mxkv._dtypes", "name_of")?.call1((object,))?;
    dtype(py, &name.extract::<String>()?)
}

/// Returns a device as a `mxkv.Context`.
pub(crate) fn context(py: Python<'_>, device: Device) -> PyResult<Bound<'_, PyAny>> {
    static CONTEXT: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let class = CONTEXT.import(py, "mxkv.context", "Context")?;
    class.call1((device.kind().name(), device.ordinal()))
}

/// Returns the lengths: of a sequence, or of a single number.
pub(crate) fn shape(object: &Bound<'_, PyAny>) -> PyResult<Shape> {
    if let Ok(length) = object.extract::<usize>() {
        return Ok(Shape::from([length]));
    }
    let dims: Vec<usize> = object.extract().map_err(|_| {
        type_error(
            object.py(),
            "shape: expected a whole number of at least 0, or a sequence of them",
        )
    })?;
    Ok(Shape::from(dims))
}

/// Returns the shape as Python writes it.
pub(crate) fn dims<'py>(py: Python<'py>, shape: &Shape) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, shape.dims())
}

/// Returns a number: one of Python's, one of NumPy's, or an array of another library that has no axes; none for what is
/// not one.
pub(crate) fn number(object: &Bound<'_, PyAny>) -> PyResult<Option<Scalar>> {
    let py = object.py();
    if object.is_instance_of::<PyFloat>() {
        return Ok(Some(Scalar::from(object.extract::<f64>()?)));
    }
    if object.is_instance_of::<PyInt>() {
        return Ok(Some(Scalar::from(object.extract::<i64>()?)));
    }
    let has_axes = object.hasattr(intern!(py, "__dlpack__"))?
        && !object.getattr("ndim").is_ok_and(|axes| axes.eq(0).unwrap_or(false));
    if has_axes || object.is_instance_of::<PyString>() {
        return Ok(None);
    }
    if let Ok(number) = object.extract::<i64>() {
        return Ok(Some(Scalar::from(number)));
    }
    if object.hasattr(intern!(py, "__float__"))? {
        return Ok(Some(Scalar::from(object.extract::<f64>()?)));
    }
    Ok(None)
}

/// Returns the array: one of ours as it is, one of another library's for the time of the call. What is kept of it is a
/// copy, which `NDArray::copy` makes.
pub(crate) fn array(object: &Bound<'_, PyAny>) -> PyResult<Option<NDArray>> {
    if let Ok(array) = object.cast::<PyArray>() {
        return Ok(Some(array.get().array().clone()));
    }
    let Some(block) = foreign::block(object)? else { return Ok(None) };
    detached(object.py(), move || block.tensor().map(NDArray::new)).map(Some)
}

/// Returns the keys: a text, or a sequence of texts.
pub(crate) fn keys(object: &Bound<'_, PyAny>) -> PyResult<Keys> {
    let key = |text: &str| Key::new(text).map_err(|error| to_python(object.py(), error));
    if let Ok(text) = object.cast::<PyString>() {
        return Ok(Keys::One(key(text.to_cow()?.as_ref())?));
    }
    let texts: Vec<String> = object.extract()?;
    Ok(Keys::Many(texts.iter().map(|text| key(text)).collect::<PyResult<_>>()?))
}

/// Returns the only key of a call.
pub(crate) fn key(py: Python<'_>, text: &str) -> PyResult<Key> {
    Key::new(text).map_err(|error| to_python(py, error))
}

/// Returns a key that is a text or an integer.
pub(crate) fn key_like(object: &Bound<'_, PyAny>) -> PyResult<Key> {
    let text =
        object.extract::<String>().or_else(|_| object.extract::<i64>().map(|it| it.to_string()));
    let wrong = |_| type_error(object.py(), "key: expected a text or an integer");
    key(object.py(), &text.map_err(wrong)?)
}

/// Returns keys and values side by side.
pub(crate) fn values(
    keys_: &Bound<'_, PyAny>,
    values: &Bound<'_, PyAny>,
) -> PyResult<Pairs<ArrayOrRows>> {
    let arrays = nested(values, "value", &mut value)?;
    Pairs::new(keys(keys_)?, arrays).map_err(|error| to_python(keys_.py(), error))
}

fn value(object: &Bound<'_, PyAny>) -> PyResult<Option<ArrayOrRows>> {
    if let Ok(array) = object.cast::<PyArray>() {
        return Ok(Some(array.get().array().clone().into()));
    }
    if let Ok(rows) = object.cast::<PyRows>() {
        return Ok(Some(rows.get().value().into()));
    }
    let Some(block) = foreign::block(object)? else { return Ok(None) };
    let tensor = detached(object.py(), move || block.tensor())?;
    Ok(Some(NDArray::new(tensor).into()))
}

/// The outputs of a call.
#[derive(Debug)]
pub(crate) struct Outs {
    pub(crate) pairs: Pairs,
    foreign: Vec<Foreign>,
}

/// An output of another library's: the array that is pulled into, and where its elements then go.
#[derive(Debug)]
struct Foreign {
    object: Py<PyAny>,
    array: NDArray,
    block: Arc<Block>,
}

impl Outs {
    /// Gives the outputs of other libraries what was pulled for them, and returns them.
    pub(crate) fn deliver(self) -> kvstore::Result<Vec<Py<PyAny>>> {
        let written = self.foreign.iter().map(|it| {
            let value = it.array.tensor();
            Ok(it.block.write(&value)?.map(|copy| (value, copy)))
        });
        // Copies that take a while are all under way before the first of them is waited for.
        let under_way: Vec<_> = written.collect::<kvstore::Result<_>>()?;
        under_way.iter().flatten().try_for_each(|(value, _)| value.wait())?;
        Ok(self.foreign.into_iter().map(|it| it.object).collect())
    }
}

/// Returns keys and outputs side by side.
pub(crate) fn outs(keys_: &Bound<'_, PyAny>, outs: &Bound<'_, PyAny>) -> PyResult<Outs> {
    let mut foreign: Vec<Foreign> = Vec::new();
    let mut out = |object: &Bound<'_, PyAny>| {
        if let Ok(array) = object.cast::<PyArray>() {
            return Ok(Some(array.get().array().clone()));
        }
        // An object that stands several times is one output: the key initialised last wins.
        if let Some(known) = foreign.iter().find(|known| known.object.is(object)) {
            return Ok(Some(known.array.clone()));
        }
        let Some(block) = foreign::writable(object)? else { return Ok(None) };
        let of_block = Arc::clone(&block);
        let array = NDArray::new(detached(object.py(), move || of_block.placeholder())?);
        foreign.push(Foreign { object: object.clone().unbind(), array: array.clone(), block });
        Ok(Some(array))
    };
    let arrays = nested(outs, "out", &mut out)?;
    let pairs = Pairs::new(keys(keys_)?, arrays).map_err(|error| to_python(keys_.py(), error))?;
    Ok(Outs { pairs, foreign })
}

/// Returns one item, a list, or a list of lists; in the last a single item stands for a list of one.
fn nested<'py, T>(
    object: &Bound<'py, PyAny>,
    name: &str,
    item: &mut dyn FnMut(&Bound<'py, PyAny>) -> PyResult<Option<T>>,
) -> PyResult<Arrays<T>> {
    if let Some(one) = item(object)? {
        return Ok(Arrays::One(one));
    }
    let mut flat = Vec::new();
    let mut lists: Vec<Vec<T>> = Vec::new();
    for element in elements(object, name)? {
        match item(&element)? {
            Some(one) if lists.is_empty() => flat.push(one),
            Some(one) => lists.push(vec![one]),
            None => {
                lists.extend(flat.drain(..).map(|one| vec![one]));
                lists.push(list(&element, name, item)?);
            }
        }
    }
    Ok(if lists.is_empty() { Arrays::Many(flat) } else { Arrays::Nested(lists) })
}

fn list<'py, T>(
    object: &Bound<'py, PyAny>,
    name: &str,
    item: &mut dyn FnMut(&Bound<'py, PyAny>) -> PyResult<Option<T>>,
) -> PyResult<Vec<T>> {
    let of_list =
        |element: Bound<'py, PyAny>| item(&element)?.ok_or_else(|| unexpected(&element, name));
    elements(object, name)?.into_iter().map(of_list).collect()
}

/// Returns what a list or tuple holds.
fn elements<'py>(object: &Bound<'py, PyAny>, name: &str) -> PyResult<Vec<Bound<'py, PyAny>>> {
    if !object.is_instance_of::<PyList>() && !object.is_instance_of::<PyTuple>() {
        return Err(unexpected(object, name));
    }
    object.try_iter()?.collect()
}

fn unexpected(object: &Bound<'_, PyAny>, name: &str) -> PyErr {
    let class = object.get_type().name().map(|it| it.to_string()).unwrap_or_default();
    let text = format!(
        "{name}: expected an array, a list of arrays or a list of such lists, found a `{class}`"
    );
    type_error(object.py(), text)
}

/// Returns the rows that a call names: integers, in a list or an array.
pub(crate) fn row_ids(object: &Bound<'_, PyAny>) -> PyResult<Vec<i64>> {
    match array(object)? {
        Some(ids) => detached(object.py(), move || ids.read_as::<i64>()),
        None => object.extract().map_err(|_| {
            type_error(object.py(), "row numbers: expected an array or a list of integers")
        }),
    }
}
