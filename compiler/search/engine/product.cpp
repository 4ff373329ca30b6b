#include "product.hpp"

#include "kernels.hpp"

namespace tensoropt::search {

std::optional<std::size_t> factor_of(const Step& step) {
  std::optional<std::size_t> place;
  for (std::size_t i = 0; i < step.inputs.size(); ++i) {
    if (!step.access[i].row) continue;
    if (place || step.outer.empty() || step.access[i].outer.back() != 0) return {};
    place = i;
  }
  return place;
}

Product::Product(const Step& s, std::size_t place, const Values& values)
    : step(s), factor(place), m(s.outer.back()), n(s.row) {
  for (int id : step.inputs) tables.push_back(values.of(id));
  for (Access& access : step.access) {
    along.push_back(access.outer.back());
    access.outer.pop_back();
  }
  step.outer.pop_back();
  step.row *= m;
}

Product::Terms Product::sums(const std::size_t* offset) {
  if (const auto only = only_term())
    return {tables[*only] + offset[*only], step.access[*only].stride_v};
  sum_.assign(step.values * m, 0.0);
  for (std::size_t i = 0; i < tables.size(); ++i)
    if (i != factor) add_term(i, tables[i] + offset[i]);
  return {sum_.data(), m};
}

// Returns the only input other than the factor, if its entries are contiguous.
std::optional<std::size_t> Product::only_term() const {
  const std::size_t other = 1 - factor;
  if (tables.size() == 2 && along[other] == 1) return other;
  return {};
}

void Product::add_term(std::size_t i, const double* from) {
  for (std::size_t v = 0; v < step.values; ++v, from += step.access[i].stride_v)
    if (along[i] == 1) add_row(&sum_[v * m], from, m);
    else
      for (std::size_t r = 0; r < m; ++r) sum_[v * m + r] += from[r * along[i]];
}

}  // namespace tensoropt::search
