// A group with threads of this process as ranks, for tests of collectives on whole tensors without
// MPI.
#pragma once

#include <barrier>
#include <functional>
#include <limits>
#include <vector>

#include "transport.hpp"

namespace tensoropt {

// State shared by the ranks of a group, which synchronise at every call.
struct LocalGroup {
  explicit LocalGroup(std::size_t ranks);

  std::size_t ranks;
  std::vector<const void*> shown;  // one pointer per rank
  std::barrier<> meeting;
};

// Elements are int64.
class LocalTransport final : public Transport {
 public:
  LocalTransport(LocalGroup& group, std::size_t place, std::size_t most_rows,
                 std::size_t most_packed = std::numeric_limits<std::size_t>::max())
      : group_(group), place_(place), most_rows_(most_rows), most_packed_(most_packed) {}

  std::size_t most_rows() const override { return most_rows_; }
  std::size_t most_packed() const override { return most_packed_; }
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

  // The largest size requested from `scratch`.
  std::size_t most_scratch() const { return most_scratch_; }

 private:
  // Publishes x, lets `take` read any (rank, element), and waits until all ranks have done so.
  using Reader = std::function<std::int64_t(std::size_t rank, std::size_t element)>;
  void show(const void* x, const std::function<void(const Reader&)>& take);
  std::int64_t combined(const Reader& read, std::size_t element, Reduction reduction) const;

  LocalGroup& group_;
  std::size_t place_;
  std::size_t most_rows_;
  std::size_t most_packed_;
  std::size_t most_scratch_ = 0;
};

// Runs `body` for every rank, each in a separate thread.
void on_ranks(std::size_t ranks, const std::function<void(std::size_t)>& body);

}  // namespace tensoropt
