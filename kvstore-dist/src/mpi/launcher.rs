//! [`Launcher`]: detects the launcher of this process from environment variables, and sets
//! variables that MPI libraries read.

#![expect(
    unsafe_code,
    reason = "writes the environment, which libraries read when they are opened"
)]

use std::env;

/// A family of MPI libraries. Each has its own launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    OpenMpi,
    Mpich,
}

/// The launcher of this process, as far as environment variables show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Launcher {
    pub(super) family: Option<Family>,
    pub(super) rank: Option<usize>,
    pub(super) size: Option<usize>,
}

impl Launcher {
    /// Reads the environment of this process.
    pub(super) fn of_process() -> Self {
        Self::read(|name| env::var(name).ok())
    }

    fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        let number = |name| variable(name).and_then(|text| text.parse().ok());
        // In this order: `mpirun` of Open MPI; `mpirun` and `srun` of MPICH and its derivatives;
        // launchers with PMIx, which Open MPI uses; `srun` without a process manager interface,
        // whose processes do not find each other.
        let known = [
            (Some(Family::OpenMpi), "OMPI_COMM_WORLD_RANK", Some("OMPI_COMM_WORLD_SIZE")),
            (Some(Family::Mpich), "PMI_RANK", Some("PMI_SIZE")),
            (Some(Family::OpenMpi), "PMIX_RANK", None),
            (None, "SLURM_PROCID", Some("SLURM_STEP_NUM_TASKS")),
        ];
        let found = known.into_iter().find(|(_, rank, _)| number(rank).is_some());
        found.map_or_else(Self::default, |(family, rank, size)| Self {
            family,
            rank: number(rank),
            size: size.and_then(number),
        })
    }

    /// Returns whether the launcher has started more than one process. A library that finds only
    /// one is then not the launcher's.
    pub(super) fn started_more(self) -> bool {
        self.size.is_some_and(|size| size > 1) || self.rank.is_some_and(|rank| rank > 0)
    }

    /// Sets environment variables that libraries read when they are opened, unless they are set.
    pub(super) fn prepare(self) {
        // A virtual machine has its own signal handlers, and crashes if UCX or Open MPI replace
        // them.
        let mut variables = Vec::from([("UCX_ERROR_SIGNALS", ""), ("OMPI_MCA_opal_signal", "")]);
        if self.family.is_none() {
            // Without this, Open MPI 4 starts a daemon for a process without a launcher. If the
            // daemon is not installed, it ends the process.
            variables.push(("OMPI_MCA_ess_singleton_isolated", "1"));
        }
        for (name, value) in variables {
            if env::var_os(name).is_none() {
                // SAFETY: Readers in Rust take the lock of the standard library. C code that reads
                // the environment in another thread does not, and could read an array that has just
                // been replaced. `MpiCollective::open` documents that this must not happen. These
                // libraries read only the environment, so there is no alternative. It happens once
                // per process, before the library is opened, and only if the launcher has not set
                // the variables.
                unsafe { env::set_var(name, value) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Launcher {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
        Launcher::read(|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn launchers_are_detected_by_their_variables() {
        let launcher = |family, rank, size| Launcher { family: Some(family), rank, size };
        assert_eq!(read(&[]), Launcher::default());
        let variables = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4")];
        assert_eq!(read(&variables), launcher(Family::OpenMpi, Some(1), Some(4)));
        let variables = [("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("PMI_FD", "9")];
        assert_eq!(read(&variables), launcher(Family::Mpich, Some(0), Some(2)));
        assert!(read(&variables).started_more());
        assert_eq!(read(&[("PMIX_RANK", "3")]), launcher(Family::OpenMpi, Some(3), None));
        assert!(read(&[("PMIX_RANK", "3")]).started_more());
        assert!(!read(&[("PMI_RANK", "0"), ("PMI_SIZE", "1")]).started_more());
        let slurm = [("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "4")];
        assert!(read(&slurm).started_more() && read(&slurm).family.is_none());
        // A batch script has no step.
        assert!(!read(&slurm[..1]).started_more());
    }
}
