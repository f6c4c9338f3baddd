//! The instruction set extensions of the processor, for users who investigate performance.

/// Returns the architecture and the available extensions that matter for arithmetic.
pub(super) fn found() -> Vec<&'static str> {
    let mut found = Vec::from([std::env::consts::ARCH]);
    found.extend(extensions());
    found
}

/// Expands to an iterator over the names of the extensions that `$detect` finds.
macro_rules! detected {
    ($detect:ident: $($name:tt)*) => {
        [$(($name, std::arch::$detect!($name))),*]
            .into_iter()
            .filter_map(|(name, is_there)| is_there.then_some(name))
    };
}

#[cfg(target_arch = "x86_64")]
fn extensions() -> impl Iterator<Item = &'static str> {
    detected!(is_x86_feature_detected:
        "sse4.2" "avx" "avx2" "fma" "f16c" "avx512f" "avx512bw" "avx512bf16")
}

#[cfg(target_arch = "aarch64")]
fn extensions() -> impl Iterator<Item = &'static str> {
    detected!(is_aarch64_feature_detected: "neon" "fp16" "bf16" "sve" "sve2")
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn extensions() -> impl Iterator<Item = &'static str> {
    std::iter::empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_architecture_and_the_extensions_of_the_build() {
        let found = found();
        assert_eq!(found[0], std::env::consts::ARCH);
        if cfg!(target_feature = "neon") {
            assert!(found.contains(&"neon"), "{found:?}");
        }
        if cfg!(target_feature = "avx2") {
            assert!(found.contains(&"avx2"), "{found:?}");
        }
    }
}
