#include "transport.hpp"

namespace tensoropt {
namespace {

struct Run {
  const Collective& node;
  const ElementInfo& element;
  const Shape& shape;
  const void* x;
  void* y;
  Transport& transport;
  std::size_t count = count_of(shape);
  std::size_t ranks = node.group.size();

  std::size_t bytes() const { return count * element.bytes; }

  // How pieces of shape `piece`, one for each rank, lie in the tensor they make up along `dim`.
  Cut cut(const Shape& piece, std::int64_t dim) const {
    return cut_of(piece, std::size_t(dim), ranks, element.bytes);
  }

  // The pieces of x one after another: x itself where they already lie so.
  const void* packed(const Cut& cut) const {
    if (cut.outer == 1) return x;
    void* pieces = transport.scratch(0, bytes());
    transport.pack(cut, x, pieces);
    return pieces;
  }
};

void all_gather(const Run& run) {
  const auto cut = run.cut(run.shape, run.node.dim);
  if (cut.outer <= run.transport.most_rows())
    return run.transport.all_gather(run.x, run.y, run.count / cut.outer, cut.outer);
  void* pieces = run.transport.scratch(0, run.bytes() * run.ranks);
  run.transport.all_gather(run.x, pieces, run.count, 1);
  run.transport.unpack(cut, pieces, run.y);
}

void reduce_scatter(const Run& run) {
  const auto cut = run.cut(run.node.output_shape(run.shape), run.node.dim);
  const auto count = run.count / run.ranks;
  const bool as_it_lies = cut.outer <= run.transport.most_rows();
  const auto rows = as_it_lies ? cut.outer : 1;
  const void* pieces = as_it_lies ? run.x : run.packed(cut);
  run.transport.reduce_scatter(pieces, run.y, count / rows, rows, run.node.reduction);
}

void all_to_all(const Run& run) {
  Shape piece = run.shape;
  piece[std::size_t(run.node.split_dim)] /= std::int64_t(run.ranks);
  const auto concat = run.cut(piece, run.node.concat_dim);
  const void* sent = run.packed(run.cut(piece, run.node.split_dim));
  void* received = concat.outer == 1 ? run.y : run.transport.scratch(1, run.bytes());
  run.transport.all_to_all(sent, received, run.count / run.ranks);
  if (received != run.y) run.transport.unpack(concat, received, run.y);
}

}  // namespace

void run(const Collective& node, const ElementInfo& element, const Shape& shape, const void* x,
         void* y, Transport& transport) {
  const Run run{node, element, shape, x, y, transport};
  if (run.count == 0) return;
  if (run.ranks == 1) return transport.copy(x, y, run.bytes());
  switch (node.kind) {
    case Kind::AllReduce: return transport.all_reduce(x, y, run.count, node.reduction);
    case Kind::AllGather: return all_gather(run);
    case Kind::ReduceScatter: return reduce_scatter(run);
    case Kind::AllToAll: return all_to_all(run);
    case Kind::Broadcast: return transport.broadcast(x, y, run.count, node.place_of(node.source));
    case Kind::Send: return transport.send(x, run.count, node.place_of(node.target));
    case Kind::Recv: return transport.recv(y, run.count, node.place_of(node.source));
  }
}

}  // namespace tensoropt
