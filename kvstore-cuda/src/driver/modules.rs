//! The kernels, as drivers compile them.

/// What `make kernels` has made.
pub(crate) const MODULES: [&str; 11] = [
    include_str!("../../ptx/sum.ptx"),
    include_str!("../../ptx/update_sgd.ptx"),
    include_str!("../../ptx/update_adaptive.ptx"),
    include_str!("../../ptx/compress.ptx"),
    include_str!("../../ptx/cast.ptx"),
    include_str!("../../ptx/elementwise.ptx"),
    include_str!("../../ptx/rows.ptx"),
    include_str!("../../ptx/update_rows.ptx"),
    include_str!("../../ptx/update_noise.ptx"),
    include_str!("../../ptx/broadcast.ptx"),
    include_str!("../../ptx/strided.ptx"),
];

/// Returns the number of the module that has a kernel.
pub(crate) fn module_of(kernel: &str) -> Option<usize> {
    let entry = format!(".entry {kernel}(");
    MODULES.iter().position(|text| text.contains(&entry))
}

#[cfg(test)]
mod tests {
    use super::module_of;

    #[test]
    fn kernels_are_found_by_their_complete_names() {
        assert_eq!(module_of("kv_sum_f32"), Some(0));
        assert_eq!(module_of("kv_Adam_f16"), Some(2));
        assert_eq!(module_of("kv_sum_f3"), None);
        assert_eq!(module_of("sum_f32"), None);
    }
}
