//! The kernels as PTX, which the driver compiles.

/// The PTX files. `make kernels` creates the list.
pub(crate) const MODULES: &[&str] = &include!("../../ptx/modules.rs");

/// Returns the number of the module that contains a kernel.
pub(crate) fn module_of(kernel: &str) -> Option<usize> {
    let entry = format!(".entry {kernel}(");
    MODULES.iter().position(|text| text.contains(&entry))
}

#[cfg(test)]
mod tests {
    use super::{MODULES, module_of};

    #[test]
    fn kernels_are_found_by_their_complete_names() {
        for kernel in ["kv_sum_f32", "kv_Adam_f16", "kv_rows_Adam_f16"] {
            let module = MODULES[module_of(kernel).unwrap()];
            assert!(module.contains(&format!(".entry {kernel}(")));
        }
        assert_eq!(module_of("kv_sum_f3"), None);
        assert_eq!(module_of("sum_f32"), None);
    }
}
