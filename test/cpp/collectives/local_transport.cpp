#include "local_transport.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <thread>

namespace tensoropt {

LocalGroup::LocalGroup(std::size_t ranks)
    : ranks(ranks), shown(ranks), meeting(std::ptrdiff_t(ranks)) {}

void LocalTransport::show(const void* x, const std::function<void(const Reader&)>& take) {
  group_.shown[place_] = x;
  group_.meeting.arrive_and_wait();
  take([&](std::size_t rank, std::size_t element) {
    return static_cast<const std::int64_t*>(group_.shown[rank])[element];
  });
  group_.meeting.arrive_and_wait();
}

std::int64_t LocalTransport::combined(const Reader& read, std::size_t element,
                                      Reduction reduction) const {
  std::int64_t value = read(0, element);
  for (std::size_t rank = 1; rank < group_.ranks; ++rank) {
    const std::int64_t other = read(rank, element);
    if (reduction == Reduction::Sum) value += other;
    else value = reduction == Reduction::Max ? std::max(value, other) : std::min(value, other);
  }
  return value;
}

void LocalTransport::all_reduce(const void* x, void* y, std::size_t count, Reduction reduction) {
  show(x, [&](const Reader& read) {
    for (std::size_t i = 0; i < count; ++i)
      static_cast<std::int64_t*>(y)[i] = combined(read, i, reduction);
  });
}

void LocalTransport::all_gather(const void* x, void* y, std::size_t count, std::size_t rows) {
  show(x, [&](const Reader& read) {
    auto* to = static_cast<std::int64_t*>(y);
    for (std::size_t row = 0; row < rows; ++row)
      for (std::size_t rank = 0; rank < group_.ranks; ++rank)
        for (std::size_t i = 0; i < count; ++i) *to++ = read(rank, row * count + i);
  });
}

void LocalTransport::reduce_scatter(const void* x, void* y, std::size_t count, std::size_t rows,
                                    Reduction reduction) {
  show(x, [&](const Reader& read) {
    auto* to = static_cast<std::int64_t*>(y);
    for (std::size_t row = 0; row < rows; ++row)
      for (std::size_t i = 0; i < count; ++i)
        *to++ = combined(read, (row * group_.ranks + place_) * count + i, reduction);
  });
}

void LocalTransport::all_to_all(const void* x, void* y, std::size_t count) {
  show(x, [&](const Reader& read) {
    auto* to = static_cast<std::int64_t*>(y);
    for (std::size_t rank = 0; rank < group_.ranks; ++rank)
      for (std::size_t i = 0; i < count; ++i) *to++ = read(rank, place_ * count + i);
  });
}

void LocalTransport::all_to_all_unequal(const void* x, const std::size_t* sent, void* y,
                                        const std::size_t* received) {
  // First each rank shows the start of every piece, then the pieces.
  std::vector<std::int64_t> starts(group_.ranks);
  std::inclusive_scan(sent, sent + group_.ranks - 1, starts.begin() + 1);
  std::vector<std::size_t> first(group_.ranks);
  show(starts.data(), [&](const Reader& read) {
    for (std::size_t rank = 0; rank < group_.ranks; ++rank)
      first[rank] = std::size_t(read(rank, place_));
  });
  show(x, [&](const Reader& read) {
    auto* to = static_cast<std::int64_t*>(y);
    for (std::size_t rank = 0; rank < group_.ranks; ++rank)
      for (std::size_t i = 0; i < received[rank]; ++i) *to++ = read(rank, first[rank] + i);
  });
}

void LocalTransport::exchange(const void* x, void* y, std::size_t count, int, int from) {
  show(x, [&](const Reader& read) {
    for (std::size_t i = 0; i < count; ++i)
      static_cast<std::int64_t*>(y)[i] = read(std::size_t(from), i);
  });
}

void LocalTransport::broadcast(const void* x, void* y, std::size_t count, int root) {
  show(x, [&](const Reader& read) {
    for (std::size_t i = 0; i < count; ++i)
      static_cast<std::int64_t*>(y)[i] = read(std::size_t(root), i);
  });
}

void LocalTransport::send(const void* x, std::size_t, int) {
  show(x, [](const Reader&) {});
}

void LocalTransport::recv(void* y, std::size_t count, int place) {
  show(nullptr, [&](const Reader& read) {
    for (std::size_t i = 0; i < count; ++i)
      static_cast<std::int64_t*>(y)[i] = read(std::size_t(place), i);
  });
}

void LocalTransport::copy(const void* from, void* to, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}

void LocalTransport::pack(const Cut& cut, const void* tensor, void* pieces) {
  transpose_chunks(cut.outer, cut.pieces, cut.chunk_bytes, tensor, pieces);
}

void LocalTransport::unpack(const Cut& cut, const void* pieces, void* tensor) {
  transpose_chunks(cut.pieces, cut.outer, cut.chunk_bytes, pieces, tensor);
}

void* LocalTransport::scratch(std::size_t index, std::size_t bytes) {
  most_scratch_ = std::max(most_scratch_, bytes);
  return thread_scratch(index, bytes);
}

void on_ranks(std::size_t ranks, const std::function<void(std::size_t)>& body) {
  std::vector<std::jthread> threads;
  for (std::size_t rank = 0; rank < ranks; ++rank) threads.emplace_back(body, rank);
}

}  // namespace tensoropt
