#include "ort/attributes.hpp"

#include <algorithm>

#include "mpi/group.hpp"

namespace tensoropt {
namespace {

void read_peer(const Attributes& given, Collective& node) {
  const auto peer = given.integer("peer"), self = std::int64_t(job_rank());
  if (peer < 0 || peer >= job_size() || peer == self)
    throw Error("peer must be a rank below " + std::to_string(job_size()) + " other than " +
                std::to_string(self) + " itself, got: " + std::to_string(peer));
  const bool sends = node.kind->has_x;
  node.source = sends ? self : peer;
  node.target = sends ? peer : self;
  node.group = {std::min(self, peer), std::max(self, peer)};
}

void check_shape(const Collective& node) {
  element_info(node.type);
  if (!node.shape.empty() && *std::min_element(node.shape.begin(), node.shape.end()) < 0)
    throw Error("shape must hold sizes, got: " + text_of(node.shape));
}

}  // namespace

Collective read_collective(const Attributes& given, const Form& form) {
  const auto& kind = *form.kind;
  auto node = read_shapes(given, form);
  if (kind.reduces) node.reduction = parse_reduction(given.text("reduction"));
  require_mpi();
  if (kind.is_message()) read_peer(given, node);
  check_group(node.group);
  if (!kind.has_x) check_shape(node);
  if (kind.read) kind.read(given, node);
  return node;
}

Collective read_shapes(const Attributes& given, const Form& form) {
  const auto& kind = *form.kind;
  Collective node{.kind = &kind};
  if (!kind.is_message()) node.group = given.integers("group");
  if (kind.cuts && !form.combined) node.cut_dim = given.integer(kind.cuts);
  if (kind.joins && !form.combined) node.join_dim = given.integer(kind.joins);
  if (!kind.has_x) {
    node.shape = given.integers("shape");
    node.type = int(given.integer("dtype"));
  }
  return node;
}

}  // namespace tensoropt
