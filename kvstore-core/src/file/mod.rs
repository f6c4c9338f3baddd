//! What every file format needs: reading what may lie, elements, and writing so that there is always a whole
//! file.

mod elements;
mod input;
mod replace;
mod short_list;
mod turn;

pub(crate) use elements::{read_elements, swap_on_big_endian, write_elements};
pub(crate) use input::Input;
pub(crate) use replace::Replacement;
pub(crate) use short_list::{MAX_ITEMS, short_list};
