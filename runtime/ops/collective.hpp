// A collective: its attributes, its result shapes, and the signature that its ranks must agree on.
// Nothing here depends on the transport of the data (transport.hpp).
#pragma once

#include <string>

#include "element.hpp"
#include "shape.hpp"

namespace tensoropt {

struct Kind;

enum class Reduction { Sum, Max, Min };

Reduction parse_reduction(const std::string& name);
const char* reduction_name(Reduction reduction);

// "[2, 3]"
std::string text_of(const Shape& shape);

std::size_t count_of(const Shape& shape);

// The elements of a row: of all dimensions except the first.
std::size_t count_of_row(const Shape& shape);

// The attributes of a collective's node. All ranks are ranks of the job, not places in the group.
struct Collective {
  const Kind* kind;
  Shape group = {};                      // of a message: both ranks, in ascending order
  Reduction reduction = Reduction::Sum;  // if the kind reduces
  std::int64_t cut_dim = 0;              // if it cuts x
  std::int64_t join_dim = 0;             // if it joins pieces
  Shape further = {};                    // of the kind's own attribute, such as `sources`
  std::int64_t source = 0;               // the rank that y comes from, if it is one rank
  std::int64_t target = 0;               // the rank that x goes to, if it is one rank
  Shape shape = {};                      // without x: shape of y
  int type = 0;                          // without x: ONNX element type of y

  // The shape of y for x of `shape`. Throws if a dimension does not exist, or if it does not divide
  // by the group's size.
  Shape output_shape(const Shape& shape) const;

  // The shape of y for x of `shape` and the `count` numbers `rows` of a kind that has them. Throws
  // if they are not two numbers for each rank, or not all rows of x.
  Shape output_shape(const Shape& shape, const std::int64_t* rows, std::size_t count) const;

  // One line with all properties that the group's ranks must agree on. `shape` is the shape of x,
  // or of y if there is no x. The number of rows of x is omitted if the kind has rows.
  std::string describe(const ElementInfo& element, const Shape& shape) const;

  // The place of a rank in the group. Throws if the group does not contain it.
  int place_of(std::int64_t rank) const;
};

}  // namespace tensoropt
