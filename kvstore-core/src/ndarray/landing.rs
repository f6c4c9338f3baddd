//! [`NDArray::land_all`]: assigns values to many arrays, and one value to several parts of an array
//! at once.

use super::{NDArray, View};
use crate::fallible;
use crate::tensor::Tensor;
use crate::types::Result;

/// The maximum number of parts to assign at once. It bounds the length of temporary lists: if
/// memory for one is missing, earlier arrays have already changed.
const MOST_PARTS: usize = if cfg!(miri) { 8 } else { 512 };

impl NDArray {
    /// Assigns a value to each array in order, as [`NDArray::land`] does.
    ///
    /// Consecutive parts of one array that receive the same tensor are assigned together, up to 512
    /// at once. The backend then reads the tensor only once.
    ///
    /// # Errors
    /// - The errors of [`NDArray::land`]. Earlier arrays have already changed.
    pub fn land_all<'a>(landing: impl Iterator<Item = (&'a Self, Tensor)>) -> Result<()> {
        let mut landing = landing.peekable();
        while let Some((array, value)) = landing.next() {
            let Some(first) = array.first_of_part() else {
                array.land(value)?;
                continue;
            };
            let belongs = |next: &(&Self, Tensor)| {
                let (next, other) = next;
                next.is_same_cell(array) && next.first_of_part().is_some() && other.is_same(&value)
            };
            // Collects the following parts with the same value. A single part, the usual case,
            // needs no list.
            let mut firsts = Vec::new();
            while firsts.len() < MOST_PARTS
                && let Some((next, _)) = landing.next_if(belongs)
            {
                if firsts.is_empty() {
                    fallible::push(&mut firsts, first)?;
                }
                if let Some(next) = next.first_of_part() {
                    fallible::push(&mut firsts, next)?;
                }
            }
            if firsts.is_empty() {
                array.land(value)?;
                continue;
            }
            array.land_at(&firsts, &value)?;
        }
        Ok(())
    }

    /// Returns the first element of a view of a part, or `None` for other handles.
    fn first_of_part(&self) -> Option<usize> {
        match self.view {
            Some(View::Part { first_element }) => Some(first_element),
            None | Some(View::Complete) => None,
        }
    }

    /// Assigns a value to the parts of the cell that begin with these elements. Where parts
    /// overlap, the last one wins.
    fn land_at(&self, firsts: &[usize], value: &Tensor) -> Result<()> {
        let len = self.spec.num_elements();
        let mut in_order = fallible::copied(firsts)?;
        in_order.sort_unstable();
        let mut cell = self.cell.lock()?;
        if in_order.is_sorted_by(|one, next| one + len <= *next) {
            return cell.overwrite_parts(&in_order, value);
        }
        firsts.iter().try_for_each(|first| cell.overwrite_parts(&[*first], value))
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test may abort without memory")]
mod tests {
    use super::*;
    use crate::backend::registry::Backends;
    use crate::cpu::CpuBackend;
    use crate::types::Device;

    #[test]
    fn parts_are_assigned_in_the_order_of_the_call() {
        let backends = Backends::new(vec![CpuBackend::new()]);
        let tensor = |elements: &[f32]| {
            Tensor::from_slice(&backends, Device::cpu(0), [elements.len()], elements).unwrap()
        };
        let (value, other) = (tensor(&[1.0, 2.0, 3.0]), tensor(&[7.0, 8.0, 9.0]));
        let array = NDArray::new(tensor(&[0.0; 10]));
        let before = array.tensor();
        let part = |first: usize| array.slice(first, first + 3).unwrap();
        let parts = [part(0), part(6), part(3), part(5), part(4)];
        let values = [&value, &value, &value, &other, &value].map(Clone::clone);
        NDArray::land_all(parts.iter().zip(values)).unwrap();
        let expected = [1.0, 2.0, 3.0, 1.0, 1.0, 2.0, 3.0, 9.0, 3.0, 0.0];
        assert_eq!(array.to_vec::<f32>().unwrap(), expected);
        // The earlier snapshot has not changed.
        assert_eq!(before.to_vec::<f32>().unwrap(), [0.0; 10]);

        // Where parts overlap, the later one wins.
        let overlapping = [part(1), part(0), part(7)];
        NDArray::land_all(overlapping.iter().map(|part| (part, value.clone()))).unwrap();
        let expected = [1.0, 2.0, 3.0, 3.0, 1.0, 2.0, 3.0, 1.0, 2.0, 3.0];
        assert_eq!(array.to_vec::<f32>().unwrap(), expected);
    }

    #[test]
    fn parts_of_later_batches_overwrite_earlier_ones() {
        let backends = Backends::new(vec![CpuBackend::new()]);
        let tensor = |elements: &[u8]| {
            Tensor::from_slice(&backends, Device::cpu(0), [elements.len()], elements).unwrap()
        };
        // The last part overlaps the first one.
        let len = 2 * MOST_PARTS + 2;
        let array = NDArray::new(tensor(&[0].repeat(len)));
        let firsts = (0..len / 2).map(|part| 2 * part).chain([1]);
        let parts: Vec<_> = firsts.map(|first| array.slice(first, first + 2).unwrap()).collect();
        let value = tensor(&[1, 2]);
        NDArray::land_all(parts.iter().map(|part| (part, value.clone()))).unwrap();
        let mut expected = [1, 2].repeat(len / 2);
        (expected[1], expected[2]) = (1, 2);
        assert_eq!(array.to_vec::<u8>().unwrap(), expected);
    }

    #[test]
    fn a_value_may_be_a_part_of_its_own_array() {
        let backends = Backends::new(vec![CpuBackend::new()]);
        let elements = [1f32, 2.0, 3.0, 4.0, 5.0, 6.0];
        let array =
            NDArray::new(Tensor::from_slice(&backends, Device::cpu(0), [6], &elements).unwrap());
        let parts = [array.slice(2, 4).unwrap(), array.slice(4, 6).unwrap()];
        let value = array.slice(0, 2).unwrap().tensor();
        NDArray::land_all(parts.iter().map(|part| (part, value.clone()))).unwrap();
        assert_eq!(array.to_vec::<f32>().unwrap(), [1.0, 2.0, 1.0, 2.0, 1.0, 2.0]);
    }
}
