#include "ort/attributes.hpp"

#include <algorithm>
#include <numeric>

#include "mpi/group.hpp"

namespace tensoropt {
namespace {

void read_reduction(const Api& api, const OrtKernelInfo* info, Collective& node) {
  if (node.kind == Kind::AllReduce || node.kind == Kind::ReduceScatter)
    node.reduction = parse_reduction(api.text(info, "reduction"));
}

template <class Source>
Collective read_common(const Api& api, Source* source, Kind kind) {
  Collective node{.kind = kind};
  if (!is_message(kind)) node.group = api.integers(source, "group");
  if (kind == Kind::AllGather || kind == Kind::ReduceScatter) node.dim = api.integer(source, "dim");
  if (kind == Kind::AllToAll) {
    node.split_dim = api.integer(source, "split_dim");
    node.concat_dim = api.integer(source, "concat_dim");
  }
  if (kind == Kind::Recv) {
    node.shape = api.integers(source, "shape");
    node.type = int(api.integer(source, "dtype"));
  }
  return node;
}

void read_peer(const Api& api, const OrtKernelInfo* info, Collective& node) {
  const auto peer = api.integer(info, "peer"), self = std::int64_t(job_rank());
  if (peer < 0 || peer >= job_size() || peer == self)
    throw Error("peer must be a rank below " + std::to_string(job_size()) + " other than " +
                std::to_string(self) + " itself, got: " + std::to_string(peer));
  node.source = node.kind == Kind::Send ? self : peer;
  node.target = node.kind == Kind::Send ? peer : self;
  node.group = {std::min(self, peer), std::max(self, peer)};
}

// Sets the rank that this rank receives x from, and the rank that receives this rank's x.
void read_sources(const Api& api, const OrtKernelInfo* info, Collective& node) {
  node.sources = api.integers(info, "sources");
  Shape places(node.group.size());
  std::iota(places.begin(), places.end(), 0);
  if (!std::is_permutation(places.begin(), places.end(), node.sources.begin(), node.sources.end()))
    throw Error("sources must hold each place of the group " + text_of(node.group) +
                " once, got: " + text_of(node.sources));
  const std::int64_t own = node.place_of(job_rank());
  const auto target = std::find(node.sources.begin(), node.sources.end(), own);
  node.source = node.group[std::size_t(node.sources[std::size_t(own)])];
  node.target = node.group[std::size_t(target - node.sources.begin())];
}

void check_shape(const Collective& node) {
  element_info(node.type);
  if (!node.shape.empty() && *std::min_element(node.shape.begin(), node.shape.end()) < 0)
    throw Error("shape must hold sizes, got: " + text_of(node.shape));
}

}  // namespace

Collective read_collective(const Api& api, const OrtKernelInfo* info, Kind kind) {
  auto node = read_common(api, info, kind);
  read_reduction(api, info, node);
  require_mpi();
  if (is_message(kind)) read_peer(api, info, node);
  check_group(node.group);
  if (kind == Kind::Recv) check_shape(node);
  if (kind == Kind::CollectivePermute) read_sources(api, info, node);
  if (kind == Kind::Broadcast) {
    node.source = api.integer(info, "root");
    node.place_of(node.source);
  }
  return node;
}

Collective read_combined(const Api& api, const OrtKernelInfo* info, Kind kind) {
  Collective node{.kind = kind, .group = api.integers(info, "group")};
  read_reduction(api, info, node);
  require_mpi();
  check_group(node.group);
  return node;
}

Collective read_shapes(const Api& api, OrtShapeInferContext* context, Kind kind) {
  return read_common(api, context, kind);
}

}  // namespace tensoropt
