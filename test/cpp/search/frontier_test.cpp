// Complete frontiers, compared with an enumeration of small problems.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "fill.hpp"
#include "random_problem.hpp"
#include "sweep.hpp"

namespace tensoropt::search {
namespace {

Result solve(Prepared& whole, const Options& options) {
  const Token enough(kInfinity), last(kInfinity);
  Progress progress;
  return solve_frontier(whole, options, {enough, last}, progress);
}

// Every point has the cost of its choice in the user's problem.
void check_choices(const Problem& problem, const Result& result, const Units& units) {
  for (const Solution& point : result.points) {
    const Cost cost = problem.cost_of({point.choice.begin(), point.choice.end()});
    EXPECT_EQ(cost.time, point.cost.time * units.time);
    EXPECT_EQ(cost.memory(), point.cost.memory() * units.memory);
  }
}

// Whether every expected point is within 1 + epsilon of a found one in both objectives.
bool covers(const Points& found, const Points& expected, double epsilon) {
  return std::all_of(expected.begin(), expected.end(), [&](const auto& wanted) {
    return std::any_of(found.begin(), found.end(), [&](const auto& point) {
      return point.first <= wanted.first * (1 + epsilon) &&
             point.second <= wanted.second * (1 + epsilon);
    });
  });
}

struct Way {
  const char* name;
  double direct_sums, box_sums;
};

// By one elimination, gap by gap, and by gaps that must be split repeatedly.
class Frontiers : public testing::TestWithParam<Way> {
 protected:
  Options options(double epsilon, int threads = 1) const {
    return {.epsilon = epsilon,
            .threads = threads,
            .direct_sums = GetParam().direct_sums,
            .box_sums = GetParam().box_sums};
  }
};

TEST_P(Frontiers, AllPoints) {
  std::mt19937 random(14);
  for (int round = 0; round < 1000; ++round) {
    const Problem problem = random_problem(random, {5, 4, round % 2 == 0});
    Units units;
    auto whole = prepared(problem, units);
    const Points expected = enumerated(problem);
    EXPECT_EQ(!whole, expected.empty());
    if (!whole) continue;
    const Result result = solve(*whole, options(0));
    EXPECT_EQ(points_of(result.points, units), expected) << "round " << round;
    EXPECT_EQ(result.epsilon, 0);
    check_choices(problem, result, units);
  }
}

TEST_P(Frontiers, WithinEpsilon) {
  std::mt19937 random(15);
  for (int round = 0; round < 500; ++round) {
    const Problem problem = random_problem(random, {6, 4});
    Units units;
    auto whole = prepared(problem, units);
    if (!whole) continue;
    const double epsilon = round % 2 ? 0.05 : 0.3;
    const Result result = solve(*whole, options(epsilon));
    const Points expected = enumerated(problem), found = points_of(result.points, units);
    EXPECT_LE(result.epsilon, epsilon);
    EXPECT_TRUE(covers(found, expected, epsilon));
    EXPECT_EQ(found.front(), expected.front()) << "the fastest point is exact";
    EXPECT_EQ(found.back(), expected.back()) << "the leanest point is exact";
    check_choices(problem, result, units);
  }
}

TEST_P(Frontiers, ThreadsDoNotMatter) {
  std::mt19937 random(16);
  for (int round = 0; round < 60; ++round) {
    const Problem problem = random_problem(random, {12, 5});
    Units units;
    auto one = prepared(problem, units), three = prepared(problem, units);
    if (!one) continue;
    const Result first = solve(*one, options(0.02, 1)), second = solve(*three, options(0.02, 3));
    ASSERT_EQ(points_of(first.points, units), points_of(second.points, units));
    for (std::size_t p = 0; p < first.points.size(); ++p)
      EXPECT_EQ(first.points[p].choice, second.points[p].choice);
  }
}

TEST_P(Frontiers, ChainOfEqualLayers) {
  const Problem problem = chain_of_layers(9);
  Units units;
  auto whole = prepared(problem, units);
  EXPECT_EQ(points_of(solve(*whole, options(0, 2)).points, units), enumerated(problem));
}

// Two nodes that must make the same choice: of 160,000 lists in one step, 400 are not empty.
TEST(Lists, EmptyOnesAreMergedWithAnEyeOnTheClock) {
  constexpr std::size_t kSize = 400;
  Problem problem{
      {{}, {std::vector<double>(kSize * kSize, kInfinity), {}, {}}}, {0, 0}, {{0, 1, 1}}};
  for (std::size_t entry = 0; entry < kSize; ++entry) {
    problem.tables[0].time.push_back(double(entry));
    problem.tables[0].fixed.push_back(double(kSize - entry));
    problem.tables[1].time[entry * kSize + entry] = 0;
  }
  Units units;
  const auto whole = prepared(problem, units);
  auto merge = [&](double limit_s) {
    const Token token(limit_s);
    return frontier_of(whole->model, whole->plan, {}, whole->bounds, {0}, {}, token);
  };
  EXPECT_EQ(merge(kInfinity).size(), kSize);
  EXPECT_THROW(merge(0), Stopped);
}

INSTANTIATE_TEST_SUITE_P(, Frontiers,
                         testing::Values(Way{"Directly", 1e6, 2e7}, Way{"GapByGap", 0, 2e7},
                                         Way{"DividingGaps", 0, 60}),
                         [](const auto& way) { return way.param.name; });

TEST(Frontier, KnownPointsNeedNotBeFound) {
  const Problem problem = chain_of_layers(9);
  Units units;
  auto whole = prepared(problem, units);
  Options options{.epsilon = 0.01};
  const auto all = solve(*whole, options).points;
  ASSERT_GT(all.size(), 4u);
  for (std::size_t p = 1; p + 1 < all.size(); ++p) options.known.push_back(all[p].cost);
  const Result result = solve(*whole, options);
  Points together = points_of(result.points, units);
  for (const Cost& cost : options.known)
    together.emplace_back(cost.time * units.time, cost.memory() * units.memory);
  EXPECT_LE(result.epsilon, 0.01);
  EXPECT_TRUE(covers(together, enumerated(problem), 0.01));
}

TEST(Frontier, HullOnlyHasABound) {
  const Problem problem = chain_of_layers(9);
  Units units;
  auto whole = prepared(problem, units);
  const Result result = solve(*whole, {.hull_only = true});
  EXPECT_EQ(result.epsilon, result.hull_epsilon);
  EXPECT_TRUE(covers(points_of(result.points, units), enumerated(problem), result.epsilon));
}

TEST(Frontier, FastestAndLeanestEvenWhereTimeIsUp) {
  const Problem problem = chain_of_layers(9);
  Units units;
  auto whole = prepared(problem, units);
  const Token over(0), last(kInfinity);
  Progress progress;
  const Result result = solve_frontier(*whole, {}, {over, last}, progress);
  const Points expected = enumerated(problem), found = points_of(result.points, units);
  EXPECT_EQ(found.front(), expected.front());
  EXPECT_EQ(found.back(), expected.back());
  EXPECT_GT(result.epsilon, 0);
  EXPECT_TRUE(covers(found, expected, result.epsilon));
}

// Layers with distinct costs: every choice is on the frontier, so that lists grow.
Problem chain_of_powers(std::size_t layers) {
  Problem problem = chain_of_layers(layers);
  for (std::size_t n = 0; n < layers; ++n) {
    problem.nodes[n] = problem.tables.size();
    const double step = std::ldexp(1, 2 * int(n));
    problem.tables.push_back({{step, 2 * step, 3 * step}, {3 * step, 2 * step, step}, {}});
  }
  problem.edges.clear();
  return problem;
}

TEST(FrontierOf, NoMoreThanItsEffort) {
  Units units;
  const auto whole = prepared(chain_of_powers(13), units);
  const auto levels = transient_levels(whole->model);
  auto points_within = [&](const Effort& effort) {
    return frontier_of(whole->model, whole->plan, {}, {}, levels, effort, Token(kInfinity));
  };
  {
    const Budget::Share share(Budget::used() + 1000);
    EXPECT_THROW(points_within({}), OutOfMemory);
  }
  EXPECT_THROW(points_within({.sums = 1000}), OverBudget);
  EXPECT_LE(points_within({.cap = 16}).size(), 16u);
}

TEST(SearchMixed, FindsChoicesOfConfigurationsThatAreKnown) {
  const Problem problem = chain_of_layers(4);
  Units units;
  auto whole = prepared(problem, units);
  const Model& model = whole->model;
  Solution fast{cost_of(model, {0, 0, 0, 0}), {0, 0, 0, 0}};
  Solution lean{cost_of(model, {2, 2, 2, 2}), {2, 2, 2, 2}};
  Box box;
  box.time = lean.cost.time - 1;
  box.memory = fast.cost.memory() - 1;
  box.mixed = {1, 1, box.time + box.memory};
  const auto found = search_mixed(model, {&fast, &lean}, box, Token(kInfinity));
  EXPECT_FALSE(found.empty());
  for (const Solution& point : found) {
    EXPECT_LE(point.cost.time, box.time);
    EXPECT_LE(point.cost.memory(), box.memory);
    for (int config : point.choice) EXPECT_NE(config, 1) << "neither end has it";
  }
}

TEST(KeepBest, DropsWhatIsBeatenOrEqual) {
  auto point = [](double time, double fixed) { return Solution{{time, fixed, 0}, {}}; };
  std::vector<Solution> points{point(3, 1), point(1, 5), point(2, 5), point(1, 4), point(3, 1)};
  keep_best(points);
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0].cost.time, 1);
  EXPECT_EQ(points[0].cost.fixed, 4);
  EXPECT_EQ(points[1].cost.time, 3);
}

}  // namespace
}  // namespace tensoropt::search
