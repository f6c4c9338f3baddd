//! The methods of [`CudaBackend`]. Operations with a kernel are queued. The host runs the others on
//! copies.

#![expect(unsafe_code, reason = "queues work on memory of GPUs")]

use super::CudaBackend;
use std::mem::discriminant;
use std::sync::Arc;

use kvstore_core::backend::{
    self, DequantizeJob, Jobs, MatmulSize, MeasureJob, Operand, QuantizeJob, RowScatterJob,
    RowSumJob, RowUpdateJob,
};
use kvstore_core::fallible;
use kvstore_core::optimizer::MAX_STATES;
use kvstore_core::storage::{InOut, Span, SpanMut, Storage};
use kvstore_core::{
    Backend, BinaryOp, Check, DType, Device, DeviceInterop, DeviceKind, DeviceMemory, Distribution,
    Error, Reduction, Result, Scalar, UnaryOp,
};

use super::broadcast;
use super::elementwise;
use super::host;
use super::launch::Launches;
use super::measure;
use super::reduce;
use super::rows;
use super::transpose;
use crate::args::cast::{self, CastArgs};
use crate::args::fan::FanJob;
use crate::args::update::{self, FromTo, UpdateArgs, UpdateJob};
use crate::args::{quantize, sum};
use crate::driver::card::Card;
use crate::driver::memory::{address_of, address_on, from_to, locate, reading};

impl Backend for CudaBackend {
    fn kind(&self) -> DeviceKind {
        DeviceKind::Gpu
    }

    fn description(&self) -> String {
        let devices = self.memory.devices().all();
        let devices: Vec<_> = devices.map(|(device, card)| format!("{device}: {card}")).collect();
        format!("{}, {}", self.driver, devices.join(", "))
    }

    fn allocate(&self, device: Device, num_bytes: usize) -> Result<Arc<dyn Storage>> {
        Ok(Arc::new(self.memory.allocate(device, num_bytes)?))
    }

    fn recycle(&self, _storage: &mut Arc<dyn Storage>) {
        // A storage returns its block to the pool when it is dropped.
    }

    fn check_process(&self) -> Result<()> {
        self.origin.check("the CUDA backend", "start this process with `spawn`")
    }

    fn live_bytes(&self) -> usize {
        self.memory.live_bytes()
    }

    fn pooled_bytes(&self) -> usize {
        self.memory.pooled_bytes()
    }

    fn memory(&self) -> Vec<DeviceMemory> {
        self.memory.of_devices()
    }

    fn trim(&self) {
        if let Err(error) = self.memory.trim() {
            tracing::warn!(%error, "unused memory of a device could not be freed");
        }
    }

    fn memory_limit(&self) -> Option<usize> {
        self.memory.limit()
    }

    fn set_memory_limit(&self, num_bytes: Option<usize>) {
        self.memory.set_limit(num_bytes);
    }

    fn shares_memory(&self, a: Device, b: Device) -> bool {
        a == b
    }

    fn write(&self, dst: SpanMut<'_>, host: &[u8]) -> Result<()> {
        let (card, address) = locate(reading(&dst))?;
        if dst.num_bytes != host.len() {
            return Err(Error::Internal("bytes for a range of another length".to_owned()));
        }
        // SAFETY: the range is memory of the GPU and has the length of `host`.
        unsafe { self.staging.upload(card, address, &[host]) }
    }

    fn read(&self, src: Span<'_>, host: &mut [u8]) -> Result<()> {
        let (card, address) = locate(src)?;
        if src.num_bytes != host.len() {
            return Err(Error::Internal("room for a range of another length".to_owned()));
        }
        // SAFETY: the range is memory of the GPU and has the length of `host`.
        unsafe { self.staging.download(card, address, host) }
    }

