#include <algorithm>
#include <numeric>

#include "kinds.hpp"
#include "mpi/group.hpp"
#include "ort/attributes.hpp"
#include "run.hpp"

namespace tensoropt::kinds {
namespace {

// Sets the rank that this rank receives x from, and the rank that receives this rank's x.
void read(const Attributes& given, Collective& node) {
  const auto& sources = node.further = given.integers("sources");
  Shape places(node.group.size());
  std::iota(places.begin(), places.end(), 0);
  if (!std::is_permutation(places.begin(), places.end(), sources.begin(), sources.end()))
    throw Error("sources must hold each place of the group " + text_of(node.group) +
                " once, got: " + text_of(sources));
  const std::int64_t own = node.place_of(job_rank());
  const auto target = std::find(sources.begin(), sources.end(), own);
  node.source = node.group[std::size_t(sources[std::size_t(own)])];
  node.target = node.group[std::size_t(target - sources.begin())];
}

}  // namespace

// The place at position i of the group receives x of the place `sources[i]`.
const Kind& collective_permute() {
  static constexpr Kind kKind{
      .name = "CollectivePermute",
      .read = read,
      .text = [](const Collective& node) { return "sources " + text_of(node.further); },
      .overlap = Overlap::ReadsX,
      .run =
          [](const Run& run) {
            run.transport.exchange(run.x, run.y, run.count, run.target(), run.source());
          },
  };
  return kKind;
}

}  // namespace tensoropt::kinds
