//! [`Placements`]: the servers of the keys that this process has used.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kvstore_core::{Key, Optimizer, Result, StepUnit, TensorSpec, Value};

use crate::client::servers::missing;
use crate::proto;
use crate::rules::placement::{home, rows_of};
use crate::wire::{parse_spec, spec_of};

/// Where the value of a key is.
#[derive(Clone, Debug)]
pub(super) struct KeyPlacement {
    pub(super) layout: u64,
    /// The position of the key in the order of initialisation, over all servers.
    pub(super) order: u64,
    /// The type of the complete value.
    pub(super) spec: TensorSpec,
    /// The server that decides whether the key exists. It has the value, or a part of it.
    pub(super) home: usize,
    /// Whether the rows are divided among all servers.
    pub(super) is_divided: bool,
    num_servers: usize,
}

impl KeyPlacement {
    /// Returns where the value of a new key is.
    pub(super) fn new(
        (key, spec): (&Key, &TensorSpec),
        layout: u64,
        is_divided: bool,
        num_servers: usize,
    ) -> Self {
        let home = home(key.as_str(), num_servers);
        Self { layout, order: layout, spec: spec.clone(), home, is_divided, num_servers }
    }

    /// Returns where the value is, according to a server that has it or a part of it.
    pub(super) fn of(value: &proto::Value, num_servers: usize) -> Result<Self> {
        let placement = value.placement.as_ref().ok_or_else(|| missing("layout"))?;
        let complete = placement.complete.as_ref();
        Ok(Self {
            layout: placement.layout,
            order: placement.order,
            spec: parse_spec(complete.or(value.spec.as_ref()))?,
            home: home(&value.key, num_servers),
            is_divided: complete.is_some(),
            num_servers,
        })
    }

    /// Returns the servers that have the value or parts of it, in the order of the parts.
    pub(super) fn servers(&self) -> Range<usize> {
        if self.is_divided { 0..self.num_servers } else { self.home..self.home + 1 }
    }

    /// Returns the rows of a server's part, or `None` if the value is complete.
    pub(super) fn rows(&self, server: usize) -> Option<Range<usize>> {
        let num_rows = self.spec.shape().num_rows();
        self.is_divided.then(|| rows_of(num_rows, server, self.num_servers))
    }

    /// Returns the part of a value for a server.
    pub(super) fn part_of(&self, value: &Value, server: usize) -> Result<Value> {
        self.rows(server).map_or_else(|| Ok(value.clone()), |rows| value.slice_rows(rows))
    }

    /// Returns the type of a server's part.
    pub(super) fn part_spec(&self, server: usize) -> TensorSpec {
        let Some(rows) = self.rows(server) else { return self.spec.clone() };
        let mut dims = Vec::from(self.spec.shape().dims());
        if let Some(first) = dims.first_mut() {
            *first = rows.len();
        }
        TensorSpec::new(dims, self.spec.dtype())
    }

    /// Returns the message for a server.
    pub(super) fn message(&self, server: usize) -> proto::Placement {
        proto::Placement {
            layout: self.layout,
            order: self.order,
            complete: self.is_divided.then(|| spec_of(&self.spec)),
            first_row: self.rows(server).map_or(0, |rows| rows.start as u64),
        }
    }

    /// Returns the message for a call on a key that the server knows.
    pub(super) fn known(&self) -> proto::Placement {
        proto::Placement { layout: self.layout, ..proto::Placement::default() }
    }
}

/// Returns whether a new value is divided: if it has more than `divide_above` bytes and `unit`
/// allows it.
pub(super) fn is_divided(
    spec: &TensorSpec,
    (divide_above, unit): (usize, StepUnit),
    num_servers: usize,
) -> bool {
    matches!(unit, StepUnit::Element | StepUnit::Row) && is_large(spec, divide_above, num_servers)
}

/// Returns whether a value has more than `divide_above` bytes and a row for every server.
pub(super) fn is_large(spec: &TensorSpec, divide_above: usize, num_servers: usize) -> bool {
    let num_bytes = spec.num_elements().saturating_mul(spec.dtype().size());
    let num_rows = spec.shape().dims().first().copied().unwrap_or_default();
    num_bytes > divide_above && num_rows >= num_servers
}

/// Returns where the optimizer allows a value to be divided.
pub(super) fn unit_of(optimizer: Option<&Optimizer>) -> StepUnit {
    optimizer.map_or(StepUnit::Element, Optimizer::unit)
}

/// A cache of placements. They may be out of date: another worker may have removed a key and
/// initialised it again.
#[derive(Debug, Default)]
pub(super) struct Placements(Mutex<HashMap<Key, Arc<KeyPlacement>>>);

impl Placements {
    fn known(&self) -> MutexGuard<'_, HashMap<Key, Arc<KeyPlacement>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, key: &Key) -> Option<Arc<KeyPlacement>> {
        self.known().get(key).cloned()
    }

    pub(super) fn put(&self, key: &Key, placed: Arc<KeyPlacement>) {
        self.known().insert(key.clone(), placed);
    }

    /// Removes placements that are out of date.
    pub(super) fn forget<'a>(&self, keys: impl IntoIterator<Item = &'a Key>) {
        let mut known = self.known();
        for key in keys {
            known.remove(key);
        }
    }
}
