// A collective: its attributes, its result shapes, and the signature that its ranks must agree on.
// Nothing here depends on the transport of the data (transport.hpp).
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

// The attributes of a collective's node. All ranks are ranks of the job, not places in the group.
struct Collective {
  Kind kind;
  Shape group = {};                      // for Send and Recv: both ranks, in ascending order
  std::int64_t dim = 0;                  // AllGather, ReduceScatter
  std::int64_t split_dim = 0;            // AllToAll
  std::int64_t concat_dim = 0;           // AllToAll
  Reduction reduction = Reduction::Sum;  // AllReduce, ReduceScatter
  Shape sources = {};                    // CollectivePermute: source place of y, for each place
  std::int64_t source = 0;               // CollectivePermute, Broadcast, Send, Recv: sending rank
  std::int64_t target = 0;               // CollectivePermute, Send, Recv: receiving rank
  Shape shape = {};                      // Recv: shape of y
  int type = 0;                          // Recv: ONNX element type of y

  // The shape of y for x of `shape`. Throws if a dimension does not exist, or if it does not divide
  // by the group's size.
  Shape output_shape(const Shape& shape) const;

  // One line with all properties that the group's ranks must agree on. `shape` is the shape of x,
  // or of y if there is no x.
  std::string describe(const ElementInfo& element, const Shape& shape) const;

  // The place of a rank in the group. Throws if the group does not contain it.
  int place_of(std::int64_t rank) const;
};

}  // namespace tensoropt
