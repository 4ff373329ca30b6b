#include "start/start.hpp"

#include <fcntl.h>
#include <mpi.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>

#include "error.hpp"
#include "start/control.hpp"
#include "start/dead_peers.hpp"
#include "start/hub.hpp"
#include "start/identity.hpp"
#include "start/launch_environment.hpp"
#include "start/shared_memory.hpp"
#include "start/start_over_mpi.hpp"

namespace tensoropt {
namespace {

// MPICH exits with the error's code, above this status, if it treats an error as fatal.
constexpr int kMostStatus = 255;

pid_t started_in = 0;
std::string job_name;  // the job's name for MPICH, if ranks met over sockets

bool is_up() {
  int is_initialized = 0;
  MPI_Initialized(&is_initialized);
  return is_initialized;
}

bool is_down() {
  int is_finalized = 0;
  MPI_Finalized(&is_finalized);
  return is_finalized;
}

int world_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

std::string library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  return std::string(text, std::size_t(length));
}

// Runs at exit, before MPICH's last messages to its launcher. Does nothing in a forked process.
void leave(int status, void*) {
  if (getpid() != started_in) return;
  if (!is_down() && status > kMostStatus) return say_fail("MPI failed, which it said itself");
  if (!is_down() && status != 0) return say_left(status);
  if (!is_down()) MPI_Finalize();
  say_bye();
}

// Runs at exit, after them: the hub, a thread of this process, still answers the other ranks.
void wait_for_own_hub() {
  if (getpid() == started_in) wait_for_hub();
}

// MPICH's own message for this case has neither the cause nor a remedy.
void check_pmix() {
  const auto version = library_version();
  if (only_pmix() && version.find("MPICH") != std::string::npos &&
      version.find("pmix") == std::string::npos)
    throw Error(
        "started by Open MPI or by srun --mpi=pmix, which this MPICH does not understand, "
        "expected its own mpiexec, srun --mpi=pmi2, or MASTER_ADDR and MASTER_PORT set");
}

void initialise() {
  started_in = getpid();
  std::atexit(wait_for_own_hub);
  int provided = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS)
    throw Error("MPI_Init_thread failed");
  on_exit(leave, nullptr);
  MPI_Barrier(MPI_COMM_WORLD);
  forget_shared_memory(job_name);
}

void check_size(const Place& place) {
  if (!place.size || world_size() == place.size) return;
  throw Error("MPI found " + std::to_string(world_size()) + " of the " +
              std::to_string(place.size) + " ranks that were started, expected the launcher of " +
              library_version().substr(0, library_version().find('\n')));
}

std::string place_text(const Place& place) {
  const bool is_v6 = place.address.find(':') != std::string::npos;
  return (is_v6 ? "[" + place.address + "]" : place.address) + ":" + std::to_string(place.port);
}

Socket listen_at(const Place& place) try {
  return listen_on(place.address, place.port);
} catch (const Error& error) {
  throw Error(std::string(error.what()) + ", expected a free one in MASTER_PORT or TENSOROPT_PORT");
}

std::pair<Socket, Socket> own_connections(Hub& hub) {
  std::pair<Socket, Socket> mine;
  for (auto* each : {&mine.first, &mine.second}) {
    auto [here, there] = socket_pair();
    *each = std::move(here);
    hub.adopt(std::move(there));
  }
  return mine;
}

// Returns one connection for the hub's lines and one for MPI; a third call throws.
std::function<Socket()> handing_out(std::pair<Socket, Socket>& both) {
  return [&both] {
    if (!both.second) throw Error("rank 0 ended");
    return std::move(both.first ? both.first : both.second);
  };
}

Visit visit_of(const Place& place, const Identity& identity) {
  return {.connect = {},
          .where = "this process",
          .rank = place.rank,
          .size = place.size,
          .with_pmi = true,
          .timeout_s = start_timeout_s(),
          .identity = identity};
}

// Rank 0 reaches its own hub without the network, which may not route back.
Joined host(Socket listener, const Place& place, const Identity& identity) {
  auto visit = visit_of(place, identity);
  auto* hub = new Hub(std::move(listener),  // lives as long as the process
                      {place.size, visit.with_pmi, visit.timeout_s, identity, place.job});
  for (const int fd : place.sockets) hub->adopt(inherited(fd));
  auto mine = own_connections(*hub);
  run_aside(hub);
  visit.connect = handing_out(mine);
  return join(visit);
}

Joined come_to(const Place& place, const Identity& identity) {
  auto visit = visit_of(place, identity);
  visit.where = place_text(place);
  const auto until = after(visit.timeout_s);
  visit.connect = [&] {
    try {
      return connect_to(place.address, place.port, until);
    } catch (const Error& error) {
      throw Error("rank 0 at " + visit.where + " " + error.what() + " (tried for " +
                  std::to_string(int(std::ceil(visit.timeout_s))) + " s)");
    }
  };
  return join(visit);
}

Joined meet(const Place& place, const Identity& identity) {
  if (place.rank > 0) return come_to(place, identity);
  return host(listen_at(place), place, identity);
}

// Only these processes have the sockets: no proof is needed.
Joined meet_in_pairs(const Place& place) {
  if (place.rank == 0) return host(Socket(), place, Identity{.job = "-"});
  std::pair mine{inherited(place.sockets[0]), inherited(place.sockets[1])};
  auto visit = visit_of(place, Identity{.job = "-"});
  visit.where = "the other end";
  visit.connect = handing_out(mine);
  return join(visit);
}

// MPICH takes the connection from the environment, as from its own launcher.
void set_pmi(const Place& place, Socket pmi) {
  const int fd = pmi.release();
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  setenv("PMI_FD", std::to_string(fd).c_str(), 1);
  setenv("PMI_RANK", std::to_string(place.rank).c_str(), 1);
  setenv("PMI_SIZE", std::to_string(place.size).c_str(), 1);
  setenv("MPIR_CVAR_PMI_VERSION", "1", 1);  // even if srun offers another version
}

// The connection belongs to this process: its children must not use it.
void unset_pmi() {
  for (const char* name : {"PMI_FD", "PMI_RANK", "PMI_SIZE", "MPIR_CVAR_PMI_VERSION"})
    unsetenv(name);
}

void start_over_sockets(const Place& place, const std::string& job) {
  if (library_version().find("MPICH") == std::string::npos)
    throw Error("ranks of this MPI cannot meet over TCP, expected MPICH or the launcher of " +
                library_version());
  auto joined = place.how == Place::How::Pairs ? meet_in_pairs(place)
                                               : meet(place, identity_of(job, place.port));
  set_pmi(place, std::move(joined.pmi));
  job_name = joined.job;
  watch(std::move(joined), place.rank, place.size);
  initialise();
  wait_for_the_verdict_on_dead_peers();  // UCX is loaded by now
  unset_pmi();
}

void start_once(const std::string& job) {
  const auto place = place_from_environment();
  const bool over_sockets = place.how == Place::How::Tcp || place.how == Place::How::Pairs;
  if (is_up()) {
    if (over_sockets && world_size() == 1)
      throw Error(
          "MPI is already up as a job of one process, expected it to be left to this "
          "library (in Python: no import of mpi4py.MPI before the session is made)");
    return;
  }
  if (over_sockets) {
    start_over_sockets(place, job);
  } else {
    check_pmix();
    initialise();
  }
  check_size(place);
}

}  // namespace

void start(const std::string& job) {
  static std::mutex mutex;
  static bool is_done = false;
  const std::lock_guard lock(mutex);
  if (is_done) return;
  start_once(job);
  is_done = true;
}

}  // namespace tensoropt
