// This process's place in a job, from the environment of its launcher.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tensoropt {

struct Place {
  enum class How {
    Alone,  // a single process
    Mpi,    // mpiexec or srun, through PMI: MPI connects the ranks
    Tcp,    // torchrun, Kubernetes, a shell: ranks meet rank 0 at address:port
    Pairs,  // tensoropt-run on this machine: inherited, connected sockets
  };
  How how = How::Alone;
  bool launched = false;  // true also for a job of one rank
  int rank = 0;
  int size = 1;  // 0: only MPI has it (mpiexec -pmi-port)
  std::string address{};
  int port = 0;
  std::vector<int> sockets{};  // inherited: a rank's own two, on rank 0 the other ends of all
  std::string job{};           // TENSOROPT_JOB, if the launcher has set it
};

// An empty variable counts as unset: manifests and shells set variables to nothing.
std::optional<std::string> variable(const char* name);

// Reads TENSOROPT_SOCKETS with RANK and WORLD_SIZE; else PMI_RANK and PMI_SIZE; else RANK and
// WORLD_SIZE, or in a step of Slurm SLURM_PROCID and SLURM_STEP_NUM_TASKS, with MASTER_ADDR and
// MASTER_PORT; else PMIX_RANK. TENSOROPT_PORT overrides MASTER_PORT. If torchrun's own store
// listens on MASTER_PORT, the next port is used. Throws `Error` with the variable that is missing
// or invalid.
Place place_from_environment();

// The time that ranks wait for each other at the start: TENSOROPT_START_TIMEOUT_S, default 300 s.
double start_timeout_s();

// The launcher's name for this run, equal on all ranks: torchrun's run ID and restart count, or
// Slurm's job and step. Empty if there is none.
std::string run_name();

// True if an address leads to this machine only.
bool is_loopback(const std::string& address);

// True if PMIx, and no other launcher, started this process.
bool only_pmix();

}  // namespace tensoropt
