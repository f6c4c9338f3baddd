//! The default memory limit: 80 percent of the memory of the machine or container.
//!
//! On Linux, this module parses the files of the kernel. `sysinfo` reads no limits of parent
//! groups or of version 1, and its paths are fixed, so tests cannot replace them.
//! `cgroups-rs` depends on a D-Bus client.

#![expect(clippy::disallowed_methods, reason = "these kernel files are short")]

use std::fs;
use std::path::Path;

/// Returns 80 percent of the memory of the machine, or of the lowest limit of the control groups of
/// this process and their parents. Returns `None` if neither is known.
pub(crate) fn default_limit() -> Option<usize> {
    // Miri isolates programs from the file system.
    if cfg!(miri) {
        return None;
    }
    default_limit_in(Path::new("/")).or_else(|| system_bytes().and_then(share))
}

fn default_limit_in(root: &Path) -> Option<usize> {
    share(machine_bytes(root).into_iter().chain(group_bytes(root)).min()?)
}

/// Returns the part of the memory that the process may use.
fn share(num_bytes: u64) -> Option<usize> {
    usize::try_from(num_bytes / 5 * 4).ok()
}

/// Returns the memory of the machine in bytes.
#[cfg(not(target_os = "linux"))]
fn system_bytes() -> Option<u64> {
    let mut system = sysinfo::System::new();
    system.refresh_memory();
    Some(system.total_memory()).filter(|num_bytes| *num_bytes > 0)
}

/// Returns `None`, because Linux has the files.
#[cfg(target_os = "linux")]
fn system_bytes() -> Option<u64> {
    None
}

/// Returns the memory of a Linux machine in bytes.
fn machine_bytes(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the limits of the control groups of this process and of their parents.
fn group_bytes(root: &Path) -> Vec<u64> {
    let read = |path| fs::read_to_string(root.join(path)).unwrap_or_default();
    let (groups, mounts) = (read("proc/self/cgroup"), read("proc/self/mountinfo"));
    let mut limits = Vec::new();
    for mount in mounts.lines().filter_map(Mount::parse) {
        let Some(group) = groups.lines().find_map(|line| mount.version.group(line)) else {
            continue;
        };
        // The files of a group outside the mount cannot be read. Use the root of the mount.
        let group = Path::new(group).strip_prefix(mount.root).unwrap_or(Path::new(""));
        let point = root.join(mount.point.trim_start_matches('/'));
        let texts = group.ancestors().filter_map(|group| {
            fs::read_to_string(point.join(group).join(mount.version.file())).ok()
        });
        // Without a limit, version 2 writes `max` and version 1 a huge number.
        limits.extend(texts.filter_map(|text| text.trim().parse::<u64>().ok()));
    }
    limits
}

/// A mount point of the memory control groups.
struct Mount<'a> {
    version: Version,
    /// The group at the mount point.
    root: &'a str,
    point: &'a str,
}

/// A version of control groups.
#[derive(Clone, Copy)]
enum Version {
    One,
    Two,
}

impl<'a> Mount<'a> {
    /// Parses a line of `mountinfo`. Returns `None` for other mounts.
    fn parse(line: &'a str) -> Option<Self> {
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let (root, point) = (place.next()?, place.next()?);
        let mut kind = kind.split(' ');
        let version = match kind.next()? {
            "cgroup2" => Version::Two,
            "cgroup" if kind.nth(1)?.split(',').any(|option| option == "memory") => Version::One,
            _ => return None,
        };
        Some(Self { version, root, point })
    }
}

