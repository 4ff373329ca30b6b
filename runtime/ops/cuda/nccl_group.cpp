#include "cuda/nccl_group.hpp"

#include <map>
#include <memory>
#include <mutex>

#include "mpi/mpi_call.hpp"

namespace tensoropt {
namespace {

std::mutex mutex;  // guards the map only; not locked while ranks wait for each other
std::map<Shape, std::unique_ptr<NcclGroup>> groups;

// Returns an id that place 0 creates and broadcasts. If creating it failed, all ranks throw.
NcclId common_id(MPI_Comm comm, int place) {
  struct {
    NcclId id;
    int result;
  } made{};
  if (place == 0) made.result = nccl().ncclGetUniqueId(&made.id);
  check_mpi("MPI_Bcast", MPI_Bcast(&made, sizeof made, MPI_BYTE, 0, comm));
  check_nccl("ncclGetUniqueId", made.result);
  return made.id;
}

}  // namespace

NcclGroup::NcclGroup(MPI_Comm comm, int device) {
  int place = 0;
  check_mpi("MPI_Comm_size", MPI_Comm_size(comm, &ranks_));
  check_mpi("MPI_Comm_rank", MPI_Comm_rank(comm, &place));
  const auto id = common_id(comm, place);
  check_cuda("cudaSetDevice", cuda().cudaSetDevice(device));
  NcclComm made = nullptr;
  check_nccl("ncclCommInitRank", nccl().ncclCommInitRank(&made, ranks_, id, place));
  comm_ = made;
}

NcclComm NcclGroup::comm() const {
  const NcclComm comm = comm_;
  if (!comm) throw Error("its group's NCCL communicator was aborted");
  int error = 0;
  check_nccl("ncclCommGetAsyncError", nccl().ncclCommGetAsyncError(comm, &error));
  if (error != kNcclInProgress) check_nccl("an operation enqueued before", error);
  return comm;
}

void NcclGroup::abort() {
  if (const NcclComm comm = comm_.exchange(nullptr)) nccl().ncclCommAbort(comm);
}

NcclGroup& nccl_group(const Shape& group, MPI_Comm comm, int device) {
  {
    const std::lock_guard lock(mutex);
    if (const auto found = groups.find(group); found != groups.end()) return *found->second;
  }
  auto made = std::make_unique<NcclGroup>(comm, device);
  const std::lock_guard lock(mutex);
  return *groups.emplace(group, std::move(made)).first->second;
}

void abort_nccl_groups() {
  const std::lock_guard lock(mutex);
  for (auto& [group, made] : groups) made->abort();
}

}  // namespace tensoropt
