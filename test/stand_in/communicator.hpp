// A NCCL communicator of the stand-in, and how its members find each other over MPI.
#pragma once

#include <mpi.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "nccl_abi.hpp"

namespace stand_in {

// A call that ends with another result than success, and what ncclGetLastError says of it.
struct Failure : std::runtime_error {
  Failure(Result result, const std::string& text) : std::runtime_error(text), result(result) {}
  Result result;
};

struct Communicator {
  int index;               // the how-manieth of this process
  int rank;                // of this process, in the communicator
  int device;              // current when the communicator was made
  std::vector<int> world;  // world rank of each member
  MPI_Comm mpi;
  std::atomic<bool> aborted = false;

  int size() const { return int(world.size()); }
};

// The id names the process that made it, which must be a member, and is used once.
UniqueId make_id();

// Tells the maker of the id who this is, and waits until all members are there.
// Throws unless they agree on their number, have ranks of their own and, but for ranks allowed to
// share one, a GPU of their own.
Communicator* join(const UniqueId& id, int ranks, int rank);

// The communicator behind a handle; throws if it is none, or was aborted or destroyed.
Communicator& checked(Communicator* handle);

// Makes the handle invalid; calls that wait inside come back with an error.
void abort(Communicator* handle);

// Waits for a request without blocking in MPI, so that an abort ends it.
void wait(const Communicator& comm, MPI_Request& request, MPI_Status* status = MPI_STATUS_IGNORE);

// Waits for the communicator's abort.
[[noreturn]] void hang(const Communicator& comm);

void check_mpi(const char* function, int code);

// NCCL's version as its own code: 23203 is 2.32.3. TENSOROPT_STAND_IN_NCCL_VERSION sets another.
int version();

}  // namespace stand_in
