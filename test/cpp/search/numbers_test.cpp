// Elimination over numbers, compared with the minimum over all choices.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "minimise.hpp"
#include "minplus.hpp"
#include "random_problem.hpp"

namespace tensoropt::search {
namespace {

// All choices of a model, node by node.
void each_choice(const Model& model, const std::function<void(const std::vector<int>&)>& f) {
  std::vector<int> choice(model.nodes.size(), 0);
  for (;;) {
    f(choice);
    std::size_t n = 0;
    while (n < choice.size() && ++choice[n] == model.size(int(n))) choice[n++] = 0;
    if (n == choice.size()) return;
  }
}

// The cost of a choice in the tables, without the model's base cost.
double value_of(const Model& model, const std::vector<int>& choice, const Weights& weights) {
  Model free = model;
  free.base = {};
  const Cost cost = cost_of(free, choice);
  if (cost.time == kInfinity || cost.transient > weights.limit) return kInfinity;
  return weights.time * cost.time + weights.fixed * cost.fixed;
}

double least_of(const Model& model, const Weights& weights) {
  double low = kInfinity;
  each_choice(model,
              [&](const auto& choice) { low = std::min(low, value_of(model, choice, weights)); });
  return low;
}

// All kinds of plans for numbers.
std::vector<Plan> plans_of(const Prepared& whole, std::mt19937& random) {
  std::vector<int> order(whole.model.nodes.size());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  return {whole.plan, whole.numbers, make_number_plan(whole.model, false),
          make_shared_plan(whole.model, whole.plan, true), make_ordered_plan(whole.model, order)};
}

Weights random_weights(std::mt19937& random) {
  return {double(random() % 3), double(random() % 3), random() % 2 ? kInfinity : 0x1p48};
}

TEST(Eliminate, LeastOfAllChoices) {
  std::mt19937 random(10);
  for (int round = 0; round < 400; ++round) {
    Units units;
    const auto whole = prepared(random_problem(random, {6, 4}), units);
    if (!whole) continue;
    const Weights weights = random_weights(random);
    const double expected = least_of(whole->model, weights);
    for (const Plan& plan : plans_of(*whole, random)) {
      const Values values = eliminate(plan, weights);
      EXPECT_EQ(values.total(), expected);
      EXPECT_EQ(least_sum(plan, weights), expected);
      if (expected == kInfinity) continue;
      EXPECT_EQ(value_of(whole->model, decode(plan, values), weights), expected);
    }
  }
}

// For each entry of the node tables: the minimum over all choices that contain it.
TEST(Outside, LeastThroughEveryEntry) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    Units units;
    const auto whole = prepared(random_problem(random), units);
    if (!whole) continue;
    const Weights weights{1, double(round % 3), kInfinity};
    const Model& model = whole->model;
    const Values values = eliminate(whole->plan, weights);
    const Outside rest = outside(whole->plan, values, Around::All);
    for (std::size_t n = 0; n < model.nodes.size(); ++n) {
      if (whole->plan.same[n] != int(n)) continue;  // bounded by the minimum over all places
      std::vector<double> through(model.nodes[n]->size(), kInfinity);
      each_choice(model, [&](const auto& choice) {
        double& low = through[std::size_t(choice[n])];
        low = std::min(low, value_of(model, choice, weights));
      });
      const auto own = weigh(*model.nodes[n], weights);
      const bool alone = std::count(whole->plan.same.begin(), whole->plan.same.end(), int(n)) == 1;
      for (std::size_t i = 0; i < own.size(); ++i) {
        if (own[i] == kInfinity) continue;
        const double expected = through[i] - own[i];
        EXPECT_LE(rest[n][i], expected);
        EXPECT_TRUE(!alone || rest[n][i] == expected);
      }
    }
  }
}

