// Threads, deadlines, memory.
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "memory.hpp"
#include "model.hpp"
#include "parallel.hpp"
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
  EXPECT_NO_THROW(never.done());
}

TEST(Meter, CountsAllOwnersUntilTheyGo) {
  Meter meter(100);
  Metered one(&meter);
  one.set(60);
  EXPECT_NO_THROW(one.check());
  {
    Metered other(&meter);
    other.set(50);
    EXPECT_THROW(one.check(), OutOfMemory);
  }
  EXPECT_NO_THROW(one.check());
  one.set(101);
  EXPECT_THROW(one.check(), OutOfMemory);
}

TEST(Meter, OfManyThreads) {
  Meter meter(1e9);
  parallel(200, 4, [&](std::size_t i) {
    Metered own(&meter);
    own.set(i);
    own.check();
  });
  Metered last(&meter);
  last.set(1'000'000'001);
  EXPECT_THROW(last.check(), OutOfMemory);
  last.set(999'999'999);
  EXPECT_NO_THROW(last.check()) << "everything else was given back";
}

}  // namespace
}  // namespace tensoropt::search
