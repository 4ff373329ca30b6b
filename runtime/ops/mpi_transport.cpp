#include "mpi_transport.hpp"

#include <cstring>

#include "mpi_call.hpp"
#include "mpi_reduction.hpp"

namespace tensoropt {
namespace {

constexpr int kTag = 0;  // messages between two ranks come in the order of their tokens

}  // namespace

void MpiTransport::all_reduce(const void *x, void *y, std::size_t count, Reduction reduction) {
  const auto [type, op] = mpi_reduction(element_.type, reduction);
  check_mpi("MPI_Allreduce_c", MPI_Allreduce_c(x, y, MPI_Count(count), type, op, comm_));
}

void MpiTransport::all_gather(const void *x, void *y, std::size_t count, std::size_t) {
  check_mpi("MPI_Allgather_c",
            MPI_Allgather_c(x, bytes(count), MPI_BYTE, y, bytes(count), MPI_BYTE, comm_));
}

void MpiTransport::reduce_scatter(const void *x, void *y, std::size_t count, std::size_t,
                                  Reduction reduction) {
  const auto [type, op] = mpi_reduction(element_.type, reduction);
  check_mpi("MPI_Reduce_scatter_block_c",
            MPI_Reduce_scatter_block_c(x, y, MPI_Count(count), type, op, comm_));
}

void MpiTransport::all_to_all(const void *x, void *y, std::size_t count) {
  check_mpi("MPI_Alltoall_c",
            MPI_Alltoall_c(x, bytes(count), MPI_BYTE, y, bytes(count), MPI_BYTE, comm_));
}

void MpiTransport::broadcast(const void *x, void *y, std::size_t count, int root) {
  int place = 0;
  check_mpi("MPI_Comm_rank", MPI_Comm_rank(comm_, &place));
  if (place == root) copy(x, y, count * element_.bytes);
  check_mpi("MPI_Bcast_c", MPI_Bcast_c(y, bytes(count), MPI_BYTE, root, comm_));
}

void MpiTransport::send(const void *x, std::size_t count, int place) {
  check_mpi("MPI_Send_c", MPI_Send_c(x, bytes(count), MPI_BYTE, place, kTag, comm_));
}

void MpiTransport::recv(void *y, std::size_t count, int place) {
  check_mpi("MPI_Recv_c",
            MPI_Recv_c(y, bytes(count), MPI_BYTE, place, kTag, comm_, MPI_STATUS_IGNORE));
}

void MpiTransport::copy(const void *from, void *to, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}

void MpiTransport::pack(const Cut &cut, const void *tensor, void *pieces) {
  transpose_chunks(cut.outer, cut.pieces, cut.chunk_bytes, tensor, pieces);
}

void MpiTransport::unpack(const Cut &cut, const void *pieces, void *tensor) {
  transpose_chunks(cut.pieces, cut.outer, cut.chunk_bytes, pieces, tensor);
}

void *MpiTransport::scratch(std::size_t index, std::size_t bytes) {
  return thread_scratch(index, bytes);
}

}  // namespace tensoropt
