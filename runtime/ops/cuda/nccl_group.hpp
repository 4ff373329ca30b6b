// NCCL's communicators, one for each group of ranks.
#pragma once

#include <mpi.h>

#include <atomic>

#include "cuda/nccl_api.hpp"
#include "element.hpp"
#include "shape.hpp"

namespace tensoropt {

class NcclGroup {
 public:
  // Made by all ranks of `comm` together, on `device`.
  NcclGroup(MPI_Comm comm, int device);

  int ranks() const { return ranks_; }

  // Throws where it was aborted, or where an operation has failed since it was enqueued.
  NcclComm comm() const;

  // Brings back whoever waits for an operation of this group, from any thread.
  void abort();

 private:
  std::atomic<NcclComm> comm_ = nullptr;
  int ranks_ = 0;
};

// The communicator whose place i is global rank group[i]. Made at first use, which every member
// reaches at the same collective, and kept for the life of the process: sessions share it. `comm`
// is the group's over MPI.
NcclGroup& nccl_group(const Shape& group, MPI_Comm comm, int device);

// Aborts every communicator that there is. Collectives that come later are errors.
void abort_nccl_groups();

}  // namespace tensoropt
