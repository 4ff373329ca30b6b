#include "collective.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include "kind.hpp"

namespace tensoropt {
namespace {

std::int64_t& dimension(Shape& shape, std::int64_t dim, const char* name) {
  if (dim < 0 || dim >= std::int64_t(shape.size()))
    throw Error(std::string(name) + " must be a dimension of the input of shape " + text_of(shape) +
                ", got: " + std::to_string(dim));
  return shape[std::size_t(dim)];
}

void multiply(Shape& shape, std::int64_t dim, const char* name, std::int64_t factor) {
  dimension(shape, dim, name) *= factor;
}

void divide(Shape& shape, std::int64_t dim, const char* name, std::int64_t divisor) {
  auto& size = dimension(shape, dim, name);
  if (size % divisor != 0)
    throw Error("dimension " + std::to_string(dim) + " of the input of shape " + text_of(shape) +
                " does not divide by the group's " + std::to_string(divisor) + " ranks");
  size /= divisor;
}

std::string attributes_of(const Collective& node) {
  const auto number = [](const char* name, std::int64_t value) {
    return std::string(" ") + name + " " + std::to_string(value);
  };
  const auto& kind = *node.kind;
  if (kind.is_message()) return number("from rank", node.source) + number("to rank", node.target);
  std::string text;
  if (kind.reduces) text += std::string(" reduction ") + reduction_name(node.reduction);
  if (kind.cuts) text += number(kind.cuts, node.cut_dim);
  if (kind.joins) text += number(kind.joins, node.join_dim);
  return kind.text ? text + " " + kind.text(node) : text;
}

}  // namespace

Reduction parse_reduction(const std::string& name) {
  for (auto reduction : {Reduction::Sum, Reduction::Max, Reduction::Min})
    if (name == reduction_name(reduction)) return reduction;
  throw Error("unknown reduction, expected sum, max or min, got: " + name);
}

const char* reduction_name(Reduction reduction) {
  constexpr const char* kNames[] = {"sum", "max", "min"};
  return kNames[int(reduction)];
}

std::string text_of(const Shape& shape) {
  std::string text = "[";
  for (auto size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

std::size_t count_of(const Shape& shape) {
  return std::size_t(
      std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>()));
}

std::size_t count_of_row(const Shape& shape) {
  return std::size_t(
      std::accumulate(shape.begin() + 1, shape.end(), std::int64_t{1}, std::multiplies<>()));
}

Shape Collective::output_shape(const Shape& shape) const {
  const auto ranks = std::int64_t(group.size());
  Shape result = shape;
  if (kind->cuts) divide(result, cut_dim, kind->cuts, ranks);
  if (kind->joins) multiply(result, join_dim, kind->joins, ranks);
  return result;
}

Shape Collective::output_shape(const Shape& shape, const std::int64_t* rows,
                               std::size_t count) const {
  const auto ranks = group.size();
  if (shape.empty()) throw Error("the input must have rows, got: a scalar");
  if (count != 2 * ranks || std::any_of(rows, rows + count, [](auto n) { return n < 0; }))
    throw Error("rows must be two numbers for each of the group's " + std::to_string(ranks) +
                " ranks, got: " + text_of(Shape(rows, rows + count)));
  std::int64_t sent = 0;
  Shape result = shape;
  result[0] = 0;
  for (std::size_t place = 0; place < ranks; ++place) {
    sent += rows[2 * place];
    result[0] += rows[2 * place + 1];
  }
  if (sent != shape[0])
    throw Error("rows must send the " + std::to_string(shape[0]) +
                " rows of the input, got: " + std::to_string(sent));
  return result;
}

std::string Collective::describe(const ElementInfo& element, const Shape& shape) const {
  const auto* name = kind->is_message() ? "message" : kind->name;
  const Shape agreed(shape.begin() + (kind->has_rows && !shape.empty()), shape.end());
  const auto* rows = kind->has_rows ? " rows" : "";
  return std::string(name) + " of " + element.name + text_of(agreed) + rows + attributes_of(*this);
}

int Collective::place_of(std::int64_t rank) const {
  const auto found = std::find(group.begin(), group.end(), rank);
  if (found == group.end())
    throw Error("root must be a rank of the group " + text_of(group) +
                ", got: " + std::to_string(rank));
  return int(found - group.begin());
}

}  // namespace tensoropt
