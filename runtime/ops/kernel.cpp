#include "kernel.hpp"

#include "group.hpp"

namespace tensoropt {
namespace {

Collective read_collective(const Api &api, Kind kind, const OrtKernelInfo *info) {
  Collective node{.kind = kind, .group = api.integers(info, "group")};
  if (kind == Kind::AllReduce || kind == Kind::ReduceScatter)
    node.reduction = parse_reduction(api.text(info, "reduction"));
  if (kind == Kind::AllGather || kind == Kind::ReduceScatter) node.dim = api.integer(info, "dim");
  if (kind == Kind::AllToAll) {
    node.split_dim = api.integer(info, "split_dim");
    node.concat_dim = api.integer(info, "concat_dim");
  }
  require_mpi();
  check_group(node.group);
  return node;
}

}  // namespace

Kernel::Kernel(const Api &api, Kind kind, const OrtKernelInfo *info)
    : api_(api), name_(api.node_name(info)), collective_{.kind = kind, .group = {}} {
  try {
    collective_ = read_collective(api, kind, info);
  } catch (const Error &error) {
    throw Error(locate(error.what()));
  }
}

std::string Kernel::locate(const std::string &message) const {
  return std::string(kind_name(collective_.kind)) + " node '" + name_ + "': " + message;
}

void Kernel::compute(OrtKernelContext *context) try {
  const auto *x = api_.input(context, 0);
  const auto [type, shape] = api_.type_and_shape(x);
  void *y = api_.output(context, 0, collective_.output_shape(shape));
  exchange(type, shape, api_.data(x), y);
  auto *token = static_cast<std::int64_t *>(api_.output(context, 1, {1}));
  if (token) *token = *static_cast<const std::int64_t *>(api_.data(api_.input(context, 1)));
} catch (const std::exception &error) {
  throw Error(locate(error.what()));
}

void Kernel::exchange(int type, const Shape &shape, const void *x, void *y) {
  const auto &element = element_info(type);
  require_mpi();
  if (comm_ == MPI_COMM_NULL) {
    // Only at a node's first run: a wrong plan is found there, and later steps stay free of it.
    auto comm = communicator(collective_.group);
    check_agreement(comm, collective_.describe(element, shape));
    comm_ = comm;
  }
  collective_.run(comm_, element, shape, x, y);
}

}  // namespace tensoropt
