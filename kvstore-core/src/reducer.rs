//! The [`Reducer`] seam: where the values of one key become one.

use std::fmt::Debug;
use std::sync::Arc;

use crate::backend::{Backends, DeviceJob, SumJob, run_on_each_device};
use crate::device::Device;
use crate::error::Result;
use crate::tensor::Tensor;

/// Decides where the values of one key become one, and makes them one.
///
/// The bits of a sum do not depend on the reducer: it is the left fold in call order.
pub trait Reducer: Send + Sync + Debug {
    /// Returns the device on which `values` are summed and their key is updated.
    fn home(&self, values: &[Tensor]) -> Device;

    /// Returns the values where they are summed.
    ///
    /// # Errors
    /// Those of [`Tensor::to_device`].
    fn gather(&self, backends: &Backends, values: &[Tensor]) -> Result<Vec<Tensor>> {
        let home = self.home(values);
        values.iter().map(|value| value.to_device(backends, home)).collect()
    }

    /// Returns the sum of each group; a group of one is that value, shared.
    ///
    /// # Errors
    /// Those of [`Tensor::to_device`] and [`Backend::sum`](crate::Backend::sum).
    fn reduce(&self, backends: &Backends, groups: &[Vec<Tensor>]) -> Result<Vec<Tensor>> {
        let groups: Vec<Vec<Tensor>> =
            groups.iter().map(|values| self.gather(backends, values)).collect::<Result<_>>()?;
        let mut sums =
            groups
                .iter()
                .filter_map(|values| values.first().map(|first| (first, values.len())))
                .map(|(first, len)| {
                    if len == 1 {
                        first.compact()
                    } else {
                        first.allocate_like(first.spec().clone())
                    }
                })
                .collect::<Result<Vec<_>>>()?;
        sum_on_each_device(&mut sums, &groups)?;
        Ok(sums)
    }
}

/// Runs the sums of several values as one batch per device.
fn sum_on_each_device(sums: &mut [Tensor], groups: &[Vec<Tensor>]) -> Result<()> {
    let several = sums.iter_mut().zip(groups).filter(|(_, values)| values.len() > 1);
    let jobs = several.map(|(sum, values)| {
        let (backend, device) = (Arc::clone(sum.backend()), sum.device());
        let addends = values.iter().map(Tensor::span).collect();
        let job = SumJob { dtype: sum.dtype(), dst: sum.span_mut()?, addends };
        Ok(DeviceJob { backend, device, job })
    });
    run_on_each_device(jobs.collect::<Result<_>>()?, |backend, jobs| backend.sum(jobs))
}

/// Sums on the host.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostReducer;

impl Reducer for HostReducer {
    fn home(&self, _values: &[Tensor]) -> Device {
        Device::default()
    }
}

/// Sums on the device of the first value.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceReducer;

impl Reducer for DeviceReducer {
    fn home(&self, values: &[Tensor]) -> Device {
        values.first().map_or_else(Device::default, Tensor::device)
    }
}
