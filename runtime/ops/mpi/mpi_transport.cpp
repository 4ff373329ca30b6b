#include "mpi/mpi_transport.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "mpi/mpi_call.hpp"
#include "mpi/mpi_reduction.hpp"

namespace tensoropt {
namespace {

constexpr int kTag = 0;  // messages between two ranks arrive in the order of their tokens

// Bytes per reduction call. MPI's copies of them then stay in a cache, and in memory that the
// allocator retains: for 64 MiB, the system spends four fifths of the time clearing new pages.
constexpr std::size_t kMostReduced = 2 << 20;

// From this size on, a reduce-scatter and an all-gather are faster than MPI's all-reduce, which for
// user-defined operations sends all data to all ranks.
constexpr std::size_t kLeastInPieces = 512 << 10;

// Up to this size two ranks swap one message. MPI's algorithms copy before and after, and allocate.
constexpr std::size_t kMostSwapped = 256 << 10;

// Polls at growing intervals, so that it is late by at most a third of the waiting time.
void finish_asleep(MPI_Request request) {
  constexpr int kAwake = 20;  // polls without sleep, a few microseconds in total
  constexpr std::chrono::microseconds kFirst{20}, kLongest{200};
  auto pause = kFirst;
  for (int looks = 0, is_done = 0;; ++looks) {
    check_mpi("MPI_Test", MPI_Test(&request, &is_done, MPI_STATUS_IGNORE));
    if (is_done) return;
    if (looks < kAwake) continue;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 3 / 2, kLongest);
  }
}

// Consecutive pieces, one per rank.
struct Pieces {
  std::vector<MPI_Count> bytes;
  std::vector<MPI_Aint> offsets;

  Pieces(const std::size_t* counts, std::size_t ranks, std::size_t element_bytes) {
    MPI_Aint offset = 0;
    for (std::size_t place = 0; place < ranks; ++place) {
      bytes.push_back(MPI_Count(counts[place] * element_bytes));
      offsets.push_back(offset);
      offset += MPI_Aint(bytes.back());
    }
  }
};

}  // namespace

MpiTransport::MpiTransport(MPI_Comm comm, const ElementInfo& element, Waiting waiting)
    : comm_(comm), element_(element), waiting_(waiting) {
  if (waiting_ == Waiting::Awake || ranks() <= 2) return;
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi("MPI_Ibarrier", MPI_Ibarrier(comm_, &request));
  finish_asleep(request);
}

void MpiTransport::all_reduce(const void* x, void* y, std::size_t count, Reduction reduction) {
  const std::size_t ranks = this->ranks(), most = kMostReduced / element_.bytes;
  for (std::size_t done = 0, part = 0; done < count; done += part) {
    part = std::min(count - done, most);
    const auto* from = at(x, done * element_.bytes);
    auto* to = at(y, done * element_.bytes);
    if (part * element_.bytes < kLeastInPieces) {
      reduce_whole(from, to, part, reduction);
    } else {
      part -= part % ranks;
      reduce_in_pieces(from, to, part / ranks, reduction);
    }
  }
}

void MpiTransport::reduce_whole(const void* x, void* y, std::size_t count, Reduction reduction) {
  if (swaps(count)) return reduce_pair(x, 0, y, count, reduction);
  const auto [type, op] = mpi_reduction(element_.type, reduction);
  const void* given = x == y ? MPI_IN_PLACE : x;
  check_mpi("MPI_Allreduce_c", MPI_Allreduce_c(given, y, MPI_Count(count), type, op, comm_));
}

// `count` elements per rank (Rabenseifner's algorithm: Thakur, Rabenseifner, Gropp, 2005).
void MpiTransport::reduce_in_pieces(const void* x, void* y, std::size_t count,
                                    Reduction reduction) {
  const auto own_bytes = count * element_.bytes;
  void* own = at(y, std::size_t(place()) * own_bytes);
  void* reduced = x == y ? scratch(1, own_bytes) : own;  // must not overwrite its operand
  reduce_own(x, reduced, count, reduction);
  if (reduced != own) copy(reduced, own, own_bytes);
  if (swaps_asleep())
    return exchange(own, at(y, std::size_t(other()) * own_bytes), count, other(), other());
  check_mpi("MPI_Allgather_c",
            MPI_Allgather_c(MPI_IN_PLACE, 0, MPI_BYTE, y, bytes(count), MPI_BYTE, comm_));
}

void MpiTransport::reduce_own(const void* x, void* y, std::size_t count, Reduction reduction) {
  if (swaps(count)) return reduce_pair(x, count, y, count, reduction);
  const auto [type, op] = mpi_reduction(element_.type, reduction);
  check_mpi("MPI_Reduce_scatter_block_c",
            MPI_Reduce_scatter_block_c(x, y, MPI_Count(count), type, op, comm_));
}

// For two ranks; their pieces of x are `apart` elements from each other. y may be this rank's
// piece.
void MpiTransport::reduce_pair(const void* x, std::size_t apart, void* y, std::size_t count,
                               Reduction reduction) {
  const void* own = at(x, std::size_t(place()) * apart * element_.bytes);
  const bool is_in_place = own == y;
  void* come = is_in_place ? scratch(1, count * element_.bytes) : y;
  exchange(at(x, std::size_t(other()) * apart * element_.bytes), come, count, other(), other());
  const auto [type, op] = mpi_reduction(element_.type, reduction);
  check_mpi("MPI_Reduce_local_c",
            MPI_Reduce_local_c(is_in_place ? come : own, y, MPI_Count(count), type, op));
}

