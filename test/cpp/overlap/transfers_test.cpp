// Transfers, the threads that start and wait for them, and the registry of transfers in flight.
#include "overlap/transfers.hpp"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "error.hpp"
#include "overlap/flights.hpp"

namespace tensoropt {
namespace {

using namespace std::chrono_literals;

void fail() { throw std::runtime_error("broken"); }

template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

TEST(Transfers, RunInTheirOrderBesideTheStarter) {
  Transfers transfers;
  std::atomic<bool> may_begin = false;
  std::vector<int> done;  // of the one thread that runs them
  transfers.start([&] {
    while (!may_begin) std::this_thread::sleep_for(1ms);
  });
  std::shared_ptr<Transfer> last;
  for (int i = 0; i < 100; ++i) last = transfers.start([&, i] { done.push_back(i); });
  may_begin = true;
  transfers.wait(*last);
  ASSERT_EQ(done.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(done[std::size_t(i)], i);
}

TEST(Transfers, SleepExactly) {
  Transfers transfers;
  int slack_ns = 0;
  transfers.wait(*transfers.start([&] { slack_ns = prctl(PR_GET_TIMERSLACK); }));
  EXPECT_EQ(slack_ns, 1000);
}

// Skipped before Linux 6.12, which does not report slices.
TEST(Transfers, HaveShortSlices) {
  const auto slice_ns = [] {
    std::uint64_t attributes[6] = {sizeof attributes};  // `struct sched_attr`; word 3 is runtime
    return syscall(SYS_sched_getattr, 0, attributes, sizeof attributes, 0) ? 0 : attributes[3];
  };
  if (slice_ns() == 0) GTEST_SKIP();
  Transfers transfers;
  std::uint64_t found_ns = 0;
  transfers.wait(*transfers.start([&] { found_ns = slice_ns(); }));
  EXPECT_EQ(found_ns, 100'000u);
}

TEST(Transfers, WaitForAllReturnsOnceAllIsDone) {
  Transfers transfers;
  transfers.wait_for_all();  // nothing was ever started
  int done = 0;
  for (int i = 0; i < 50; ++i) transfers.start([&] { ++done; });
  transfers.wait_for_all();
  EXPECT_EQ(done, 50);
}

TEST(Transfers, NothingRunsAfterAFailureUntilItIsSettled) {
  Transfers transfers;
  bool has_run = false;
  const auto bad = transfers.start(fail), behind = transfers.start([&] { has_run = true; });
  EXPECT_EQ(error_of([&] { transfers.wait(*behind); }), "broken");
  EXPECT_EQ(error_of([&] { transfers.wait(*bad); }), "broken");
  EXPECT_EQ(error_of([&] { transfers.wait_for_all(); }), "broken");
  transfers.wait_for_end(*behind);
  EXPECT_FALSE(has_run);
  transfers.settle();
  transfers.wait_for_all();
  transfers.wait(*transfers.start([&] { has_run = true; }));
  EXPECT_TRUE(has_run);
}

TEST(Transfers, SettlingWaitsForWhatIsUnderWay) {
  Transfers transfers;
  int written = 0;
  transfers.start([&] {
    std::this_thread::sleep_for(20ms);
    written = 1;
  });
  transfers.settle();
  EXPECT_EQ(written, 1);
}

TEST(Transfers, AreStartedFromSeveralThreads) {
  Transfers transfers;
  int sum = 0;  // of the one thread that runs them
  const auto add = [&] {
    for (int i = 0; i < 200; ++i) {
      const auto transfer = transfers.start([&] { ++sum; });
      if (i % 3 == 0) transfers.wait(*transfer);
      if (i % 7 == 0) transfers.wait_for_all();
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(add);
  for (auto& thread : threads) thread.join();
  transfers.wait_for_all();
  EXPECT_EQ(sum, 800);
}

TEST(Transfers, EndWithWhatTheyStillHaveToDo) {
  int done = 0;
  {
    Transfers transfers;
    for (int i = 0; i < 10; ++i) transfers.start([&] { ++done; });
  }
  EXPECT_EQ(done, 10);
}

class Counted final : public Flight {
 public:
  Counted(const void* owner, int& ended) : Flight(owner, "AllReduce", {}), ended_(ended) {}
  void join(void*) override {}
  void end() override { ++ended_; }

 private:
  int& ended_;
};

void any_flight(const Flight&) {}

TEST(Flights, AreTakenOnce) {
  Flights flights;
  int owner = 0, handle = 0, ended = 0;
  flights.check_none(&handle, &owner);
  flights.add(&handle, std::make_unique<Counted>(&owner, ended));
  EXPECT_TRUE(flights.any());
  EXPECT_EQ(flights.take(&handle, any_flight)->kind, "AllReduce");
  EXPECT_FALSE(flights.any());
  EXPECT_EQ(error_of([&] { flights.take(&handle, any_flight); }),
            "expected the handle of a transfer that is under way");
  EXPECT_EQ(ended, 0);
}

TEST(Flights, ThatAreRefusedStayUntilTheyEnd) {
  Flights flights;
  int owner = 0, handle = 0, ended = 0;
  flights.add(&handle, std::make_unique<Counted>(&owner, ended));
  const auto refuse = [](const Flight&) { throw Error("of another kind"); };
  EXPECT_EQ(error_of([&] { flights.take(&handle, refuse); }), "of another kind");
  EXPECT_TRUE(flights.any());
  flights.forget_all();
  EXPECT_EQ(ended, 1);
}

TEST(Flights, ThatARunHasLeftAreAnError) {
  Flights flights;
  int owner = 0, other = 0, handle = 0, ended = 0;
  flights.add(&handle, std::make_unique<Counted>(&owner, ended));
  const std::string text =
      "an earlier run ended before its transfer was waited for, expected tensoropt_settle() after "
      "a run that fails";
  EXPECT_EQ(error_of([&] { flights.check_none(&handle, &other); }), text);
  EXPECT_EQ(error_of([&] { flights.check_none(&other, &owner); }), text);
  flights.check_none(&other, &other);
}

TEST(Flights, EndWithTheirOwner) {
  Flights flights;
  int owner = 0, other = 0, ended = 0, handles[3] = {};
  for (int i = 0; i < 3; ++i)
    flights.add(&handles[i], std::make_unique<Counted>(i < 2 ? &owner : &other, ended));
  flights.forget(&owner);
  EXPECT_EQ(ended, 2);
  EXPECT_TRUE(flights.any());
  flights.forget_all();
  EXPECT_EQ(ended, 3);
  EXPECT_FALSE(flights.any());
}

}  // namespace
}  // namespace tensoropt
