//! The default memory limit in a container: the test runs itself again in a control group.
//!
//! This file has one test, because the child must enter the group before it uses the library.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![cfg(target_os = "linux")]
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout, reason = "a check")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use kvstore::{DType, Device, ErrorCode};

const GROUP: &str = "KVSTORE_TEST_GROUP";
const ALLOWED: usize = 512 << 20;
const LIMIT: usize = ALLOWED / 5 * 4;

/// A control group, removed on drop.
struct Group(PathBuf);

impl Group {
    /// Creates a child group of this process's group with a limit of `ALLOWED` bytes.
    fn new() -> Result<Self, String> {
        let own = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let mut reasons = Vec::new();
        for line in own.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
            let (folder, file) = match controllers {
                "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                "" => ("/sys/fs/cgroup", "memory.max"),
                _ => continue,
            };
            let name = format!("kvstore-{}", std::process::id());
            let group = Path::new(folder).join(path.trim_start_matches('/')).join(name);
            match Self::at(&group, file) {
                Ok(made) => return Ok(made),
                Err(error) => reasons.push(format!("{}: {error}", group.display())),
            }
        }
        Err(reasons.join(", "))
    }

    fn at(path: &Path, file: &str) -> Result<Self, std::io::Error> {
        fs::create_dir(path)?;
        let group = Self(path.to_owned());
        // In version 2, the file exists only if the parent enables the controller.
        fs::metadata(path.join(file))?;
        fs::write(path.join(file), ALLOWED.to_string())?;
        Ok(group)
    }

    /// Runs this test in the group.
    fn run(&self) -> Output {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "the_default_limit_is_the_limit_of_the_container", "--nocapture"]);
        child.env(GROUP, &self.0).output().unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Allocates up to the limit, first memory that is freed and pooled, then live arrays.
fn child(group: &str) {
    fs::write(Path::new(group).join("cgroup.procs"), std::process::id().to_string()).unwrap();
    assert_eq!(kvstore::memory_limit(), Some(LIMIT));
    let ones = |mega_bytes: usize| {
        kvstore::ones([mega_bytes << 18], DType::F32, Device::cpu(0)).map_err(|error| {
            assert_eq!(error.code(), ErrorCode::OutOfMemory, "{error}");
            error.to_string()
        })
    };
    // Each length has its own size class in the pool.
    for mega_bytes in (10..150).step_by(10) {
        drop(ones(mega_bytes).unwrap());
        assert!(kvstore::live_bytes() + kvstore::pooled_bytes() <= LIMIT);
    }
    let mut arrays = Vec::new();
    let error = loop {
        match ones(40) {
            Ok(array) => arrays.push(array),
            Err(error) => break error,
        }
    };
    assert!((7..10).contains(&arrays.len()), "{} arrays of 40 MiB", arrays.len());
    assert!(error.ends_with(&format!("the limit is {LIMIT}")), "{error}");
    println!("the child held {} arrays", arrays.len());
}

#[test]
fn the_default_limit_is_the_limit_of_the_container() {
    if let Ok(group) = std::env::var(GROUP) {
        return child(&group);
    }
    let group = match Group::new() {
        Ok(group) => group,
        Err(reasons) => {
            println!("skipped: cannot create a control group: {reasons}");
            return;
        }
    };
    let output = group.run();
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{stdout}\n{stderr}", output.status);
    assert!(stdout.contains("the child held"), "{stdout}");
}
