//! Giving arrays their values: one by one, or several parts of an array the same value at once.

use super::{NDArray, View};
use crate::fallible;
use crate::tensor::Tensor;
use crate::types::Result;

/// The most parts that get a value at once. It bounds the lists of a call: when memory for one is
/// missing, earlier arrays have their values already.
const MOST_PARTS: usize = if cfg!(miri) { 8 } else { 512 };

impl NDArray {
    /// Gives each array its value as [`NDArray::land`] does, one after the other.
    ///
    /// Consecutive parts of one array that get the very same value get it together, up to 512 at
    /// once: the value is read once for all of them.
    ///
    /// # Errors
    /// As [`NDArray::land`]; arrays before the one that failed have their values.
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

    /// Returns which element of its cell a part begins with; none for an array that is no part.
    fn first_of_part(&self) -> Option<usize> {
        match self.view {
            Some(View::Part { first_element }) => Some(first_element),
            None | Some(View::Complete) => None,
        }
    }

    /// Gives the parts of the cell that begin with these elements a value, later ones after earlier ones where they
    /// overlap.
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
    fn parts_get_a_value_in_the_order_of_the_call() {
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
        // What was taken before is as it was.
        assert_eq!(before.to_vec::<f32>().unwrap(), [0.0; 10]);

        // Parts that overlap: the later one is on top.
        let overlapping = [part(1), part(0), part(7)];
        NDArray::land_all(overlapping.iter().map(|part| (part, value.clone()))).unwrap();
        let expected = [1.0, 2.0, 3.0, 3.0, 1.0, 2.0, 3.0, 1.0, 2.0, 3.0];
        assert_eq!(array.to_vec::<f32>().unwrap(), expected);
    }

    #[test]
    fn parts_beyond_a_batch_come_after_it() {
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
