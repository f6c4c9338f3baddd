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
    let may_skip = is_refused(reason) || !is_root_on_linux();
    assert!(may_skip, "root can run this check: {what}: {reason}");
    println!("skipped: {what}: {reason}");
}

/// Returns whether the kernel refuses a permission.
fn is_refused(reason: &str) -> bool {
    let text = reason.to_lowercase();
    REFUSALS.iter().any(|refusal| text.contains(refusal))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_skips_only_what_the_kernel_refuses() {
        assert!(is_refused("`ip netns add`: Operation not permitted"));
        assert!(is_refused("mount: /tmp/disk: permission denied."));
        assert!(!is_refused("`ip` is not installed"));
    }
}
