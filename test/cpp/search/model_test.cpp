// Conversion of a problem to a model, and its simplification.
#include "model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "random_problem.hpp"

namespace tensoropt::search {
namespace {

// The model's cost of a user's choice, in the user's units.
Cost cost_by(const Model& model, const Units& units, const std::vector<int>& choice) {
  const Cost cost = cost_of(model, choice);
  return {cost.time * units.time, cost.fixed * units.memory, cost.transient * units.memory};
}

TEST(Intake, CostsAreThoseOfTheUser) {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    const Problem problem = random_problem(random);
    Units units;
    const Model model = model_of(problem, units);
    for (const auto& choice : problem.choices()) {
      const Cost expected = problem.cost_of(choice), found = cost_by(model, units, choice);
      EXPECT_EQ(found.time, expected.time);
      if (expected.time == kInfinity) continue;
      EXPECT_EQ(found.fixed, expected.fixed);
      EXPECT_EQ(found.transient, expected.transient);
    }
  }
}

TEST(Intake, UnitsArePowersOfTwoThatLeaveRoomForSums) {
  const Problem problem{{{{0.1, 0.7}, {3e9, 5}, {}}}, {0, 0, 0}, {}};
  Units units;
  const Model model = model_of(problem, units);
  int exponent = 0;
  EXPECT_EQ(std::frexp(units.time, &exponent), 0.5);
  EXPECT_EQ(std::frexp(units.memory, &exponent), 0.5);
  const Cost all = cost_of(model, {1, 1, 1});
  EXPECT_EQ(all.time, std::floor(all.time));
  EXPECT_LT(all.time, 0x1p52);
  EXPECT_NEAR(all.time * units.time, 2.1, 1e-12);
}

TEST(Intake, EqualTablesAreOne) {
  const Problem problem{{{{1, 2}, {}, {}}, {{1, 2}, {}, {}}, {{1, 3}, {}, {}}}, {0, 1, 2}, {}};
  Units units;
  const Model model = model_of(problem, units);
  EXPECT_EQ(model.nodes[0], model.nodes[1]);
  EXPECT_NE(model.nodes[0], model.nodes[2]);
}

TEST(Intake, ManyThreadsReadTheSame) {
  std::mt19937 random(6);
  Problem problem = random_problem(random, {8, 4});
  problem.tables.push_back({std::vector<double>(200'000, 3), {}, {}});  // worth threads
  Intake intake;
  for (const auto& table : problem.tables)
    intake.tables.push_back({table.time, table.fixed, table.transient});
  intake.nodes = problem.nodes;
  Units one, four;
  const Model first = intake.model(one, 1), second = intake.model(four, 4);
  EXPECT_EQ(one.time, four.time);
  for (std::size_t n = 0; n < first.nodes.size(); ++n) EXPECT_EQ(*first.nodes[n], *second.nodes[n]);
}

TEST(Model, MergeParallelLeavesOneEdgePerPair) {
  std::mt19937 random(7);
  for (int round = 0; round < 30; ++round) {
    const Problem problem = random_problem(random);
    Units units;
    const Model model = model_of(problem, units);
    std::vector<std::pair<int, int>> ends;
    for (const Edge& edge : model.edges) ends.push_back(std::minmax(edge.a, edge.b));
    std::sort(ends.begin(), ends.end());
    EXPECT_EQ(std::adjacent_find(ends.begin(), ends.end()), ends.end());
  }
}

TEST(Model, Transposed) {
  const Table table{{1, 2, 3, 4, 5, 6}, {}, {6, 5, 4, 3, 2, 1}};
  const Table turned = transposed(table, 2, 3);
  EXPECT_EQ(turned.time, (std::vector<double>{1, 4, 2, 5, 3, 6}));
  EXPECT_TRUE(turned.fixed.empty());
  EXPECT_EQ(turned.transient, (std::vector<double>{6, 3, 5, 2, 4, 1}));
  EXPECT_EQ(transposed(turned, 3, 2), table);
}

TEST(Model, InternerFindsEqualTables) {
  Interner interner;
  const TableRef first = interner.of(Table{{1, 2}, {}, {}});
  EXPECT_EQ(interner.of(Table{{1, 2}, {}, {}}), first);
  EXPECT_NE(interner.of(Table{{1, 2}, {0, 0}, {}}), first);
  EXPECT_NE(interner.of(Table{{1, 2}, {3, 4}, {}}, hash_of(*first)), first) << "hashes collide";
}

// The user's choice costs the same before and after nodes were absorbed.
TEST(Model, ReduceAbsorbsWhatHasNoChoice) {
  std::mt19937 random(8);
  int absorbed = 0;
  for (int round = 0; round < 200; ++round) {
    const Problem problem = random_problem(random, {5, 3});
    Units units;
    const Model model = model_of(problem, units);
    Keep keep = keep_all(model);
    for (auto& entries : keep)
      for (char& entry : entries) entry = random() % 3 > 0;
    const auto reduced = reduce(model, keep);
    if (!reduced) continue;
    absorbed += int(model.nodes.size() - reduced->nodes.size());
    std::vector<int> choice(reduced->nodes.size());
    for (std::size_t n = 0; n < choice.size(); ++n)
      choice[n] = int(random() % reduced->nodes[n]->size());
    const auto full = expand(*reduced, choice);
    for (std::size_t n = 0; n < full.size(); ++n)
      EXPECT_TRUE(keep[n][std::size_t(full[n])]) << "an entry came back";
    const Cost found = cost_of(*reduced, choice);
    const Cost expected = cost_of(model, {full.begin(), full.end()});
    EXPECT_EQ(found.time, expected.time);
    if (expected.time == kInfinity) continue;
    EXPECT_EQ(found.memory(), expected.memory());
  }
  EXPECT_GT(absorbed, 50);
}

TEST(Model, ReduceToNothing) {
  Units units;
  const Model model = model_of({{{{1, kInfinity}, {}, {}}}, {0}, {}}, units);
  EXPECT_FALSE(reduce(model, {{0, 1}})) << "what is left is forbidden";
}

// Dropping dominated configurations loses no point.
TEST(Model, UndominatedKeepsTheFrontier) {
  std::mt19937 random(9);
  std::size_t dropped = 0;
  for (int round = 0; round < 150; ++round) {
    const Problem problem = random_problem(random);
    Units units;
    const Model model = model_of(problem, units);
    const Keep keep = undominated(model, [] { return false; });
    dropped += count(keep_all(model)) - count(keep);
    Points points;
    for (const auto& choice : problem.choices()) {
      bool kept = true;
      for (std::size_t n = 0; n < choice.size(); ++n) kept &= keep[n][std::size_t(choice[n])] != 0;
      const Cost cost = problem.cost_of(choice);
      if (kept && cost.time != kInfinity) points.emplace_back(cost.time, cost.memory());
    }
    EXPECT_EQ(best_of(points), enumerated(problem));
  }
  EXPECT_GT(dropped, 50u);
}

}  // namespace
}  // namespace tensoropt::search