    fn host_bytes<'a>(&self, _src: Span<'a>) -> Result<&'a [u8]> {
        Err(unseen())
    }

    fn host_bytes_mut<'a>(&self, _dst: SpanMut<'a>) -> Result<&'a mut [u8]> {
        Err(unseen())
    }

    fn copy(&self, dst: SpanMut<'_>, src: Span<'_>) -> Result<()> {
        let (to, from) = (locate(reading(&dst))?, locate(src)?);
        if dst.num_bytes != src.num_bytes {
            return Err(Error::Internal("a copy between different lengths".to_owned()));
        }
        if src.num_bytes == 0 {
            return Ok(());
        }
        if to.0.device() == from.0.device() {
            // SAFETY: both ranges are memory of the GPU and have the same length. `dst` is
            // exclusive, so they do not overlap.
            unsafe { to.0.copy(to.1, from.1, src.num_bytes) }
        } else {
            // SAFETY: both ranges are memory of their GPUs and have the same length.
            unsafe { to.0.copy_from(to.1, (from.0, from.1), src.num_bytes) }
        }
    }

    fn broadcast(&self, mut dst: SpanMut<'_>, places: &[usize], src: Span<'_>) -> Result<()> {
        broadcast::broadcast(self, &mut dst, places, src)
    }

    fn fill(&self, dtype: DType, dst: SpanMut<'_>, value: Scalar) -> Result<()> {
        elementwise::fill(dtype, &dst, value)
    }

    fn random(
        &self,
        dtype: DType,
        dst: SpanMut<'_>,
        distribution: Distribution,
        stream: [u32; 2],
        call: u64,
    ) -> Result<()> {
        elementwise::random(dtype, &dst, distribution, stream, call)
    }

    fn cast(&self, from: DType, src: Span<'_>, to: DType, dst: SpanMut<'_>) -> Result<()> {
        let len = src.num_bytes / from.size();
        if len != dst.num_bytes / to.size() {
            return Err(Error::Internal("a conversion between different lengths".to_owned()));
        }
        if from == to {
            return self.copy(dst, src);
        }
        let (card, dst) = locate(reading(&dst))?;
        let src = address_on(card, src)?;
        let args = CastArgs::new((src, from), (dst, to), len as u64);
        // SAFETY: both ranges are memory of the GPU and have `len` elements.
        unsafe { card.launch(card.function(&cast::kernel(from, to))?, &args, args.num_tiles()) }
    }

    fn sum(&self, jobs: &mut Jobs<'_, backend::SumJob<'_>>) -> Result<()> {
        let mut launches = Launches::<_, FanJob>::new();
        let mut addends = Vec::new();
        for job in jobs {
            let backend::SumJob { device, dtype, dst, addends: spans } = job?;
            let card = self.card(device)?;
            set_addresses(&mut addends, card, spans, dst.num_bytes)?;
            let (num_bytes, size) = (dst.num_bytes as u64, dtype.size() as u64);
            let kind = (dtype, sum::is_pair(dtype, addends.len()));
            let batch = launches.batch(card, kind, || Ok(sum::kernel(kind.0, kind.1)))?;
            batch.push(address_of(card, &dst)?, &addends, num_bytes, size)?;
        }
        // SAFETY: the ranges are memory of the GPU and have the length of the sum.
        unsafe { launches.run(self) }
    }

    fn update(&self, jobs: &mut Jobs<'_, backend::UpdateJob<'_>>) -> Result<()> {
        let mut launches = Launches::<_, UpdateJob>::new();
        let (mut on_host, mut addends) = (Vec::new(), Vec::new());
        for job in jobs {
            let job = job?;
            let card = self.card(job.device)?;
            let num_bytes = job.weight.num_bytes();
            if num_bytes == 0 {
                continue;
            }
            if !update::has_kernel(job.rule) {
                fallible::push(&mut on_host, job)?;
                continue;
            }
            set_addresses(&mut addends, card, job.addends, num_bytes)?;
            let mut states = [FromTo::default(); MAX_STATES];
            let mut num_states = 0;
            for (slot, state) in states.iter_mut().zip(job.states.iter().flatten()) {
                *slot = from_to(card, state)?;
                num_states += 1;
            }
            let kind = (discriminant(job.rule), job.dtype);
            let kernel = || update::kernel(job.rule, job.dtype).ok_or_else(|| no_float(job.dtype));
            launches.batch(card, kind, kernel)?.push(&UpdateArgs {
                rule: job.rule,
                dtype: job.dtype,
                len: (num_bytes / job.dtype.size()) as u64,
                weight: from_to(card, &job.weight)?,
                states: states.get(..num_states).unwrap_or_default(),
                addends: &addends,
            })?;
        }
        // SAFETY: the ranges are memory of the GPU and have as many elements as the weight.
        unsafe { launches.run(self) }?;
        on_host.into_iter().try_for_each(|job| host::update(self, job))
    }

    fn measure(&self, jobs: &mut [MeasureJob<'_>]) -> Result<()> {
        measure::measure(self, jobs)
    }

    fn plans_rows(&self) -> bool {
        true
    }

    fn sum_rows(&self, jobs: &mut [RowSumJob<'_>]) -> Result<()> {
        rows::sum_rows(self, jobs)
    }

    fn scatter_rows(&self, jobs: &mut [RowScatterJob<'_>]) -> Result<()> {
        rows::scatter_rows(self, jobs)
    }

    fn update_rows(&self, jobs: &mut [RowUpdateJob<'_>]) -> Result<()> {
        rows::update_rows(self, jobs)
    }

    fn quantize(&self, jobs: &mut [QuantizeJob<'_>]) -> Result<()> {
        let mut launches = Launches::<_, quantize::QuantizeJob>::new();
        for job in jobs {
            let card = self.card(job.device)?;
            let (code, dtype) = (job.quantizer.code, job.dtype);
            let len = job.gradient.num_bytes / job.dtype.size();
            let gradient = address_on(card, job.gradient)?;
            let residual = from_to(card, &job.residual)?;
            let codes = address_of(card, &job.codes)?;
            let arithmetic = dtype.arithmetic().ok_or_else(|| no_float(dtype))?;
            if job.codes.num_bytes != job.quantizer.code.num_bytes(len)
                || job.residual.num_bytes() != len * arithmetic.size()
            {
                return Err(Error::Internal("residuals or codes of another length".to_owned()));
            }
            let kernel = || quantize::quantize_kernel(code, dtype).ok_or_else(|| no_float(dtype));
            let batch = launches.batch(card, (code, dtype), kernel)?;
            batch.push(job.quantizer, dtype, len as u64, (gradient, residual, codes))?;
        }
        // SAFETY: the ranges are memory of the GPU, and their lengths match.
        unsafe { launches.run(self) }
    }

    fn dequantize(&self, jobs: &mut [DequantizeJob<'_>]) -> Result<()> {
        let mut launches = Launches::<_, quantize::DequantizeJob>::new();
        for job in jobs {
            let card = self.card(job.device)?;
            let (code, dtype) = (job.quantizer.code, job.dtype);
            let len = job.dst.num_bytes / dtype.size();
            let codes = addresses(card, job.codes, job.quantizer.code.num_bytes(len))?;
            let dst = address_of(card, &job.dst)?;
            let kernel = || quantize::dequantize_kernel(code, dtype).ok_or_else(|| no_float(dtype));
            let batch = launches.batch(card, (code, dtype), kernel)?;
            batch.push(job.quantizer, dtype, len as u64, (&codes, dst))?;
        }
        // SAFETY: the ranges are memory of the GPU, and the codes have the length for the sum.
        unsafe { launches.run(self) }
    }

    fn binary(
        &self,
        op: BinaryOp,
        dtype: DType,
        lhs: InOut<'_>,
        rhs: Operand<'_>,
        reversed: bool,
    ) -> Result<()> {
        elementwise::binary(self, op, dtype, lhs, rhs, reversed)
    }

    fn unary(&self, op: UnaryOp, dtype: DType, operand: InOut<'_>) -> Result<()> {
        elementwise::unary(self, op, dtype, operand)
    }

    fn clip(&self, dtype: DType, operand: InOut<'_>, low: Scalar, high: Scalar) -> Result<()> {
        elementwise::clip(dtype, &operand, (low, high))
    }

    fn reduce(&self, op: Reduction, dtype: DType, dst: SpanMut<'_>, src: Span<'_>) -> Result<()> {
        reduce::reduce(self, op, dtype, &dst, src)
    }

    fn expand(
        &self,
        dtype: DType,
        dst: SpanMut<'_>,
        to: &[usize],
        src: Span<'_>,
        from: &[usize],
    ) -> Result<()> {
        broadcast::expand(self, dtype, dst, (from, to), src)
    }

    fn matmul(
        &self,
        dtype: DType,
        dst: SpanMut<'_>,
        lhs: Span<'_>,
        rhs: Span<'_>,
        size: MatmulSize,
        check: &Check<'_>,
    ) -> Result<()> {
        host::make_of(self, dst, &[lhs, rhs], |host, dst, src| {
            host.matmul(dtype, dst, src[0], src[1], size, check)
        })
    }

    fn transpose(&self, dtype: DType, dst: SpanMut<'_>, src: Span<'_>, rows: usize) -> Result<()> {
        transpose::transpose(self, dtype, dst, src, rows)
    }

    fn argmax(&self, dtype: DType, dst: SpanMut<'_>, src: Span<'_>, rows: usize) -> Result<()> {
        reduce::argmax(self, dtype, &dst, src, rows)
    }

    fn synchronize(&self, device: Device) -> Result<()> {
        self.memory.devices().synchronize(device)
    }

    fn interop(&self) -> Option<&dyn DeviceInterop> {
        Some(self)
    }
}

/// Replaces a list by the addresses of ranges of the same length on a GPU.
fn set_addresses(
    list: &mut Vec<u64>,
    card: &Card,
    spans: &[Span<'_>],
    num_bytes: usize,
) -> Result<()> {
    list.clear();
    fallible::reserve(list, spans.len())?;
    for span in spans {
        if span.num_bytes != num_bytes {
            return Err(other_length());
        }
        list.push(address_on(card, *span)?);
    }
    if spans.is_empty() { Err(other_length()) } else { Ok(()) }
}

/// Returns the addresses of ranges of the same length on a GPU.
pub(crate) fn addresses(card: &Card, spans: &[Span<'_>], num_bytes: usize) -> Result<Vec<u64>> {
    let mut list = Vec::new();
    set_addresses(&mut list, card, spans, num_bytes)?;
    Ok(list)
}

fn other_length() -> Error {
    Error::Internal("addends of another length than their sum".to_owned())
}

fn unseen() -> Error {
    Error::Unsupported("the host does not see the memory of a GPU".to_owned())
}

pub(crate) fn no_float(dtype: DType) -> Error {
    Error::Internal(format!("weights and gradients cannot have the dtype {dtype}"))
}