impl Version {
    /// Returns the group in a line of `/proc/self/cgroup`, if it has this version.
    fn group(self, line: &str) -> Option<&str> {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?);
        let is_own = match self {
            Self::One => controllers.split(',').any(|controller| controller == "memory"),
            Self::Two => controllers.is_empty(),
        };
        is_own.then_some(group)
    }

    /// Returns the name of the limit file.
    fn file(self) -> &'static str {
        match self {
            Self::One => "memory.limit_in_bytes",
            Self::Two => "memory.max",
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a check fails by panicking")]
mod tests {
    use tempfile::TempDir;

    use super::*;

    const MACHINE: &str = "MemTotal:       10000000 kB\nMemFree:        123 kB\n";
    const V2: &str =
        "31 23 0:27 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate";
    const V1: &str = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory";
    const MACHINE_LIMIT: Option<usize> = Some(10_000_000 * 1024 / 5 * 4);

    /// Returns the default limit in a file tree of these contents.
    fn limit(files: &[(&str, &str)]) -> Option<usize> {
        let folder = TempDir::new().unwrap();
        for (path, content) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        default_limit_in(folder.path())
    }

    #[test]
    fn without_group_limits_the_machine_decides() {
        assert_eq!(limit(&[]), None);
        assert_eq!(limit(&[("proc/meminfo", "MemFree: 1 kB\n")]), None);
        assert_eq!(limit(&[("proc/meminfo", MACHINE)]), MACHINE_LIMIT);
        let unlimited = limit(&[
            ("proc/meminfo", MACHINE),
            ("proc/self/cgroup", "0::/user.slice\n"),
            ("proc/self/mountinfo", V2),
            ("sys/fs/cgroup/user.slice/memory.max", "max\n"),
        ]);
        assert_eq!(unlimited, MACHINE_LIMIT);
        let unlimited = limit(&[
            ("proc/meminfo", MACHINE),
            ("proc/self/cgroup", "4:memory:/\n"),
            ("proc/self/mountinfo", V1),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ]);
        assert_eq!(unlimited, MACHINE_LIMIT);
    }

    #[test]
    fn the_lowest_limit_of_a_group_and_its_parents_decides() {
        let with = |own: &str, parent: &str| {
            limit(&[
                ("proc/meminfo", MACHINE),
                ("proc/self/cgroup", "0::/a.slice/b.service\n"),
                ("proc/self/mountinfo", V2),
                ("sys/fs/cgroup/a.slice/memory.max", parent),
                ("sys/fs/cgroup/a.slice/b.service/memory.max", own),
                ("sys/fs/cgroup/a.slice/other/memory.max", "5\n"),
            ])
        };
        assert_eq!(with("1000\n", "2000\n"), Some(800));
        assert_eq!(with("2000\n", "1000\n"), Some(800));
        assert_eq!(with("max\n", "1000\n"), Some(800));
        assert_eq!(with("99000000000\n", "max\n"), MACHINE_LIMIT);
    }

    #[test]
    fn version_1_limits_are_read() {
        let found = limit(&[
            ("proc/meminfo", MACHINE),
            ("proc/self/cgroup", "5:cpu,memory:/jobs/7\n2:cpuset:/other\n0::/\n"),
            (
                "proc/self/mountinfo",
                &format!("{}\n{V1}\n{V2}", "20 1 8:1 / / rw - ext4 /dev/sda rw"),
            ),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", "4000\n"),
            ("sys/fs/cgroup/memory/jobs/7/memory.limit_in_bytes", "5000\n"),
            ("sys/fs/cgroup/memory/other/memory.limit_in_bytes", "1000\n"),
        ]);
        assert_eq!(found, Some(3200));
    }

    #[test]
    fn a_container_sees_its_group_at_the_mount_point() {
        // A private cgroup namespace.
        let own = [
            ("proc/meminfo", MACHINE),
            ("proc/self/cgroup", "0::/\n"),
            ("proc/self/mountinfo", "31 23 0:27 / /sys/fs/cgroup ro - cgroup2 cgroup rw"),
            ("sys/fs/cgroup/memory.max", "1000\n"),
        ];
        assert_eq!(limit(&own), Some(800));
        // The host's group names, with the container's group mounted.
        let hosts = [
            ("proc/meminfo", MACHINE),
            ("proc/self/cgroup", "4:memory:/docker/abc/inner\n"),
            (
                "proc/self/mountinfo",
                "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory",
            ),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000\n"),
            ("sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "1000\n"),
        ];
        assert_eq!(limit(&hosts), Some(800));
        // A group outside the mount.
        let outside = [
            ("proc/meminfo", MACHINE),
            ("proc/self/cgroup", "0::/../elsewhere\n"),
            ("proc/self/mountinfo", "31 23 0:27 /own /sys/fs/cgroup ro - cgroup2 cgroup rw"),
            ("sys/fs/cgroup/memory.max", "1000\n"),
        ];
        assert_eq!(limit(&outside), Some(800));
    }

    #[test]
    fn malformed_files_are_ignored() {
        let odd = [
            ("proc/meminfo", MACHINE),
            ("proc/self/cgroup", "\n::\n0::\nx\n"),
            ("proc/self/mountinfo", "\n - \n1 2 3 - cgroup2\n35 31 0:32 / /a rw - cgroup\n"),
            ("sys/fs/cgroup/memory.max", "1000\n"),
        ];
        assert_eq!(limit(&odd), MACHINE_LIMIT);
        let empty = [
            ("proc/meminfo", MACHINE),
            ("proc/self/cgroup", "0::/\n"),
            ("proc/self/mountinfo", V2),
            ("sys/fs/cgroup/memory.max", "\n"),
        ];
        assert_eq!(limit(&empty), MACHINE_LIMIT);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_machine_has_a_limit() {
        let limit = default_limit().unwrap();
        let machine = usize::try_from(machine_bytes(Path::new("/")).unwrap()).unwrap();
        assert!((1 << 20..=machine / 5 * 4).contains(&limit), "{limit} of {machine}");
    }
}
