//! Streams of GPUs as other libraries number them: 1 is the legacy default stream and 2 that of a thread, for the driver,
//! too; 0 may be either, and others are addresses.

#![expect(unsafe_code, reason = "other libraries say by numbers which streams are theirs")]

use kvstore::Queue;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

use crate::interpreter::error::{replaced, type_error};

const LEGACY: i64 = 1;

/// Returns what a consumer of DLPack means by its stream; none if it does not want its work to wait for ours.
///
/// # Errors
/// A `TypeError` for what is no number, a `BufferError` for one that is no stream.
pub(crate) fn consumer(stream: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Queue>> {
    let number = stream.map_or(Ok(LEGACY), number)?;
    if number == -1 { Ok(None) } else { queue(number).map(Some) }
}

/// Returns what a producer says to have its work in; none if nobody has to wait for it.
///
/// # Errors
/// As [`consumer`].
pub(crate) fn producer(stream: &Bound<'_, PyAny>) -> PyResult<Option<Queue>> {
    if stream.is_none() { Ok(None) } else { queue(number(stream)?).map(Some) }
}

fn number(stream: &Bound<'_, PyAny>) -> PyResult<i64> {
    let (py, expected) = (stream.py(), "stream: expected None or the number of a CUDA stream");
    stream.extract().map_err(|raised| replaced(py, raised, || type_error(py, expected)))
}

fn queue(number: i64) -> PyResult<Queue> {
    match usize::try_from(number) {
        Ok(0) => Err(PyBufferError::new_err(
            "stream 0 may mean two streams: 1 is the legacy default stream, 2 that of the thread",
        )),
        // SAFETY: the other library says that it is a stream, and has it as long as it asks: so the protocols say.
        Ok(number) => Ok(unsafe { Queue::from_number(number) }),
        Err(_) => Err(PyBufferError::new_err(format!("stream {number} is none of CUDA's"))),
    }
}
