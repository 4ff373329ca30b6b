// What a collective is: its attributes, the shapes it gives, and what its ranks must agree on.
// Nothing here depends on what moves the data (transport.hpp).
#pragma once

#include <string>

#include "element.hpp"
#include "shape.hpp"

namespace tensoropt {

enum class Kind {
  AllReduce,
  AllGather,
  ReduceScatter,
  AllToAll,
  CollectivePermute,
  Broadcast,
  Send,
  Recv
};

const char* kind_name(Kind kind);

constexpr bool is_message(Kind kind) { return kind == Kind::Send || kind == Kind::Recv; }

enum class Reduction { Sum, Max, Min };

Reduction parse_reduction(const std::string& name);
const char* reduction_name(Reduction reduction);

// "[2, 3]"
std::string text_of(const Shape& shape);

std::size_t count_of(const Shape& shape);

// A collective as its node says it. All ranks are ranks of the job, not places in the group.
struct Collective {
  Kind kind;
  Shape group = {};                      // of Send and Recv: the two, in ascending order
  std::int64_t dim = 0;                  // AllGather, ReduceScatter
  std::int64_t split_dim = 0;            // AllToAll
  std::int64_t concat_dim = 0;           // AllToAll
  Reduction reduction = Reduction::Sum;  // AllReduce, ReduceScatter
  Shape sources = {};                    // CollectivePermute: for each place whose x its y is
  std::int64_t source = 0;               // CollectivePermute, Broadcast, Send, Recv: whose x it is
  std::int64_t target = 0;               // CollectivePermute, Send, Recv: who gets this rank's x
  Shape shape = {};                      // Recv: of y
  int type = 0;                          // Recv: of y, the ONNX number

  // The shape of y for x of `shape`. Throws where a dimension does not exist or does not divide by
  // the group's size.
  Shape output_shape(const Shape& shape) const;

  // One line with all that the group's ranks must have in common; `shape` is that of x, of y where
  // there is no x.
  std::string describe(const ElementInfo& element, const Shape& shape) const;

  // The place of a rank in the group. Throws where it is not there.
  int place_of(std::int64_t rank) const;
};

}  // namespace tensoropt
