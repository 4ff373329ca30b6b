// The frontier of one cell, compared with all sums of its lists' points.
#include "merge.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>

#include "model.hpp"
#include "points.hpp"

namespace tensoropt::search {
namespace {

using Triple = std::tuple<double, double, int>;  // time, fixed, level

struct Staircase {
  std::vector<double> time, fixed;
  std::vector<std::int32_t> level;
  List view() const {
    return {time.data(), fixed.data(), level.data(), std::uint32_t(time.size())};
  }
};

// The non-dominated points, sorted; a point of a lower level may dominate one of a higher level.
std::vector<Triple> best_of(std::vector<Triple> points) {
  std::sort(points.begin(), points.end());
  points.erase(std::unique(points.begin(), points.end()), points.end());
  std::vector<Triple> best;
  for (const auto& [time, fixed, level] : points) {
    const bool beaten = std::any_of(best.begin(), best.end(), [&](const Triple& other) {
      return std::get<1>(other) <= fixed && std::get<2>(other) <= level;
    });
    if (!beaten) best.emplace_back(time, fixed, level);
  }
  return best;
}

Staircase random_staircase(std::mt19937& random, std::size_t most, int levels) {
  std::vector<Triple> points;
  for (std::size_t i = random() % (most + 1); i-- > 0;)
    points.emplace_back(random() % 50, random() % 50, int(random() % unsigned(levels)));
  Staircase list;
  for (const auto& [time, fixed, level] : best_of(points)) {
    list.time.push_back(time);
    list.fixed.push_back(fixed);
    list.level.push_back(level);
  }
  return list;
}

// Random limits, which fall as the level rises; some switched off.
Limits random_limits(std::mt19937& random, int levels) {
  Limits limits;
  limits.time = random() % 2 ? double(random() % 100) : kInfinity;
  limits.slope = double(random() % 3);
  double fixed = random() % 2 ? 60 : kInfinity, mixed = random() % 2 ? 150 : kInfinity;
  for (int l = 0; l < levels; ++l) {
    limits.fixed.push_back(fixed -= double(random() % 10));
    limits.mixed.push_back(mixed -= double(random() % 10));
  }
  return limits;
}

bool keeps(const Limits& limits, const Triple& point) {
  const auto& [time, fixed, level] = point;
  const auto l = std::size_t(level);
  return time <= limits.time && fixed < limits.fixed[l] &&
         time + limits.slope * fixed <= limits.mixed[l];
}

// Merges some pairs of lists and compares with the sums one by one.
void check_cell(std::mt19937& random, std::size_t most, int levels) {
  const Token token(kInfinity);
  const Limits limits = random_limits(random, levels);
  std::vector<std::pair<Staircase, Staircase>> pairs(1 + random() % 4);
  for (auto& [left, right] : pairs)
    left = random_staircase(random, most, levels), right = random_staircase(random, most, levels);
  CellMerger merger(levels > 1);
  merger.begin(limits);
  std::vector<Triple> sums;
  for (std::size_t v = 0; v < pairs.size(); ++v) {
    const auto& [left, right] = pairs[v];
    merger.add(std::int32_t(v), left.view(), right.view());
    for (std::size_t i = 0; i < left.time.size(); ++i)
      for (std::size_t j = 0; j < right.time.size(); ++j)
        sums.emplace_back(left.time[i] + right.time[j], left.fixed[i] + right.fixed[j],
                          std::max(left.level[i], right.level[j]));
  }
  std::erase_if(sums, [&](const Triple& point) { return !keeps(limits, point); });
  std::vector<Triple> found;
  for (const Joined& point : merger.finish(token)) {
    found.emplace_back(point.time, point.fixed, point.level);
    const auto& [left, right] = pairs[std::size_t(point.v)];
    EXPECT_EQ(point.time, left.time[point.left] + right.time[point.right]);
    EXPECT_EQ(point.fixed, left.fixed[point.left] + right.fixed[point.right]);
  }
  EXPECT_EQ(found, best_of(sums));
}

TEST(CellMerger, FewSums) {
  std::mt19937 random(2);
  for (int round = 0; round < 400; ++round) check_cell(random, 4, 1 + round % 3);
}

TEST(CellMerger, ManySums) {  // by heap
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) check_cell(random, 30, 1 + round % 3);
}

// `count` points, `step` apart along a line: no sum of two such lists beats another.
Staircase line(int count, double step) {
  Staircase list;
  for (int i = 0; i < count; ++i) {
    list.time.push_back(i * step);
    list.fixed.push_back((count - i) * step);
    list.level.push_back(0);
  }
  return list;
}

TEST(CellMerger, StopsAtTheEndOfItsToken) {
  const auto left = line(600, 1), right = line(600, 600);
  const Limits limits{kInfinity, {kInfinity}, {kInfinity}, 0};
  CellMerger merger(false);
  merger.begin(limits);
  merger.add(0, left.view(), right.view());
  EXPECT_EQ(merger.finish(Token(kInfinity)).size(), 600u * 600u);
  merger.begin(limits);
  merger.add(0, left.view(), right.view());
  EXPECT_THROW(merger.finish(Token(0)), Stopped);
}

TEST(Partial, SumOfThreeLists) {
  std::mt19937 random(4);
  const Token token(kInfinity);
  for (int round = 0; round < 100; ++round) {
    const int levels = 1 + round % 3;
    const auto a = random_staircase(random, 5, levels), b = random_staircase(random, 5, levels),
               c = random_staircase(random, 5, levels);
    CellMerger merger(levels > 1);
    Partial sum(a.view());
    sum.join(b.view(), std::size_t(levels), merger, token);
    sum.join(c.view(), std::size_t(levels), merger, token);
    std::vector<Triple> sums, found;
    for (std::size_t i = 0; i < a.time.size(); ++i)
      for (std::size_t j = 0; j < b.time.size(); ++j)
        for (std::size_t k = 0; k < c.time.size(); ++k)
          sums.emplace_back(a.time[i] + b.time[j] + c.time[k], a.fixed[i] + b.fixed[j] + c.fixed[k],
                            std::max({a.level[i], b.level[j], c.level[k]}));
    const List view = sum.view();
    for (std::uint32_t p = 0; p < view.size; ++p) {
      found.emplace_back(view.time[p], view.fixed[p], view.level[p]);
      CountedVector<std::uint32_t> from;
      sum.trace(p, from);
      EXPECT_EQ(view.time[p], a.time[from[0]] + b.time[from[1]] + c.time[from[2]]);
    }
    EXPECT_EQ(found, best_of(sums));
  }
}

}  // namespace
}  // namespace tensoropt::search
