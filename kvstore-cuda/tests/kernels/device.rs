//! The kernels compiled as C++, running on the memory of this process.

#![expect(unsafe_code, reason = "calls the compiled kernels with addresses of this process")]

use std::sync::OnceLock;

use kvstore_cuda::update::FromTo;
use libloading::Library;

/// A kernel. Its parameters are the argument, the number of blocks and the order of the threads.
type Kernel = unsafe extern "C" fn(*const u8, u32, u32);

/// Returns the library with all kernels: the emulated driver contains them.
fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let path = kvstore_emulator::folder().unwrap().join("libcuda.so");
        // SAFETY: the library was built from our sources, and runs no code when it is loaded.
        unsafe { Library::new(&path) }.unwrap()
    })
}

/// Runs a kernel.
///
/// # Safety
/// - `args` has the type of the kernel's argument.
/// - Every address in it refers to memory of the length that the argument gives.
/// - No one else uses that memory during the call.
pub(crate) unsafe fn launch<A>(name: &str, args: &A, num_blocks: u32, order: u32) {
    // SAFETY: all kernels have this type.
    let kernel = unsafe { library().get::<Kernel>(name) }.unwrap();
    // SAFETY: the caller guarantees it.
    unsafe { kernel(std::ptr::from_ref(args).cast(), num_blocks, order) };
}

/// Returns the numbers of a function that describes the layout of structs.
pub(crate) fn layout<const N: usize>(name: &str) -> [u64; N] {
    let mut numbers = [0; N];
    // SAFETY: all functions that describe layouts have this type.
    let function = unsafe { library().get::<unsafe extern "C" fn(*mut u64)>(name) }.unwrap();
    // SAFETY: the function writes `N` numbers: each caller passes the number of its function.
    unsafe { function(numbers.as_mut_ptr()) };
    numbers
}

/// Memory for some bytes, surrounded by marked bytes that must not change.
#[derive(Debug)]
pub(crate) struct Memory {
    words: Vec<u128>,
    start: usize,
    num_bytes: usize,
}

const MARK: u8 = 0xa5;
const MARGIN: usize = 64;

impl Memory {
    /// Returns memory that starts `beyond` bytes after a multiple of 16.
    pub(crate) fn new(content: &[u8], beyond: usize) -> Self {
        let num_words = (content.len() + beyond + 2 * MARGIN).div_ceil(16);
        let words = vec![u128::from_ne_bytes([MARK; 16]); num_words];
        let mut memory = Self { words, start: MARGIN + beyond, num_bytes: content.len() };
        let range = memory.start..memory.start + content.len();
        memory.all_mut()[range].copy_from_slice(content);
        memory
    }

    pub(crate) fn num_bytes(&self) -> usize {
        self.num_bytes
    }

    pub(crate) fn address(&mut self) -> u64 {
        self.all_mut().as_mut_ptr() as u64 + self.start as u64
    }

    /// Returns the contents. Checks that the marked bytes have not changed.
    pub(crate) fn content(&mut self) -> Vec<u8> {
        let (start, end) = (self.start, self.start + self.num_bytes);
        let all = self.all_mut();
        assert!(all[..start].iter().chain(&all[end..]).all(|byte| *byte == MARK), "out of bounds");
        all[start..end].to_vec()
    }

    fn all_mut(&mut self) -> &mut [u8] {
        let len = 16 * self.words.len();
        // SAFETY: the words have this number of bytes, and all bits are valid.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), len) }
    }
}

/// Memory that is read and written: in place, or with a separate destination.
#[derive(Debug)]
pub(crate) struct Range {
    from: Memory,
    to: Option<Memory>,
}

impl Range {
    /// Returns memory that starts `beyond` bytes after a multiple of 16. `to` is the same for the
    /// separate destination, or `None` to write in place.
    pub(crate) fn new(content: &[u8], beyond: usize, to: Option<usize>) -> Self {
        let to = to.map(|beyond| Memory::new(&vec![0; content.len()], beyond));
        Self { from: Memory::new(content, beyond), to }
    }

    pub(crate) fn addresses(&mut self) -> FromTo {
        let from = self.from.address();
        FromTo { from, to: self.to.as_mut().map_or(from, Memory::address) }
    }

    pub(crate) fn result(&mut self) -> Vec<u8> {
        self.to.as_mut().unwrap_or(&mut self.from).content()
    }

    /// Checks that the source has not changed, unless it is written in place.
    pub(crate) fn assert_source(&mut self, content: &[u8]) {
        if self.to.is_some() {
            assert_eq!(self.from.content(), content);
        }
    }
}
