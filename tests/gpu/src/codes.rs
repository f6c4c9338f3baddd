//! Compression: single kernels, and pushes with compression.

use std::io;
use std::sync::Arc;

use kvstore::{Backend, Compression, DType, Pairs, Result, backends, create};
use kvstore_core::backend::{DequantizeJob, QuantizeJob};
use kvstore_core::storage::{InOut, Span, SpanMut, Storage};

use crate::bench::Bench;
use crate::data::{CARD, Random, Sizes};
use crate::report::{Bar, Case};
use crate::timing::Call;

const BAR: Bar = Bar::Share(0.80);

pub(crate) fn run(bench: &mut Bench) -> io::Result<()> {
    for (name, per_byte) in [("2bit", 4), ("1bit", 8)] {
        let len = bench.sizes.len(12);
        // Reads the gradient, reads and writes the residual, writes the codes.
        let case = Case::new(format!("quantize_{name}"), 12 * len + len / per_byte, BAR).of(len, 1);
        let note = "the kernel alone";
        bench.case(&case.noted(note), |random, sizes| {
            kernel(name, Kernel::Quantize, random, sizes)
        })?;
        let case = Case::new(format!("dequantize_{name}"), 4 * len + len / per_byte, BAR);
        bench.case(&case.of(len, 1).noted(note), |random, sizes| {
            kernel(name, Kernel::Dequantize, random, sizes)
        })?;
        // A push quantizes, then dequantizes.
        let num_bytes = 16 * len + 2 * len / per_byte;
        let case = Case::new(format!("push_{name}"), num_bytes, BAR).of(len, 1);
        bench.case(&case, |random, sizes| push(name, len, random, sizes))?;
    }
    Ok(())
}

fn push(name: &str, len: usize, random: &Random, sizes: &Sizes) -> Result<Call> {
    let store = create("device")?;
    store.set_gradient_compression(name, Compression::DEFAULT_THRESHOLD)?;
    let mut pushed = Vec::new();
    for set in 0..sizes.sets {
        let key = format!("w{set}");
        store.init(&key, &random.array(len, DType::F32)?)?;
        pushed.push(Pairs::new(&key, vec![random.array(len, DType::F32)?])?);
    }
    Ok(Box::new(move |turn| store.push_pairs(&pushed[turn % pushed.len()], 0)))
}

#[derive(Clone, Copy, Debug)]
enum Kernel {
    Quantize,
    Dequantize,
}

/// The buffers of a kernel: a gradient or a sum, residuals and codes.
struct Set {
    value: Arc<dyn Storage>,
    residual: Arc<dyn Storage>,
    codes: Arc<dyn Storage>,
}

fn kernel(name: &str, which: Kernel, random: &Random, sizes: &Sizes) -> Result<Call> {
    let quantizer = Compression::new(name, Compression::DEFAULT_THRESHOLD)?.of(DType::F32)?;
    let len = sizes.len(12);
    let backend = Arc::clone(backends().of(CARD)?);
    let storage = |num_bytes| storage(&*backend, random, num_bytes);
    let set = |_| {
        let (value, residual) = (storage(4 * len)?, storage(4 * len)?);
        Ok(Set { value, residual, codes: storage(quantizer.code.num_bytes(len))? })
    };
    let mut sets = (0..sizes.sets).map(set).collect::<Result<Vec<Set>>>()?;
    Ok(Box::new(move |turn| {
        let turn = turn % sets.len();
        let Set { value, residual, codes } = &mut sets[turn];
        let (device, dtype) = (CARD, DType::F32);
        match which {
            Kernel::Quantize => {
                let residual = InOut::InPlace(span_mut(residual)?);
                let (gradient, codes) = (span(value), span_mut(codes)?);
                let job = QuantizeJob { quantizer, device, dtype, gradient, residual, codes };
                backend.quantize(&mut [job])
            }
            Kernel::Dequantize => {
                let (codes, dst) = ([span(codes)], span_mut(value)?);
                let job = DequantizeJob { quantizer, device, dtype, codes: &codes, dst };
                backend.dequantize(&mut [job])
            }
        }
    }))
}

fn storage(backend: &dyn Backend, random: &Random, num_bytes: usize) -> Result<Arc<dyn Storage>> {
    let mut storage = backend.allocate(CARD, num_bytes)?;
    backend.write(span_mut(&mut storage)?, &random.bytes(DType::F32, num_bytes))?;
    Ok(storage)
}

fn span(storage: &Arc<dyn Storage>) -> Span<'_> {
    Span { storage: &**storage, start: 0, num_bytes: storage.num_bytes() }
}

fn span_mut(storage: &mut Arc<dyn Storage>) -> Result<SpanMut<'_>> {
    let num_bytes = storage.num_bytes();
    let lost = || kvstore::Error::Internal("memory with another reference".to_owned());
    let storage = Arc::get_mut(storage).ok_or_else(lost)?;
    Ok(SpanMut { storage, start: 0, num_bytes })
}
