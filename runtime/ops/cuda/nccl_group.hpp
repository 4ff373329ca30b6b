// NCCL communicators, one per group of ranks.
#pragma once

#include <mpi.h>

#include <atomic>

#include "cuda/nccl_api.hpp"
#include "element.hpp"
#include "shape.hpp"

namespace tensoropt {

class NcclGroup {
 public:
  // Collective: created by all ranks of `comm` together, on `device`.
  NcclGroup(MPI_Comm comm, int device);

  int ranks() const { return ranks_; }

  // Throws if the communicator was aborted, or if an enqueued operation has failed.
  NcclComm comm() const;

  // Aborts the operations of this group; threads that wait for one return. From any thread.
  void abort();

 private:
  std::atomic<NcclComm> comm_ = nullptr;
  int ranks_ = 0;
};

// The communicator in which place i is global rank group[i]. It is created at first use, which
// every member reaches at the same collective. Sessions share it for the life of the process.
// `comm` is the group's MPI communicator.
NcclGroup& nccl_group(const Shape& group, MPI_Comm comm, int device);

// Aborts every communicator. Later collectives throw.
void abort_nccl_groups();

}  // namespace tensoropt
