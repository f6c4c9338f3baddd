//! The members of a group, as Python objects.

use kvstore::{GroupMember, Rewound};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyList;

use crate::interpreter::{finalization, lists};

/// Returns a list of `Member`s.
pub(crate) fn to_python<'py>(
    py: Python<'py>,
    members: &[GroupMember],
) -> PyResult<Bound<'py, PyList>> {
    static MEMBER: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let class = MEMBER.import(py, "mxkv.kvstore", "Member")?;
    let members = members.iter().map(|member| {
        finalization::call(class, (&member.name, member.rank, member.is_reader), None)
    });
    lists::try_new(py, members)
}

/// Returns a callback that calls a Python function with a server that was rewound. An exception of
/// the function is reported by `sys.unraisablehook`.
pub(crate) fn rewind_caller(function: Py<PyAny>) -> impl Fn(&Rewound) + Send + Sync + 'static {
    static REWOUND: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    move |rewound| {
        let _ = Python::try_attach(|py| {
            let function = function.bind(py);
            let called = REWOUND.import(py, "mxkv.kvstore", "Rewound").and_then(|class| {
                let event = finalization::call(class, (&rewound.server, rewound.version), None)?;
                finalization::call(function, (event,), None)
            });
            if let Err(error) = called {
                finalization::write_unraisable(error, function);
            }
        });
    }
}

/// Returns a callback that calls a Python function with the live members. An exception of the
/// function is reported by `sys.unraisablehook`.
pub(crate) fn caller(function: Py<PyAny>) -> impl Fn(&[GroupMember]) + Send + 'static {
    move |members| {
        // The interpreter does not wait for the thread of the callback, and may have ended.
        let _ = Python::try_attach(|py| {
            let function = function.bind(py);
            let called = to_python(py, members)
                .and_then(|members| finalization::call(function, (members,), None));
            if let Err(error) = called {
                finalization::write_unraisable(error, function);
            }
        });
    }
}
