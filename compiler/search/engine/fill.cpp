#include "fill.hpp"

#include <algorithm>

namespace tensoropt::search {
namespace {

constexpr std::uint64_t kSums = 300000;

Keep used_by(const Model& model, const std::vector<const Solution*>& points) {
  Keep keep;
  for (std::size_t n = 0; n < model.nodes.size(); ++n) {
    const auto& configs = model.configs[n];
    auto& entries = keep.emplace_back(configs.size(), 0);
    for (const Solution* point : points) {
      const int used = point->choice[model.source[n]];
      entries[std::lower_bound(configs.begin(), configs.end(), used) - configs.begin()] = 1;
    }
  }
  return keep;
}

}  // namespace

std::vector<Solution> search_mixed(const Model& model, const std::vector<const Solution*>& points,
                                   const Box& box, const Token& token) {
  if (token.expired()) return {};
  auto part = reduce(model, used_by(model, points));
  if (!part) return {};
  Prepared small{std::move(*part), {}, {}, {}};
  small.plan = make_plan(small.model);
  std::vector<Solution> found;
  try {
    search_box(small, box, {kSums, kCap, 1}, token, found);
  } catch (const Stopped&) {
  } catch (const OverBudget&) {
  } catch (const OutOfMemory&) {
  }
  return found;
}

}  // namespace tensoropt::search
