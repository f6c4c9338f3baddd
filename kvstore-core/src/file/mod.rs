//! Shared code of all file formats: reading untrusted input, reading and writing elements, and
//! replacing a file atomically.

mod elements;
mod input;
mod replace;
mod short_list;
mod turn;

pub(crate) use elements::{read_elements, swap_on_big_endian, write_elements};
pub(crate) use input::Input;
pub(crate) use replace::Replacement;
pub use replace::replace_file;
pub(crate) use short_list::{MAX_ITEMS, short_list};
pub(crate) use turn::canonical_path;
