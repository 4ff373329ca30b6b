// What the launcher of this process says about its place in a job.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tensoropt {

struct Place {
  enum class How {
    Alone,  // nobody started several processes
    Mpi,    // mpiexec or srun, through PMI: MPI finds the others by itself
    Tcp,    // torchrun, Kubernetes, a shell: rank 0 is met at address:port
    Pairs,  // tensoropt-run on this machine: over sockets that it has connected
  };
  How how = How::Alone;
  bool launched = false;  // also a job of one rank
  int rank = 0;
  int size = 1;  // 0: only MPI knows (mpiexec -pmi-port)
  std::string address{};
  int port = 0;
  std::vector<int> sockets{};  // inherited: a rank's own two, on rank 0 the other ends of all
  std::string job{};           // its name, TENSOROPT_JOB, where the launcher gave it one
};

// An empty variable counts as none: manifests and shells set them so.
std::optional<std::string> variable(const char* name);

// Reads TENSOROPT_SOCKETS with RANK and WORLD_SIZE; else PMI_RANK and PMI_SIZE; else RANK and
// WORLD_SIZE, or in a step of Slurm SLURM_PROCID and SLURM_STEP_NUM_TASKS, with MASTER_ADDR and
// MASTER_PORT; else PMIX_RANK. TENSOROPT_PORT goes before MASTER_PORT, which torchrun's own store
// occupies: the next port is taken there. Throws `Error` naming the variable that is missing or
// wrong.
Place place_from_environment();

// How long ranks wait for each other at the start: TENSOROPT_START_TIMEOUT_S, by default 300 s.
double start_timeout_s();

// What the launcher calls this run, the same on all ranks: torchrun's run and how often it was
// started anew, or Slurm's job and step. Empty where it says nothing.
std::string run_name();

// Whether an address to meet at leads to this machine only.
bool is_loopback(const std::string& address);

// Whether PMIx started this process and nothing else did.
bool only_pmix();

}  // namespace tensoropt
