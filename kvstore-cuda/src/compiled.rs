//! The compiled kernels: their code for some generations of GPUs, and their PTX, which drivers
//! compile for the others.
//!
//! `make kernels` writes both, as two streams of LZMA2. A stream is unpacked when it is needed: a
//! process needs the code for one generation, or the PTX.

use std::ffi::CString;
use std::io::{self, Read};
use std::sync::OnceLock;

use kvstore_core::{Error, Result, fallible};
use lzma_rust2::Lzma2Reader;

/// The number of generations with their own code.
const NUM_GENERATIONS: usize = 4;

/// How far back a stream may refer, as in `scripts/kernels.py`.
const DICTIONARY: u32 = 4 << 20;

/// The streams.
const PACKED: &[u8] = include_bytes!("../compiled/kernels.lzma2");

/// The contents of the streams.
const ARCHIVE: Archive = include!("../compiled/kernels.rs");

struct Archive {
    /// The length of the first stream, which has the PTX.
    ptx_bytes: usize,
    /// The compute capability that each code is for. 90 is 9.0. Later GPUs of the same generation
    /// can run it, too.
    capabilities: [i32; NUM_GENERATIONS],
    modules: &'static [Module],
}

/// Kernels that were compiled together.
struct Module {
    kernels: &'static [&'static str],
    /// The lengths of the PTX and of the code for each generation.
    sizes: [usize; 1 + NUM_GENERATIONS],
}

/// Returns the names of all kernels.
pub fn kernels() -> impl Iterator<Item = &'static str> {
    ARCHIVE.modules.iter().flat_map(|module| module.kernels.iter().copied())
}

/// Returns the number of the module with a kernel.
///
/// # Errors
/// - [`Error::Internal`] if there is no such kernel.
pub fn module_of(kernel: &str) -> Result<usize> {
    let found = ARCHIVE.modules.iter().position(|module| module.kernels.contains(&kernel));
    found.ok_or_else(|| Error::Internal(format!("no kernel `{kernel}`")))
}

/// Returns the code of a module for GPUs with this compute capability, or `None` if there is none
/// for their generation. 90 is 9.0.
///
/// # Errors
/// - [`Error::OutOfMemory`] if there is not enough memory.
/// - [`Error::Internal`] if there is no such module.
pub fn code(module: usize, capability: i32) -> Result<Option<&'static [u8]>> {
    static UNPACKED: [OnceLock<Vec<u8>>; NUM_GENERATIONS] =
        [const { OnceLock::new() }; NUM_GENERATIONS];
    let runs = |made: &i32| *made <= capability && made / 10 == capability / 10;
    let Some(generation) = ARCHIVE.capabilities.iter().position(runs) else { return Ok(None) };
    // The second stream has the code of all modules for the first generation, then for the second.
    let size_of = |generation: usize| move |module: &Module| module.sizes[1 + generation];
    let all = |generation: usize| ARCHIVE.modules.iter().map(size_of(generation)).sum::<usize>();
    let unpacked = once(&UNPACKED[generation], || {
        let stream = PACKED.get(ARCHIVE.ptx_bytes..).unwrap_or_default();
        unpack(stream, (0..generation).map(all).sum(), all(generation))
    })?;
    let sizes = ARCHIVE.modules.iter().map(size_of(generation));
    part(unpacked, sizes, module).map(Some)
}

/// Returns the PTX of one kernel. A driver compiles it in 0.1 s, all kernels of a module in up to
/// 3 s.
///
/// # Errors
/// - [`Error::OutOfMemory`] if there is not enough memory.
/// - [`Error::Internal`] if there is no such kernel.
pub fn ptx(kernel: &str) -> Result<CString> {
    static UNPACKED: OnceLock<Vec<u8>> = OnceLock::new();
    let sizes = || ARCHIVE.modules.iter().map(|module| module.sizes[0]);
    let unpacked = once(&UNPACKED, || unpack(PACKED, 0, sizes().sum()))?;
    let module = part(unpacked, sizes(), module_of(kernel)?)?;
    let module = str::from_utf8(module).map_err(damaged)?;
    let missing = || damaged(format!("no PTX of `{kernel}`"));
    let (declarations, entries) = module.split_once(ENTRY).ok_or_else(missing)?;
    let is_it = |entry: &&str| entry.split('(').next() == Some(kernel);
    let entry = entries.split(ENTRY).find(is_it).ok_or_else(missing)?;
    CString::new(format!("{declarations}{ENTRY}{entry}")).map_err(damaged)
}

