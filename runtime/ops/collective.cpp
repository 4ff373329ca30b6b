#include "collective.hpp"

#include <cstring>
#include <functional>
#include <numeric>

#include "mpi_call.hpp"
#include "strided.hpp"

namespace tensoropt {
namespace {

std::string text_of(const Shape &shape) {
  std::string text = "[";
  for (auto size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

std::int64_t &dimension(Shape &shape, std::int64_t dim, const char *name) {
  if (dim < 0 || dim >= std::int64_t(shape.size()))
    throw Error(std::string(name) + " must be a dimension of the input of shape " +
                text_of(shape) + ", got: " + std::to_string(dim));
  return shape[std::size_t(dim)];
}

void multiply(Shape &shape, std::int64_t dim, const char *name, std::int64_t factor) {
  dimension(shape, dim, name) *= factor;
}

void divide(Shape &shape, std::int64_t dim, const char *name, std::int64_t divisor) {
  auto &size = dimension(shape, dim, name);
  if (size % divisor != 0)
    throw Error("dimension " + std::to_string(dim) + " of the input of shape " + text_of(shape) +
                " does not divide by the group's " + std::to_string(divisor) + " ranks");
  size /= divisor;
}

std::size_t count_of(const Shape &shape) {
  return std::size_t(std::accumulate(shape.begin(), shape.end(), std::int64_t{1},
                                     std::multiplies<>()));
}

void all_reduce(const Collective &node, MPI_Comm comm, const ElementInfo &element,
                const Shape &shape, const void *x, void *y) {
  const auto [type, op] = mpi_reduction(element.type, node.reduction);
  check_mpi("MPI_Allreduce_c",
            MPI_Allreduce_c(x, y, MPI_Count(count_of(shape)), type, op, comm));
}

void all_gather(const Collective &node, MPI_Comm comm, const ElementInfo &element,
                const Shape &shape, const void *x, void *y) {
  const std::size_t bytes = count_of(shape) * element.bytes, ranks = node.group.size();
  const auto cut = cut_of(shape, std::size_t(node.dim), ranks, element.bytes);
  void *pieces = cut.is_contiguous() ? y : scratch(0, bytes * ranks);
  check_mpi("MPI_Allgather_c", MPI_Allgather_c(x, MPI_Count(bytes), MPI_BYTE, pieces,
                                               MPI_Count(bytes), MPI_BYTE, comm));
  if (pieces != y) unpack(cut, pieces, y);
}

// The pieces of x along `dim`, one after another: x itself where they already lie so.
const void *pieces_of(const Cut &cut, const void *x, std::size_t bytes) {
  if (cut.is_contiguous()) return x;
  void *pieces = scratch(0, bytes);
  pack(cut, x, pieces);
  return pieces;
}

void reduce_scatter(const Collective &node, MPI_Comm comm, const ElementInfo &element,
                    const Shape &shape, const void *x, void *y) {
  const auto piece = node.output_shape(shape);
  const auto cut = cut_of(piece, std::size_t(node.dim), node.group.size(), element.bytes);
  const void *pieces = pieces_of(cut, x, count_of(shape) * element.bytes);
  const auto [type, op] = mpi_reduction(element.type, node.reduction);
  check_mpi("MPI_Reduce_scatter_block_c",
            MPI_Reduce_scatter_block_c(pieces, y, MPI_Count(count_of(piece)), type, op, comm));
}

void all_to_all(const Collective &node, MPI_Comm comm, const ElementInfo &element,
                const Shape &shape, const void *x, void *y) {
  const std::size_t ranks = node.group.size(), bytes = count_of(shape) * element.bytes;
  Shape piece = shape;
  divide(piece, node.split_dim, "split_dim", std::int64_t(ranks));
  const auto split = cut_of(piece, std::size_t(node.split_dim), ranks, element.bytes);
  const auto concat = cut_of(piece, std::size_t(node.concat_dim), ranks, element.bytes);
  const void *sent = pieces_of(split, x, bytes);
  void *received = concat.is_contiguous() ? y : scratch(1, bytes);
  const auto piece_bytes = MPI_Count(bytes / ranks);
  check_mpi("MPI_Alltoall_c", MPI_Alltoall_c(sent, piece_bytes, MPI_BYTE, received, piece_bytes,
                                             MPI_BYTE, comm));
  if (received != y) unpack(concat, received, y);
}

}  // namespace

const char *kind_name(Kind kind) {
  constexpr const char *names[] = {"AllReduce", "AllGather", "ReduceScatter", "AllToAll"};
  return names[int(kind)];
}

Shape Collective::output_shape(const Shape &shape) const {
  const auto ranks = std::int64_t(group.size());
  Shape result = shape;
  if (kind == Kind::AllGather) multiply(result, dim, "dim", ranks);
  if (kind == Kind::ReduceScatter) divide(result, dim, "dim", ranks);
  if (kind == Kind::AllToAll) {
    divide(result, split_dim, "split_dim", ranks);
    multiply(result, concat_dim, "concat_dim", ranks);
  }
  return result;
}

std::string Collective::describe(const ElementInfo &element, const Shape &shape) const {
  std::string text = std::string(kind_name(kind)) + " of " + element.name + text_of(shape);
  if (kind == Kind::AllReduce || kind == Kind::ReduceScatter)
    text += std::string(" reduction ") + reduction_name(reduction);
  if (kind == Kind::AllGather || kind == Kind::ReduceScatter) text += " dim " + std::to_string(dim);
  if (kind == Kind::AllToAll)
    text += " split_dim " + std::to_string(split_dim) + " concat_dim " + std::to_string(concat_dim);
  return text;
}

void Collective::run(MPI_Comm comm, const ElementInfo &element, const Shape &shape, const void *x,
                     void *y) const {
  if (group.size() == 1) {
    std::memcpy(y, x, count_of(shape) * element.bytes);
    return;
  }
  switch (kind) {
    case Kind::AllReduce: return all_reduce(*this, comm, element, shape, x, y);
    case Kind::AllGather: return all_gather(*this, comm, element, shape, x, y);
    case Kind::ReduceScatter: return reduce_scatter(*this, comm, element, shape, x, y);
    case Kind::AllToAll: return all_to_all(*this, comm, element, shape, x, y);
  }
}

}  // namespace tensoropt
