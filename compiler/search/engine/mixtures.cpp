// Plans that mix the options of known plans: lists over the time and a weighted sum of the moments.
#include <algorithm>

#include "intake.hpp"
#include "relaxation.hpp"
#include "sweep.hpp"

namespace tensoropt::search {
namespace {

// Effort, as for the first try of a search without the hull, and for a gap.
constexpr double kDirectSums = 1e6, kBoxSums = 2e7;

// Tables in memory of their own, as an intake refers to.
struct Tables {
  std::vector<std::vector<double>> arrays;
  Intake intake;

  std::size_t add(std::vector<double> time, std::vector<double> bytes) {
    arrays.push_back(std::move(time));
    arrays.push_back(std::move(bytes));
    return intake.nodes.size() + intake.edges.size();
  }
  void connect() {
    for (std::size_t i = 0; i < arrays.size(); i += 2)
      intake.tables.push_back({arrays[i], arrays[i + 1], {}});
  }
};

std::vector<int> used_options(const std::vector<std::vector<int>>& choices, int node) {
  std::vector<int> used;
  for (const auto& choice : choices) used.push_back(choice[node]);
  std::sort(used.begin(), used.end());
  used.erase(std::unique(used.begin(), used.end()), used.end());
  return used;
}

}  // namespace

std::vector<std::vector<int>> Relaxation::mixtures(const Multipliers& at,
                                                   const std::vector<std::vector<int>>& choices,
                                                   Unit corner, double epsilon,
                                                   const Token& token) const {
  if (choices.empty() || token.expired()) return {};
  std::vector<std::vector<int>> used;
  for (std::size_t n = 0; n < sizes_.size(); ++n) used.push_back(used_options(choices, int(n)));
  std::vector<double> weights(pieces_.size(), 0);
  const double of_memory = 1 - at.weights.time;
  for (std::size_t m = 0; m < moments_.size() && of_memory > 0; ++m)
    for (const int piece : moments_[m]) weights[piece] += at.weights.moments[m] / of_memory;
  std::vector<std::vector<std::size_t>> of_node(sizes_.size()), of_pair(pairs_.size());
  for (std::size_t p = 0; p < pieces_.size(); ++p)
    if (weights[p] > 0)
      (pieces_[p].pair < 0 ? of_node[pieces_[p].node] : of_pair[pieces_[p].pair]).push_back(p);

  Tables tables;
  for (std::size_t n = 0; n < sizes_.size(); ++n) {
    std::vector<double> time, bytes;
    for (const int option : used[n]) {
      time.push_back(node_time_[first_[n] + option]);
      bytes.push_back(node_fixed_[first_[n] + option]);
      for (const std::size_t p : of_node[n])
        bytes.back() += weights[p] * tables_[pieces_[p].table][option];
    }
    tables.intake.nodes.push_back(tables.add(std::move(time), std::move(bytes)));
  }
  for (std::size_t e = 0; e < pairs_.size(); ++e) {
    const Pair& pair = pairs_[e];
    const Base& base = bases_[pair.base];
    std::vector<double> time, bytes;
    for (const int a : used[pair.a])
      for (const int b : used[pair.b]) {
        const std::size_t cell = std::size_t(a) * sizes_[pair.b] + b;
        time.push_back(base.time[cell]);
        bytes.push_back(base.fixed.empty() ? 0 : base.fixed[cell]);
        for (const std::size_t p : of_pair[e])
          bytes.back() += weights[p] * tables_[pieces_[p].table][cell];
      }
    tables.intake.edges.push_back({pair.a, pair.b, tables.add(std::move(time), std::move(bytes))});
  }
  tables.connect();

  Units units;
  Model model = tables.intake.model(units, 1);
  merge_parallel(model);
  const Keep all = keep_all(model);
  auto reduced = reduce(std::move(model), all);
  if (!reduced) return {};
  Prepared whole{std::move(*reduced), {}, {}, {}};
  whole.plan = make_plan(whole.model);
  whole.numbers = make_shared_plan(whole.model, whole.plan, false);
  Result result;
  Progress progress;
  const Options options{.epsilon = epsilon, .direct_sums = kDirectSums, .box_sums = kBoxSums};
  try {
    check_size(whole.plan, Budget::left(), 1);
    result = solve_frontier(whole, options, {token, token}, progress);
  } catch (const Stopped&) {
  } catch (const TooLarge&) {
  } catch (const OutOfMemory&) {
  }
  std::vector<std::vector<int>> found;
  double last = kInfinity;  // bytes of a faster plan, which covers slower ones within epsilon
  for (const Solution& point : result.points) {
    const double time = point.cost.time * units.time, bytes = point.cost.fixed * units.memory;
    if (time >= corner.time || bytes >= corner.memory || last <= (1 + epsilon) * bytes) continue;
    last = bytes;
    auto& choice = found.emplace_back(point.choice.begin(), point.choice.end());
    for (std::size_t n = 0; n < choice.size(); ++n) choice[n] = used[n][choice[n]];
  }
  return found;
}

}  // namespace tensoropt::search
