//! [`skip_or_fail`]: the end of a test for which this machine lacks something.

/// What commands and the system print if the kernel refuses a permission. A container may refuse
/// them to root.
const REFUSALS: [&str; 3] = ["operation not permitted", "permission denied", "not privileged"];

/// Reports that a check is skipped, for example because a tool is not installed.
///
/// # Panics
/// - On Linux, if this process runs as root, unless the reason is that the kernel refuses a
///   permission: otherwise, the checks of a machine whose setup is incomplete would pass.
pub fn skip_or_fail(what: &str, reason: &str) {
    let text = reason.to_lowercase();
    let is_refused = REFUSALS.iter().any(|refusal| text.contains(refusal));
    assert!(is_refused || !is_root_on_linux(), "root can run this check: {what}: {reason}");
    println!("skipped: {what}: {reason}");
}

#[cfg(target_os = "linux")]
fn is_root_on_linux() -> bool {
    use std::os::unix::fs::MetadataExt;
    // Belongs to the effective user.
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

#[cfg(not(target_os = "linux"))]
fn is_root_on_linux() -> bool {
    false
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn root_skips_only_what_the_kernel_refuses() {
        skip_or_fail("a check", "`ip netns add`: Operation not permitted");
        skip_or_fail("a check", "mount: /tmp/disk: permission denied.");
        let incomplete = catch_unwind(|| skip_or_fail("a check", "`ip` is not installed"));
        assert_eq!(incomplete.is_err(), is_root_on_linux());
    }
}
