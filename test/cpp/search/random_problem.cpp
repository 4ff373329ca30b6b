#include "random_problem.hpp"

#include <algorithm>

namespace tensoropt::search {
namespace {

std::size_t below(std::mt19937& random, std::size_t limit) { return random() % limit; }

std::vector<double> numbers(std::mt19937& random, std::size_t count) {
  std::vector<double> values(count);
  for (double& value : values) value = double(below(random, 10));
  return values;
}

Problem::Costs costs(std::mt19937& random, std::size_t count, bool has_transient) {
  Problem::Costs table{numbers(random, count), {}, {}};
  for (double& time : table.time)
    if (below(random, 10) == 0) time = kInfinity;
  if (below(random, 3) > 0) table.fixed = numbers(random, count);
  if (has_transient && below(random, 2) > 0) table.transient = numbers(random, count);
  return table;
}

}  // namespace

Cost Problem::Costs::at(std::size_t entry) const {
  return {time[entry], fixed.empty() ? 0 : fixed[entry], transient.empty() ? 0 : transient[entry]};
}

Cost Problem::cost_of(const std::vector<int>& choice) const {
  Cost total;
  auto charge = [&](const Cost& cost) {
    total.time += cost.time;
    total.fixed += cost.fixed;
    total.transient = std::max(total.transient, cost.transient);
  };
  for (std::size_t n = 0; n < nodes.size(); ++n)
    charge(tables[nodes[n]].at(std::size_t(choice[n])));
  for (const Pair& edge : edges) {
    const std::size_t a = std::size_t(edge.a), b = std::size_t(edge.b);
    charge(tables[edge.table].at(std::size_t(choice[a]) * size_of(b) + std::size_t(choice[b])));
  }
  return total;
}

std::vector<std::vector<int>> Problem::choices() const {
  std::vector<std::vector<int>> all{std::vector<int>(nodes.size(), 0)};
  for (std::size_t n = 0; n < nodes.size(); ++n)
    for (std::size_t i = 0, known = all.size(); i < known; ++i)
      for (std::size_t entry = 1; entry < size_of(n); ++entry) {
        auto choice = all[i];
        choice[n] = int(entry);
        all.push_back(std::move(choice));
      }
  return all;
}

Problem random_problem(std::mt19937& random, const Size& size) {
  Problem problem;
  const std::size_t nodes = 1 + below(random, size.nodes);
  for (std::size_t n = 0; n < nodes; ++n) {
    problem.nodes.push_back(problem.tables.size());
    problem.tables.push_back(costs(random, 1 + below(random, size.entries), size.has_transient));
  }
  for (std::size_t e = 0; nodes > 1 && e < 2 * nodes; ++e) {
    const std::size_t a = below(random, nodes), b = below(random, nodes);
    if (a == b) continue;
    problem.edges.push_back({int(a), int(b), problem.tables.size()});
    problem.tables.push_back(
        costs(random, problem.size_of(a) * problem.size_of(b), size.has_transient));
  }
  return problem;
}

Problem chain_of_layers(std::size_t layers) {
  Problem problem;
  problem.tables.push_back({{1, 2, 4}, {4, 2, 1}, {}});             // a layer
  problem.tables.push_back({{0, 1, 1, 1, 0, 1, 1, 1, 0}, {}, {}});  // a change costs time
  for (std::size_t n = 0; n < layers; ++n) {
    problem.nodes.push_back(0);
    if (n > 0) problem.edges.push_back({int(n) - 1, int(n), 1});
  }
  return problem;
}

Points best_of(Points points) {
  std::sort(points.begin(), points.end());
  Points best;
  for (const auto& point : points)
    if (best.empty() || point.second < best.back().second) best.push_back(point);
  return best;
}

Points enumerated(const Problem& problem) {
  Points points;
  for (const auto& choice : problem.choices()) {
    const Cost cost = problem.cost_of(choice);
    if (cost.time != kInfinity) points.emplace_back(cost.time, cost.memory());
  }
  return best_of(std::move(points));
}

Model model_of(const Problem& problem, Units& units) {
  Intake intake;
  for (const auto& table : problem.tables)
    intake.tables.push_back({table.time, table.fixed, table.transient});
  intake.nodes = problem.nodes;
  for (const auto& edge : problem.edges) intake.edges.push_back({edge.a, edge.b, edge.table});
  Model model = intake.model(units, 1);
  merge_parallel(model);
  return model;
}

std::optional<Prepared> prepared(const Problem& problem, Units& units) {
  Model model = model_of(problem, units);
  const Keep all = keep_all(model);
  auto reduced = reduce(std::move(model), all);
  if (!reduced) return std::nullopt;
  Prepared whole{std::move(*reduced), {}, {}, {}};
  whole.plan = make_plan(whole.model);
  whole.numbers = make_shared_plan(whole.model, whole.plan, false);
  if (eliminate(whole.numbers, {1, 0, kInfinity}).total() == kInfinity) return std::nullopt;
  return whole;
}

Points points_of(const std::vector<Solution>& solutions, const Units& units) {
  Points points;
  for (const Solution& solution : solutions)
    points.emplace_back(solution.cost.time * units.time, solution.cost.memory() * units.memory);
  return points;
}

}  // namespace tensoropt::search
