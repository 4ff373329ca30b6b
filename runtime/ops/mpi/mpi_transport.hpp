// Collectives over MPI, on host memory.
#pragma once

#include <mpi.h>

#include "transport.hpp"

namespace tensoropt {

// Waiting for other ranks. MPI polls and keeps a core busy; asleep, a rank polls at intervals and
// leaves the core to operators.
enum class Waiting { Awake, Asleep };

class MpiTransport final : public Transport {
 public:
  // Asleep with more than two ranks, waits for all ranks: later calls poll without sleep.
  MpiTransport(MPI_Comm comm, const ElementInfo& element, Waiting waiting = Waiting::Awake);

  // Packing rows is cheaper than the latency of a further call.
  std::size_t most_rows() const override { return 1; }

  // Fits into a cache; the buffers are reused from call to call.
  std::size_t most_packed() const override { return 2 << 20; }

  void all_reduce(const void* x, void* y, std::size_t count, Reduction reduction) override;
  void all_gather(const void* x, void* y, std::size_t count, std::size_t rows) override;
  void reduce_scatter(const void* x, void* y, std::size_t count, std::size_t rows,
                      Reduction reduction) override;
  void all_to_all(const void* x, void* y, std::size_t count) override;
  void all_to_all_unequal(const void* x, const std::size_t* sent, void* y,
                          const std::size_t* received) override;
  void exchange(const void* x, void* y, std::size_t count, int to, int from) override;
  void broadcast(const void* x, void* y, std::size_t count, int root) override;
  void send(const void* x, std::size_t count, int place) override;
  void recv(void* y, std::size_t count, int place) override;
  bool launches() const override { return false; }
  void as_one(const std::function<void()>& body) override { body(); }
  void copy(const void* from, void* to, std::size_t bytes) override;
  void pack(const Cut& cut, const void* tensor, void* pieces) override;
  void unpack(const Cut& cut, const void* pieces, void* tensor) override;
  void* scratch(std::size_t index, std::size_t bytes) override;

 private:
  void reduce_whole(const void* x, void* y, std::size_t count, Reduction reduction);
  void reduce_in_pieces(const void* x, void* y, std::size_t count, Reduction reduction);
  void reduce_own(const void* x, void* y, std::size_t count, Reduction reduction);
  void reduce_pair(const void* x, std::size_t apart, void* y, std::size_t count,
                   Reduction reduction);
  int place() const;
  int other() const;  // the other place, of two
  bool swaps(std::size_t count) const;
  bool swaps_asleep() const;
  std::size_t ranks() const;
  MPI_Count bytes(std::size_t count) const { return MPI_Count(count * element_.bytes); }

  MPI_Comm comm_;
  const ElementInfo& element_;
  Waiting waiting_;
};

}  // namespace tensoropt
