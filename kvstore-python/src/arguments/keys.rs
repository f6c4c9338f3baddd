//! Keys as programs write them: strings or integers. One store has only one of the two kinds.

use std::borrow::Cow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use kvstore::{Key, fallible};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyInt, PyString};

use super::listed::{self, Keys};
use crate::interpreter::error::{invalid, optional, to_python, type_error};
use crate::interpreter::{finalization, lists};

/// The Python type of a key. The store has only strings: an integer is stored as its decimal
/// string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Text = 1,
    Integer = 2,
}

/// The kind of keys of a store: strings or integers. It is fixed once a key is initialised.
#[derive(Debug, Default)]
pub(crate) struct KeyKind {
    /// A [`Kind`], or 0 before the first call. [`UNSETTLED`] is set until the first `init`
    /// succeeds.
    kind: AtomicU8,
}

/// Flag: another kind may still replace this one, because no key is initialised yet.
const UNSETTLED: u8 = 4;

impl KeyKind {
    /// Returns the keys of a call, one or a list, and remembers their kind.
    pub(crate) fn keys(&self, object: &Bound<'_, PyAny>) -> PyResult<Keys> {
        if !listed::is_list(object) {
            return self.one(object).map(|key| Keys::One(key.into_owned()));
        }
        let mut kinds = None;
        let room = fallible::with_capacity(listed::len(object));
        let mut keys = room.map_err(|error| to_python(object.py(), error))?;
        listed::each(object, |element| {
            let kind = Kind::of(element)?;
            let first = *kinds.get_or_insert(kind);
            if kind != first {
                let text = format!(
                    "inconsistent types of keys detected. Expected `{}` like the first key, found \
                     `{}` at position {}",
                    first.name(),
                    kind.name(),
                    keys.len()
                );
                return Err(type_error(element.py(), text));
            }
            lists::push(element.py(), &mut keys, kind.key(element)?.into_owned())
        })?;
        if let Some(kind) = kinds {
            self.remember(object.py(), kind)?;
        }
        Ok(Keys::Many(keys))
    }

    /// Returns the only key of a call, and remembers its kind.
    pub(crate) fn one(&self, object: &Bound<'_, PyAny>) -> PyResult<Cow<'static, Key>> {
        let kind = Kind::of(object)?;
        let key = kind.key(object)?;
        self.remember(object.py(), kind)?;
        Ok(key)
    }

    #[allow(deprecated, reason = "`fetch_update` was renamed after Rust 1.89")]
    fn remember(&self, py: Python<'_>, kind: Kind) -> PyResult<()> {
        let (order, wanted) = (Ordering::Relaxed, kind as u8);
        if self.kind.load(order) == wanted {
            return Ok(());
        }
        let replaced =
        // Relaxed order is enough: no other memory depends on the kind.
            |known: u8| (known == 0 || known & UNSETTLED != 0).then_some(wanted | UNSETTLED);
        match self.kind.fetch_update(order, order, replaced) {
            Err(known) if known != wanted => {
                let text = format!(
                    "Mixed key types are not allowed: expected `{}` like the store's other keys, \
                     found `{}`",
                    kind.other().name(),
                    kind.name()
                );
                Err(type_error(py, text))
            }
            _ => Ok(()),
        }
    }

    /// Fixes the kind, because keys have been initialised.
    pub(crate) fn settle(&self) {
        self.kind.fetch_and(!UNSETTLED, Ordering::Relaxed);
    }

    fn is_integer(&self) -> bool {
        self.kind.load(Ordering::Relaxed) & !UNSETTLED == Kind::Integer as u8
    }

    /// Returns the key as the program writes it: a string or an integer.
    pub(crate) fn as_given<'py>(&self, py: Python<'py>, key: &Key) -> PyResult<Bound<'py, PyAny>> {
        // A restored snapshot may contain strings that are not canonical integers, such as `007`.
        if !self.is_integer() || !is_decimal(key.as_str()) {
            return Ok(PyString::new(py, key.as_str()).into_any());
        }
        match key.as_str().parse::<i64>() {
            Ok(number) => Ok(number.into_pyobject(py)?.into_any()),
            Err(_) => finalization::call(&py.get_type::<PyInt>(), (key.as_str(),), None),
        }
    }
}

impl Kind {
    /// Returns the Python type, for messages.
    fn name(self) -> &'static str {
        match self {
            Self::Text => "str",
            Self::Integer => "int",
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Text => Self::Integer,
            Self::Integer => Self::Text,
        }
    }

    fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        // Fast path: these exact types need no attribute lookup.
        if object.is_exact_instance_of::<PyInt>() {
            return Ok(Self::Integer);
        }
        if object.is_instance_of::<PyString>() {
            return Ok(Self::Text);
        }
        if finalization::has_attribute(object, intern!(object.py(), "__index__"))? {
            return Ok(Self::Integer);
        }
        let found = object.get_type().name()?;
        let text = format!("unexpected type for keys: expected `int` or `str`, found `{found}`");
        Err(type_error(object.py(), text))
    }

    /// Returns the key for an object of this kind.
    fn key(self, object: &Bound<'_, PyAny>) -> PyResult<Cow<'static, Key>> {
        let py = object.py();
        if self == Self::Text {
            let text = object.cast::<PyString>()?;
            return match optional(py, text.to_cow())? {
                Some(text) => of_text(py, &text).map(Cow::Owned),
                None => Err(not_unicode(text)?),
            };
        }
        let number = if object.is_exact_instance_of::<PyInt>() {
            object.clone()
        } else {
            static INDEX: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
            let index = INDEX.import(py, "operator", "index")?;
            finalization::call(index, (object,), None)?
        };
        if let Some(number) = optional(py, number.extract::<i64>())? {
            return of_number(py, number);
        }
        // The integer does not fit into `i64`, so use its decimal string.
        of_text(py, &number.str()?.to_cow()?).map(Cow::Owned)
    }
}

/// Returns the error for a string with unpaired surrogates, which UTF-8 cannot encode.
fn not_unicode(text: &Bound<'_, PyString>) -> PyResult<PyErr> {
    let shown = optional(text.py(), text.repr())?.map(|repr| repr.to_string()).unwrap_or_default();
    Ok(invalid(text.py(), format!("key: expected valid Unicode, found {shown}")))
}

/// Returns whether the string is a canonical decimal integer.
fn is_decimal(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number && (text == "0" || !digits.starts_with('0'))
}

/// Returns a key for a string or an integer. Does not check the kind of other keys.
pub(crate) fn any(object: &Bound<'_, PyAny>) -> PyResult<Key> {
    Kind::of(object)?.key(object).map(Cow::into_owned)
}

/// Returns the key with this name.
pub(crate) fn of_text(py: Python<'_>, text: &str) -> PyResult<Key> {
    Key::new(text).map_err(|error| to_python(py, error))
}

/// Returns the key of an integer. Keys of small integers are cached, because a call may have
/// thousands of them.
fn of_number(py: Python<'_>, number: i64) -> PyResult<Cow<'static, Key>> {
    static FIRST: [OnceLock<Key>; 4096] = [const { OnceLock::new() }; 4096];
    let made = || of_text(py, itoa::Buffer::new().format(number));
    let kept = usize::try_from(number).ok().and_then(|number| FIRST.get(number));
    let Some(kept) = kept else { return made().map(Cow::Owned) };
    if let Some(key) = kept.get() {
        return Ok(Cow::Borrowed(key));
    }
    let key = made()?;
    Ok(Cow::Borrowed(kept.get_or_init(|| key)))
}
