//! [`CpuBackend`]: the backend of the host.

mod arithmetic;
mod elementwise;
mod features;
mod free_blocks;
mod half;
mod in_out;
mod lanes;
mod matrix;
mod measure;
mod memory;
mod quantize;
mod reduce;
mod rounding;
mod rows;
mod size_class;
mod sum;
mod taken;
mod threads;
mod update;

use std::num::NonZeroUsize;
use std::sync::Arc;

use crate::backend::{
    Backend, Check, DequantizeJob, DeviceMemory, InOut, Jobs, MatmulSize, MeasureJob, Operand,
    QuantizeJob, RowScatterJob, RowSumJob, RowUpdateJob, Span, SpanMut, Storage, SumJob, UpdateJob,
};
use crate::noise::Distribution;
use crate::types::{
    BinaryOp, DType, Device, DeviceKind, Error, Reduction, Result, Scalar, UnaryOp, with_element,
    with_float,
};

use memory::{Memory, bytes, bytes_mut, elements, elements_mut, part_mut};
use threads::Workers;

/// The backend of the host's memory and cores.
///
/// All devices `cpu(i)` share the same memory. Kernels run in the calling thread and in the thread
/// pool of the backend. If the calling thread belongs to a rayon pool, kernels run in that thread
/// only: a rayon thread that waits may run another task of its pool, while its caller holds a lock.
#[derive(Debug)]
pub struct CpuBackend {
    memory: Arc<Memory>,
    workers: Workers,
}

impl CpuBackend {
    /// Returns a backend with one thread per core that the process may use.
    #[allow(clippy::new_ret_no_self, reason = "callers use a backend only as `dyn Backend`")]
    pub fn new() -> Arc<dyn Backend> {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self::with_threads(cores)
    }

    /// Returns a backend with `num_threads` threads, including the calling thread. Results have the
    /// same bits for any number of threads.
    pub fn with_threads(num_threads: usize) -> Arc<dyn Backend> {
        Arc::new(Self { memory: Memory::new(), workers: Workers::new(num_threads) })
    }
}

impl Drop for CpuBackend {
    fn drop(&mut self) {
        // Pooled blocks reference the memory that owns the pool. Clearing the pool breaks the
        // cycle.
        self.memory.trim();
    }
}

impl Backend for CpuBackend {
    fn kind(&self) -> DeviceKind {
        DeviceKind::Cpu
    }

    fn description(&self) -> String {
        format!("{} threads, {}", self.workers.num_threads(), features::found().join(" "))
    }

    fn allocate(&self, device: Device, num_bytes: usize) -> Result<Arc<dyn Storage>> {
        self.memory.allocate(device, num_bytes)
    }

    fn recycle(&self, storage: &mut Arc<dyn Storage>) {
        self.memory.recycle(storage);
    }

    fn live_bytes(&self) -> usize {
        self.memory.live_bytes()
    }

    fn pooled_bytes(&self) -> usize {
        self.memory.pooled_bytes()
    }

    fn memory(&self) -> Vec<DeviceMemory> {
        let (live, pooled) = (self.live_bytes(), self.pooled_bytes());
        Vec::from([DeviceMemory { device: Device::cpu(0), live, pooled, total: None }])
    }

    fn trim(&self) {
        self.memory.trim();
    }

    fn memory_limit(&self) -> Option<usize> {
        self.memory.limit()
    }

    fn set_memory_limit(&self, num_bytes: Option<usize>) {
        self.memory.set_limit(num_bytes);
    }

    fn shares_memory(&self, a: Device, b: Device) -> bool {
        a.kind() == b.kind()
    }

    fn write(&self, dst: SpanMut<'_>, host: &[u8]) -> Result<()> {
        self.workers.copy(bytes_mut(dst)?, host);
        Ok(())
    }

    fn read(&self, src: Span<'_>, host: &mut [u8]) -> Result<()> {
        self.workers.copy(host, bytes(src)?);
        Ok(())
    }

