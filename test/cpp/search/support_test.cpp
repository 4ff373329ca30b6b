// Threads, deadlines, memory.
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "memory.hpp"
#include "model.hpp"
#include "parallel.hpp"
#include "points.hpp"
#include "token.hpp"

namespace tensoropt::search {
namespace {

TEST(Parallel, EveryPieceOnce) {
  for (const int threads : {1, 2, 5}) {
    std::vector<int> done(100, 0);
    parallel(done.size(), threads, [&](std::size_t i) { ++done[i]; });
    EXPECT_EQ(done, std::vector<int>(100, 1));
  }
  parallel(0, 3, [](std::size_t) { FAIL() << "there is no piece"; });
}

TEST(Parallel, AnExceptionComesBack) {
  std::atomic<int> done = 0;
  auto work = [&](std::size_t i) {
    if (i == 3) throw std::runtime_error("three");
    ++done;
  };
  EXPECT_THROW(parallel(50, 2, work), std::runtime_error);
  EXPECT_GE(done, 3);
}

TEST(Token, EndsAndIsNeverPutOff) {
  Token token(kInfinity);
  EXPECT_FALSE(token.limited());
  EXPECT_FALSE(token.expired());
  token.end_within(3600);
  EXPECT_TRUE(token.limited());
  EXPECT_NO_THROW(token.check());
  token.end_within(0);
  token.end_within(3600);
  EXPECT_TRUE(token.expired());
  EXPECT_THROW(token.check(), Stopped);
}

TEST(Token, CancelledByAnotherThread) {
  Token token(kInfinity);
  std::jthread([&] { token.cancel(); }).join();
  EXPECT_TRUE(token.cancelled());
  EXPECT_TRUE(token.expired());
}

TEST(Lookout, LooksAfterSomeWork) {
  const Token over(0);
  Lookout often(&over, 1e8), seldom(&over, 1), never(nullptr, 1e8);
  EXPECT_THROW(often.done(), Stopped);
  EXPECT_NO_THROW(seldom.done());
  EXPECT_THROW(seldom.look(), Stopped);
  EXPECT_NO_THROW(never.done());
  EXPECT_NO_THROW(never.look());
}

TEST(Budget, CountsVectorsUntilTheyGo) {
  const double before = Budget::used();
  const Budget::Share share(before + 10'000);
  {
    const Numbers one(1000);
    EXPECT_EQ(Budget::used(), before + 8000);
    EXPECT_THROW(Numbers(1000), OutOfMemory);
  }
  EXPECT_NO_THROW(Numbers(1000));
  EXPECT_EQ(Budget::used(), before);
}

TEST(Budget, IsTheSumOfAllSearchesThatRun) {
  const double before = Budget::used();
  const Budget::Share small(before + 10'000);
  {
    const Budget::Share large(1e6);
    const Numbers one(10'000);  // the large search does not end the small one, and keeps its share
    EXPECT_EQ(Budget::left(), 930'000);
  }
  EXPECT_THROW(Numbers(10'000), OutOfMemory);
}

TEST(Budget, CountsThePointsOfLists) {
  const double before = Budget::used();
  {
    Lists lists;
    for (int point = 0; point < 1000; ++point) {
      lists.time.push_back(point);
      lists.fixed.push_back(-point);
      lists.level.push_back(0);
      lists.v.push_back(0);
      lists.from.push_back(0);
      lists.begin.push_back(std::uint32_t(point + 1));
    }
    EXPECT_GE(Budget::used(), before + 1000 * (2 * 8 + 4 * 4));
    lists.forget_costs();
    EXPECT_LT(Budget::used(), before + 2048 * 3 * 4 + 100);
  }
  EXPECT_EQ(Budget::used(), before);
}

TEST(Budget, OfLargeVectorsAndManyThreads) {
  const double before = Budget::used();
  parallel(40, 4, [&](std::size_t i) {
    Numbers own(100'000 * (i % 4 + 1), double(i));
    own.push_back(1);
    EXPECT_EQ(own[99'999], double(i));
  });
  EXPECT_EQ(Budget::used(), before);
}

}  // namespace
}  // namespace tensoropt::search
