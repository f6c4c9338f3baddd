//! Numbers of GPU streams in other libraries: 1 is the legacy default stream, 2 is the per-thread
//! default stream (both also in the CUDA driver), 0 is ambiguous, and other numbers are addresses.

#![expect(unsafe_code, reason = "other libraries describe their streams by numbers")]

use kvstore::Queue;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

use crate::convert::wrong_type;
use crate::interpreter::error::replaced;

/// The number of the legacy default stream, which always exists.
pub(crate) const LEGACY: usize = 1;

/// Returns the queue for the `stream` argument of a DLPack consumer, or `None` if the consumer does
/// not want its work to wait.
///
/// # Errors
/// - A `TypeError` if the argument is not a number.
/// - A `BufferError` if the number is not a stream.
pub(crate) fn consumer(stream: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Queue>> {
    let number = stream.map_or(Ok(LEGACY.cast_signed() as i64), number)?;
    if number == -1 { Ok(None) } else { queue(number).map(Some) }
}

/// Returns the queue for the `stream` entry of a producer, or `None` if no one has to wait for its
/// work.
///
/// # Errors
/// - The errors of [`consumer`].
pub(crate) fn producer(stream: &Bound<'_, PyAny>) -> PyResult<Option<Queue>> {
    if stream.is_none() { Ok(None) } else { queue(number(stream)?).map(Some) }
}

fn number(stream: &Bound<'_, PyAny>) -> PyResult<i64> {
    let (py, expected) = (stream.py(), "stream: expected None or the number of a CUDA stream");
    stream.extract().map_err(|raised| replaced(py, raised, || wrong_type(stream, expected)))
}

fn queue(number: i64) -> PyResult<Queue> {
    match usize::try_from(number) {
        Ok(0) => Err(PyBufferError::new_err(
            "stream 0 may mean two streams: pass 1 for the legacy default stream or 2 for the \
             per-thread default stream",
        )),
        // SAFETY: the protocols require that the number is a stream, and that the other library
        // keeps the stream during the call.
        Ok(number) => Ok(unsafe { Queue::from_number(number) }),
        Err(_) => Err(PyBufferError::new_err(format!("stream {number} is not a CUDA stream"))),
    }
}