/// The beginning of a kernel in PTX. Its name follows.
const ENTRY: &str = ".visible .entry ";

/// Returns the value of a cell. Fills it if it is empty.
fn once(cell: &OnceLock<Vec<u8>>, make: impl FnOnce() -> Result<Vec<u8>>) -> Result<&[u8]> {
    if cell.get().is_none() {
        // Another thread may have filled it meanwhile, with the same bytes.
        let _ = cell.set(make()?);
    }
    Ok(cell.get().map(Vec::as_slice).unwrap_or_default())
}

/// Returns `num_bytes` bytes of a stream, after the first `skipped` ones.
fn unpack(stream: &[u8], skipped: usize, num_bytes: usize) -> Result<Vec<u8>> {
    let mut reader = Lzma2Reader::new(stream, DICTIONARY, None);
    io::copy(&mut reader.by_ref().take(skipped as u64), &mut io::sink()).map_err(damaged)?;
    let mut bytes = fallible::zeroed(num_bytes)?;
    reader.read_exact(&mut bytes).map_err(damaged)?;
    Ok(bytes)
}

/// Returns a part of `bytes`, which is a sequence of parts with these sizes.
fn part(bytes: &[u8], sizes: impl Iterator<Item = usize>, number: usize) -> Result<&[u8]> {
    let mut parts = sizes.scan(bytes, |rest, size| {
        let (part, after) = rest.split_at_checked(size)?;
        *rest = after;
        Some(part)
    });
    parts.nth(number).ok_or_else(|| damaged("a part is missing"))
}

fn damaged(reason: impl std::fmt::Display) -> Error {
    Error::Internal(format!("the compiled kernels are damaged: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::{ARCHIVE, ENTRY, code, kernels, module_of, ptx};

    #[test]
    fn each_kernel_has_its_own_ptx() {
        for kernel in kernels() {
            let text = ptx(kernel).unwrap().into_string().unwrap();
            assert!(text.starts_with("//\n// Generated by NVIDIA NVVM Compiler"), "{kernel}");
            assert!(text.contains("\n.version 8.0\n.target sm_70\n"), "{kernel}");
            assert!(text.contains(&format!("{ENTRY}{kernel}(")), "{kernel}");
            assert_eq!(text.matches(ENTRY).count(), 1, "{kernel}");
            assert_eq!(text.matches('{').count(), text.matches('}').count(), "{kernel}");
        }
    }

    #[test]
    fn kernels_are_found_by_their_complete_names() {
        for name in ["kv_sum_f3", "sum_f32", ""] {
            let text = module_of(name).unwrap_err().to_string();
            assert!(text.contains(&format!("no kernel `{name}`")), "{text}");
            assert!(ptx(name).is_err());
        }
    }

    /// GPUs of a generation run its code. Older ones and later generations need the PTX.
    #[test]
    fn generations_have_their_code() {
        let expected = [
            (70, None),
            (75, None),
            (80, Some(80)),
            (86, Some(80)),
            (89, Some(80)),
            (90, Some(90)),
            (100, Some(100)),
            (103, Some(100)),
            (110, None),
            (120, Some(120)),
            (121, Some(120)),
            (130, None),
        ];
        for (capability, expected) in expected {
            for module in 0..ARCHIVE.modules.len() {
                let code = code(module, capability).unwrap();
                assert_eq!(code.map(made_for), expected, "module {module}");
            }
        }
    }

    /// Returns the compute capability in the header of an ELF file.
    fn made_for(code: &[u8]) -> i32 {
        assert!(code.starts_with(b"\x7fELF"));
        let flags = i32::from_le_bytes(code[48..52].try_into().unwrap());
        // Since sm_100, the number is in the second byte.
        if code[8] < 8 { flags & 0xff } else { flags >> 8 & 0xff }
    }
}