TEST(AmongTies, LeastSecondValueOfTheBestChoices) {
  std::mt19937 random(12);
  for (int round = 0; round < 400; ++round) {
    Units units;
    const auto whole = prepared(random_problem(random), units);
    if (!whole) continue;
    const Weights first{1, 0, kInfinity}, second{0, 1, kInfinity};
    const double fastest = least_of(whole->model, first);
    double expected = kInfinity;
    each_choice(whole->model, [&](const auto& choice) {
      if (value_of(whole->model, choice, first) == fastest)
        expected = std::min(expected, value_of(whole->model, choice, second));
    });
    const Values values = eliminate(whole->numbers, first);
    const Values ties = among_ties(whole->numbers, values, second);
    EXPECT_EQ(ties.total(), expected);
    const auto choice = decode(whole->numbers, values, &ties);
    EXPECT_EQ(value_of(whole->model, choice, first), fastest);
    EXPECT_EQ(value_of(whole->model, choice, second), expected);
  }
}

// A weighted sum of time and total memory, including the transient maximum.
TEST(Minimise, LeastWeightedSum) {
  std::mt19937 random(13);
  for (int round = 0; round < 400; ++round) {
    const Problem problem = random_problem(random);
    Units units;
    const auto whole = prepared(problem, units);
    if (!whole) continue;
    const double time = double(random() % 4), memory = double(1 + random() % 4);
    double expected = kInfinity;
    each_choice(whole->model, [&](const auto& choice) {
      const Cost cost = cost_of(whole->model, choice);
      if (cost.time != kInfinity)
        expected = std::min(expected, time * cost.time + memory * cost.memory());
    });
    const auto best = minimise(*whole, transient_levels(whole->model), time, memory);
    const Cost& cost = best.solution.cost;
    EXPECT_EQ(best.bound, expected);
    EXPECT_EQ(time * cost.time + memory * cost.memory(), expected);
    const Cost of_user =
        problem.cost_of({best.solution.choice.begin(), best.solution.choice.end()});
    EXPECT_EQ(of_user.time, cost.time * units.time);
    EXPECT_EQ(of_user.memory(), cost.memory() * units.memory);
  }
}

// Doubling the layers adds a few distinct steps instead of doubling them.
TEST(Plan, EqualLayersAreComputedOnce) {
  auto distinct = [](std::size_t layers) {
    Units units;
    const auto whole = prepared(chain_of_layers(layers), units);
    const Plan plan = make_shared_plan(whole->model, whole->plan, true);
    return std::count_if(plan.steps.begin(), plan.steps.end(),
                         [&](const Step& step) { return plan.same[step.output] == step.output; });
  };
  EXPECT_LE(distinct(64), distinct(32) + 8);
  EXPECT_LE(distinct(128), distinct(64) + 8);
}

TEST(Plan, TooWideTablesAreRefused) {
  Units units;
  const auto whole = prepared(chain_of_layers(8), units);
  EXPECT_NO_THROW(check_size(whole->plan, 1e6));
  EXPECT_THROW(check_size(whole->plan, 1), TooLarge);
}

TEST(Plan, EachRowVisitsEveryRowOnce) {
  Step step;
  step.inputs = {0, 1};
  step.outer = {2, 3};
  step.row = 5;
  step.access = {{7, {3, 1}, true}, {1, {0, 4}, false}};
  std::vector<std::size_t> to, first, second;
  each_row(step, 1, rows_of(step), [&](std::size_t out, const std::size_t* at) {
    to.push_back(out);
    first.push_back(at[0]);
    second.push_back(at[1]);
  });
  EXPECT_EQ(to, (std::vector<std::size_t>{5, 10, 15, 20, 25}));
  EXPECT_EQ(first, (std::vector<std::size_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(second, (std::vector<std::size_t>{4, 8, 0, 4, 8}));
}

// However small its steps are: thousands of them may take long together.
TEST(Numbers, EveryStepStopsAtTheEndOfItsToken) {
  std::mt19937 random(13);
  const Token over(0);
  int tried = 0;
  while (tried < 5) {
    Units units;
    const auto whole = prepared(random_problem(random), units);
    if (!whole || whole->plan.steps.empty()) continue;
    ++tried;
    const Weights first{1, 0, kInfinity}, second{0, 1, kInfinity};
    const Values values = eliminate(whole->numbers, first);
    EXPECT_THROW(eliminate(whole->plan, first, &over), Stopped);
    EXPECT_THROW(among_ties(whole->numbers, values, second, &over), Stopped);
    EXPECT_THROW(outside(whole->numbers, values, Around::All, &over), Stopped);
  }
}

}  // namespace
}  // namespace tensoropt::search