void MpiTransport::all_gather(const void* x, void* y, std::size_t count, std::size_t) {
  if (swaps(count)) {
    const auto own_bytes = count * element_.bytes;
    copy(x, at(y, std::size_t(place()) * own_bytes), own_bytes);
    return exchange(x, at(y, std::size_t(other()) * own_bytes), count, other(), other());
  }
  check_mpi("MPI_Allgather_c",
            MPI_Allgather_c(x, bytes(count), MPI_BYTE, y, bytes(count), MPI_BYTE, comm_));
}

void MpiTransport::reduce_scatter(const void* x, void* y, std::size_t count, std::size_t,
                                  Reduction reduction) {
  const std::size_t ranks = this->ranks(), size = element_.bytes;
  const std::size_t most = std::max<std::size_t>(kMostReduced / size / ranks, 1);
  if (count <= most) return reduce_own(x, y, count, reduction);
  for (std::size_t done = 0, part = 0; done < count; done += part) {
    part = std::min(count - done, most);
    auto* pieces = static_cast<char*>(scratch(1, ranks * part * size));
    for (std::size_t rank = 0; rank < ranks; ++rank)
      std::memcpy(pieces + rank * part * size, at(x, (rank * count + done) * size), part * size);
    reduce_own(pieces, at(y, done * size), part, reduction);
  }
}

void MpiTransport::all_to_all(const void* x, void* y, std::size_t count) {
  if (swaps_asleep()) {
    const auto own = std::size_t(place()) * count * element_.bytes;
    const auto others = std::size_t(other()) * count * element_.bytes;
    copy(at(x, own), at(y, own), count * element_.bytes);
    return exchange(at(x, others), at(y, others), count, other(), other());
  }
  check_mpi("MPI_Alltoall_c",
            MPI_Alltoall_c(x, bytes(count), MPI_BYTE, y, bytes(count), MPI_BYTE, comm_));
}

void MpiTransport::all_to_all_unequal(const void* x, const std::size_t* sent, void* y,
                                      const std::size_t* received) {
  const Pieces from(sent, ranks(), element_.bytes), to(received, ranks(), element_.bytes);
  check_mpi("MPI_Alltoallv_c",
            MPI_Alltoallv_c(x, from.bytes.data(), from.offsets.data(), MPI_BYTE, y, to.bytes.data(),
                            to.offsets.data(), MPI_BYTE, comm_));
}

void MpiTransport::exchange(const void* x, void* y, std::size_t count, int to, int from) {
  if (waiting_ == Waiting::Asleep) {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi("MPI_Isendrecv_c",
              MPI_Isendrecv_c(x, bytes(count), MPI_BYTE, to, kTag, y, bytes(count), MPI_BYTE, from,
                              kTag, comm_, &request));
    return finish_asleep(request);
  }
  check_mpi("MPI_Sendrecv_c", MPI_Sendrecv_c(x, bytes(count), MPI_BYTE, to, kTag, y, bytes(count),
                                             MPI_BYTE, from, kTag, comm_, MPI_STATUS_IGNORE));
}

void MpiTransport::broadcast(const void* x, void* y, std::size_t count, int root) {
  if (place() == root) copy(x, y, count * element_.bytes);
  check_mpi("MPI_Bcast_c", MPI_Bcast_c(y, bytes(count), MPI_BYTE, root, comm_));
}

void MpiTransport::send(const void* x, std::size_t count, int place) {
  check_mpi("MPI_Send_c", MPI_Send_c(x, bytes(count), MPI_BYTE, place, kTag, comm_));
}

void MpiTransport::recv(void* y, std::size_t count, int place) {
  check_mpi("MPI_Recv_c",
            MPI_Recv_c(y, bytes(count), MPI_BYTE, place, kTag, comm_, MPI_STATUS_IGNORE));
}

int MpiTransport::place() const {
  int place = 0;
  check_mpi("MPI_Comm_rank", MPI_Comm_rank(comm_, &place));
  return place;
}

int MpiTransport::other() const { return 1 - place(); }

bool MpiTransport::swaps(std::size_t count) const {
  return swaps_asleep() || (ranks() == 2 && count * element_.bytes <= kMostSwapped);
}

// For any size: MPI's algorithms do not sleep.
bool MpiTransport::swaps_asleep() const { return waiting_ == Waiting::Asleep && ranks() == 2; }

std::size_t MpiTransport::ranks() const {
  int ranks = 0;
  check_mpi("MPI_Comm_size", MPI_Comm_size(comm_, &ranks));
  return std::size_t(ranks);
}

void MpiTransport::copy(const void* from, void* to, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}

void MpiTransport::pack(const Cut& cut, const void* tensor, void* pieces) {
  transpose_chunks(cut.outer, cut.pieces, cut.chunk_bytes, tensor, pieces);
}

void MpiTransport::unpack(const Cut& cut, const void* pieces, void* tensor) {
  transpose_chunks(cut.pieces, cut.outer, cut.chunk_bytes, pieces, tensor);
}

void* MpiTransport::scratch(std::size_t index, std::size_t bytes) {
  return thread_scratch(index, bytes);
}

}  // namespace tensoropt
