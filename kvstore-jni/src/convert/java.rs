//! Converts strings, numbers and arrays.

use jni::Env;
use jni::errors::JniError;
use jni::objects::{JByteArray, JObject, JObjectArray, JPrimitiveArray, JString, TypeArray};
use jni::refs::IntoAuto;
use jni::strings::JNIString;
use jni::sys::{jint, jlong, jsize};
use kvstore::Error;
use kvstore::fallible;

use crate::error::Result;

/// Returns the strings of a Java array; `name` is the name of the array in errors.
pub(crate) fn strings(
    env: &mut Env<'_>,
    array: &JObjectArray<'_, JString<'_>>,
    name: &str,
) -> Result<Vec<String>> {
    collect_strings(env, array, name, owned)
}

/// Converts each string of a Java array with `convert`. `name` is the name of the array in errors.
pub(super) fn collect_strings<T>(
    env: &mut Env<'_>,
    array: &JObjectArray<'_, JString<'_>>,
    name: &str,
    convert: impl Fn(&str) -> Result<T>,
) -> Result<Vec<T>> {
    reject_null(array, name)?;
    let len = array.len(env)?;
    let mut converted = fallible::with_capacity(len)?;
    for index in 0..len {
        // Free each reference immediately: a call may have more keys than a local frame has room
        // for.
        let element = array.get_element(env, index)?.auto();
        if element.is_null() {
            return Err(Error::invalid(format!("`{name}[{index}]` is null")).into());
        }
        converted.push(with_string(env, &element, name, &convert)?);
    }
    Ok(converted)
}

/// Returns a string; `name` is its name in errors.
pub(crate) fn string(env: &Env<'_>, string: &JString<'_>, name: &str) -> Result<String> {
    with_string(env, string, name, owned)
}

fn owned(text: &str) -> Result<String> {
    let mut owned = fallible::string(text.len())?;
    owned.push_str(text);
    Ok(owned)
}

/// Converts a string with `convert`. `name` is its name in errors.
pub(super) fn with_string<T>(
    env: &Env<'_>,
    string: &JString<'_>,
    name: &str,
    convert: impl FnOnce(&str) -> Result<T>,
) -> Result<T> {
    reject_null(string, name)?;
    // The JVM returns null if it has no memory for a copy of the string.
    let encoded = string.mutf8_chars(env).map_err(|error| match error {
        jni::errors::Error::NullPtr(_) => jni::errors::Error::JniCall(JniError::NoMemory),
        other => other,
    })?;
    let text = encoded.to_str();
    // A Java string may contain an unpaired surrogate. If it were replaced, two different keys
    // could become equal.
    if text.contains(char::REPLACEMENT_CHARACTER)
        && JNIString::new(&text).to_bytes() != encoded.to_bytes()
    {
        let text = format!("{name}: expected valid Unicode, found `{text}`");
        return Err(Error::invalid(text).into());
    }
    convert(&text)
}

/// Returns the numbers of a Java array; `name` is its name in errors.
pub(crate) fn numbers<T: TypeArray + Default>(
    env: &Env<'_>,
    array: &JPrimitiveArray<'_, T>,
    name: &str,
) -> Result<Vec<T>> {
    reject_null(array, name)?;
    let len = array.len(env)?;
    let mut numbers = fallible::filled(T::default(), len)?;
    array.get_region(env, 0, &mut numbers)?;
    Ok(numbers)
}

/// Returns the bytes of a Java array, converted from signed to unsigned. `name` is its name in
/// errors.
pub(crate) fn bytes(env: &Env<'_>, array: &JByteArray<'_>, name: &str) -> Result<Vec<u8>> {
    // The standard library reuses the vector's memory.
    Ok(numbers(env, array, name)?.into_iter().map(i8::cast_unsigned).collect())
}

/// Returns a Java array of some bytes.
pub(crate) fn bytes_to_java<'local>(
    env: &mut Env<'local>,
    bytes: &[u8],
) -> Result<JByteArray<'local>> {
    check_java_length(bytes.len())?;
    Ok(env.byte_array_from_slice(bytes)?)
}

/// Checks that a Java array can have this many elements.
///
/// # Errors
/// - [`Error::InvalidArgument`] if it cannot.
pub(crate) fn check_java_length(len: usize) -> Result<()> {
    if jsize::try_from(len).is_err() {
        let text = format!(
            "{len} elements do not fit into a Java array, read them piece by piece \
             (`NDArray.read`, `ndarray/read-into`)"
        );
        return Err(Error::invalid(text).into());
    }
    Ok(())
}

/// Returns a Java array of some numbers.
pub(crate) fn to_java<'local, T: TypeArray>(
    env: &mut Env<'local>,
    numbers: &[T],
) -> Result<JPrimitiveArray<'local, T>> {
    check_java_length(numbers.len())?;
    let array = JPrimitiveArray::new(env, numbers.len())?;
    array.set_region(env, 0, numbers)?;
    Ok(array)
}

/// Returns a Java array of some strings.
pub(crate) fn strings_to_java<'local, S: AsRef<str>>(
    env: &mut Env<'local>,
    strings: impl ExactSizeIterator<Item = S>,
) -> Result<JObjectArray<'local, JString<'local>>> {
    let array = JObjectArray::<JString>::new(env, strings.len(), JString::null())?;
    for (index, string) in strings.enumerate() {
        let string = JString::from_str(env, string)?.auto();
        array.set_element(env, index, &string)?;
    }
    Ok(array)
}

/// Converts a position, which counts from 0. `name` is its name in errors.
///
/// # Errors
/// - [`Error::InvalidArgument`] if it is negative.
pub(crate) fn position<N>(number: N, name: &str) -> Result<usize>
where
    N: Copy + std::fmt::Display + TryInto<usize>,
{
    number
        .try_into()
        .map_err(|_| Error::invalid(format!("{name}: expected 0 or more, found {number}")).into())
}

/// Converts a count to a Java `int`.
pub(crate) fn count(number: usize) -> Result<jint> {
    jint::try_from(number)
        .map_err(|_| Error::Internal(format!("{number} does not fit into a Java int")).into())
}

/// Converts a number of bytes or a dimension to a Java `long`.
pub(crate) fn size(number: usize) -> jlong {
    jlong::try_from(number).unwrap_or(jlong::MAX)
}

/// Returns a Java array of two objects.
pub(crate) fn pair_to_java<'local>(
    env: &mut Env<'local>,
    first: &impl AsRef<JObject<'local>>,
    second: &impl AsRef<JObject<'local>>,
) -> Result<JObjectArray<'local, JObject<'local>>> {
    let pair = JObjectArray::<JObject>::new(env, 2, JObject::null())?;
    pair.set_element(env, 0, first.as_ref())?;
    pair.set_element(env, 1, second.as_ref())?;
    Ok(pair)
}

/// Checks that a reference is not null. `name` is its name in errors.
///
/// # Errors
/// - [`Error::InvalidArgument`] if it is null.
pub(crate) fn reject_null<'local>(
    reference: &impl AsRef<JObject<'local>>,
    name: &str,
) -> Result<()> {
    if reference.as_ref().is_null() {
        return Err(Error::invalid(format!("`{name}` is null")).into());
    }
    Ok(())
}