    fn host_bytes<'a>(&self, src: Span<'a>) -> Result<&'a [u8]> {
        bytes(src)
    }

    fn host_bytes_mut<'a>(&self, dst: SpanMut<'a>) -> Result<&'a mut [u8]> {
        bytes_mut(dst)
    }

    fn copy(&self, dst: SpanMut<'_>, src: Span<'_>) -> Result<()> {
        self.workers.copy(bytes_mut(dst)?, bytes(src)?);
        Ok(())
    }

    fn broadcast(&self, dst: SpanMut<'_>, places: &[usize], src: Span<'_>) -> Result<()> {
        let (dst, src) = (bytes_mut(dst)?, bytes(src)?);
        for &place in places {
            self.workers.copy(part_mut(dst, place, src.len())?, src);
        }
        Ok(())
    }

    fn fill(&self, dtype: DType, dst: SpanMut<'_>, value: Scalar) -> Result<()> {
        with_element!(dtype, T => {
            let value: T = value.to_element();
            self.workers.for_each_piece(elements_mut::<T>(dst)?, |piece| piece.fill(value));
        });
        Ok(())
    }

    fn random(
        &self,
        dtype: DType,
        dst: SpanMut<'_>,
        distribution: Distribution,
        stream: [u32; 2],
        call: u64,
    ) -> Result<()> {
        with_element!(dtype, T => {
            let dst = elements_mut::<T>(dst)?;
            elementwise::fill_by_index(&self.workers, dst, |index| {
                Scalar::Float(distribution.sample(stream, call, index)).to_element()
            });
        });
        Ok(())
    }

    fn cast(&self, from: DType, src: Span<'_>, to: DType, dst: SpanMut<'_>) -> Result<()> {
        let workers = &self.workers;
        // Processors have vector instructions that convert between `f32` and half precision.
        match (from, to) {
            (DType::F32, half) if half.is_half() => {
                with_float!(half,
                    full _A => {},
                    half H => elementwise::narrow(workers, elements(src)?, elements_mut::<H>(dst)?),
                    integer => {}
                );
            }
            (half, DType::F32) if half.is_half() => {
                with_float!(half,
                    full _A => {},
                    half H => elementwise::widen(workers, elements::<H>(src)?, elements_mut(dst)?),
                    integer => {}
                );
            }
            _ => with_element!(from, S => with_element!(to, D => {
                elementwise::cast(workers, elements::<S>(src)?, elements_mut::<D>(dst)?);
            })),
        }
        Ok(())
    }

    fn sum(&self, jobs: &mut Jobs<'_, SumJob<'_>>) -> Result<()> {
        taken::with_sums(jobs, |jobs| self.workers.for_each_job(jobs))
    }

    fn reserve_sums(&self, num_jobs: usize) -> Result<()> {
        taken::reserve_sums(num_jobs)
    }

    fn reserve_updates(&self, num_jobs: usize) -> Result<()> {
        taken::reserve_updates(num_jobs)
    }

    fn update(&self, jobs: &mut Jobs<'_, UpdateJob<'_>>) -> Result<()> {
        taken::with_updates(jobs, |jobs| self.workers.for_each_job(jobs))
    }

    fn measure(&self, jobs: &mut [MeasureJob<'_>]) -> Result<()> {
        self.workers.for_each_job(jobs)
    }

    fn sum_rows(&self, jobs: &mut [RowSumJob<'_>]) -> Result<()> {
        let ranges = rows::ranges(jobs)?;
        self.workers.for_each_job(&mut rows::with_ranges(jobs, &ranges)?)
    }

    fn scatter_rows(&self, jobs: &mut [RowScatterJob<'_>]) -> Result<()> {
        self.workers.for_each_job(jobs)
    }

    fn update_rows(&self, jobs: &mut [RowUpdateJob<'_>]) -> Result<()> {
        let ranges = rows::ranges(jobs)?;
        let (mut others, mut rowwise) = rows::rowwise::by_kind(rows::with_ranges(jobs, &ranges)?)?;
        self.workers.for_each_job(&mut others)?;
        self.workers.for_each_job(&mut rowwise)
    }

    fn quantize(&self, jobs: &mut [QuantizeJob<'_>]) -> Result<()> {
        self.workers.for_each_job(jobs)
    }

    fn dequantize(&self, jobs: &mut [DequantizeJob<'_>]) -> Result<()> {
        self.workers.for_each_job(jobs)
    }

    fn binary(
        &self,
        op: BinaryOp,
        dtype: DType,
        lhs: InOut<'_>,
        rhs: Operand<'_>,
        reversed: bool,
    ) -> Result<()> {
        with_element!(dtype, T => elementwise::binary::<T>(&self.workers, op, lhs, rhs, reversed))
    }

    fn unary(&self, op: UnaryOp, dtype: DType, operand: InOut<'_>) -> Result<()> {
        with_element!(dtype, T => elementwise::unary::<T>(&self.workers, op, operand))
    }

    fn clip(&self, dtype: DType, operand: InOut<'_>, low: Scalar, high: Scalar) -> Result<()> {
        with_element!(dtype, T => elementwise::clip::<T>(&self.workers, operand, low, high))
    }

    fn reduce(&self, op: Reduction, dtype: DType, dst: SpanMut<'_>, src: Span<'_>) -> Result<()> {
        with_element!(dtype, T => {
            let result = reduce::reduce(&self.workers, op, elements::<T>(src)?)?;
            elements_mut::<T>(dst)?.fill(result);
        });
        Ok(())
    }

    fn expand(
        &self,
        dtype: DType,
        dst: SpanMut<'_>,
        to: &[usize],
        src: Span<'_>,
        from: &[usize],
    ) -> Result<()> {
        with_element!(dtype, T => {
            let (dst, src) = (elements_mut::<T>(dst)?, elements::<T>(src)?);
            elementwise::expand(&self.workers, dst, to, src, from);
        });
        Ok(())
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
        let workers = &self.workers;
        match dtype {
            DType::F32 => matrix::product::<f32>(workers, dst, lhs, rhs, size, check),
            DType::F64 => matrix::product::<f64>(workers, dst, lhs, rhs, size, check),
            _ => Err(Error::Unsupported(format!("matrix product of {dtype} on the host"))),
        }
    }

    fn transpose(&self, dtype: DType, dst: SpanMut<'_>, src: Span<'_>, rows: usize) -> Result<()> {
        with_element!(dtype, T => {
            matrix::transpose(elements_mut::<T>(dst)?, elements::<T>(src)?, rows);
        });
        Ok(())
    }

    fn argmax(&self, dtype: DType, dst: SpanMut<'_>, src: Span<'_>, rows: usize) -> Result<()> {
        with_element!(dtype, T => {
            reduce::argmax(elements_mut::<T>(dst)?, elements::<T>(src)?, rows);
        });
        Ok(())
    }

    fn synchronize(&self, _device: Device) -> Result<()> {
        Ok(())
    }
}
