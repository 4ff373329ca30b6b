// The kinds of collectives. Everything particular to a kind is in its file in collectives/; all
// other files serve every kind. CMake lists the files in kinds.hpp.
#pragma once

#include <string>
#include <vector>

#include "collective.hpp"

namespace tensoropt {

class Attributes;
class Transport;
struct Run;

// A transfer that runs during other nodes has a node that starts it and a node that waits for it.
enum class Overlap {
  Never,
  InPlace,  // The transfer works in y, so x may be freed after the start.
  ReadsX,  // The transfer reads x until it ends, so the wait takes x as well, which keeps it alive.
};

// The cost of an algorithm on a link: messages in sequence, and bytes sent per byte of x.
struct Algorithm {
  double messages = 1, volume = 1;
};
using Algorithms = std::vector<Algorithm>;

struct Kind {
  // The operator, (x, token) -> (y, token). A message between two ranks has no y at its sender and
  // no x at its receiver; the attributes there are the `shape` and `dtype` of y.
  const char* name;
  bool has_x = true, has_y = true;

  // The operator is (x, rows, token) -> (y, token). `rows`, int64 [ranks, 2] on the host, has the
  // rows of x that this rank sends to each place, and the rows of y that it receives from there. So
  // ranks have x and y of different sizes.
  bool has_rows = false;

  // Attributes, which determine the shape of y: a kind may combine the group's x by the attribute
  // `reduction`, cut x into one piece per rank along the dimension in the attribute `cuts`, and
  // join the pieces of all ranks along the dimension in the attribute `joins`.
  bool reduces = false;
  const char* cuts = nullptr;
  const char* joins = nullptr;

  // Further attributes: reads and checks them once the group is valid, and returns their text, on
  // which the ranks must agree.
  void (*read)(const Attributes& given, Collective& node) = nullptr;
  std::string (*text)(const Collective& node) = nullptr;

  Overlap overlap = Overlap::Never;

  // The known algorithms for `ranks` ranks; `rounds` is the ceiling of its binary logarithm. As in
  // the cost model (runtime/support/collectives.py).
  Algorithms (*algorithms)(double ranks, double rounds) = [](double, double) {
    return Algorithms{Algorithm{}};
  };

  // Runs x to y between several ranks. x is not empty, unless the kind has rows.
  void (*run)(const Run& run);

  // The same for `count` elements per rank, contiguous, with the ranks' pieces in order. Several
  // collectives of the kind are fused by packing them. Null if they cannot be; a kind that can
  // cuts or joins along at most one dimension.
  void (*run_packed)(const Collective& node, Transport& transport, const void* x, void* y,
                     std::size_t count) = nullptr;

  constexpr bool is_message() const { return !has_x || !has_y; }
  constexpr std::size_t token_in() const { return std::size_t(has_x) + std::size_t(has_rows); }
  constexpr std::size_t token_out() const { return has_y; }
};

// A collective, or several of a kind fused.
struct Form {
  const Kind* kind;
  bool combined;

  std::string name() const { return (combined ? "Combined" : "") + std::string(kind->name); }
  bool has_dims() const { return combined && (kind->cuts || kind->joins); }
};

}  // namespace tensoropt
