// Times on a link that is slower than this machine's.
#include "link.hpp"

#include <gtest/gtest.h>

#include "kinds.hpp"

namespace tensoropt {
namespace {

constexpr Link kLink{.latency_s = 1, .s_per_byte = 0.5};

TEST(Link, TakesTheLeastOfTheKnownAlgorithms) {
  EXPECT_DOUBLE_EQ(link_time_s(kLink, kinds::all_reduce(), 4, 1), 2 + 2 * 0.5);  // two rounds
  EXPECT_DOUBLE_EQ(link_time_s(kLink, kinds::all_reduce(), 4, 1000), 4 + 2 * 0.75 * 500);
  EXPECT_DOUBLE_EQ(link_time_s(kLink, kinds::all_gather(), 4, 1000), 2 + 3 * 500);
  EXPECT_DOUBLE_EQ(link_time_s(kLink, kinds::reduce_scatter(), 4, 1000), 2 + 0.75 * 500);
  EXPECT_DOUBLE_EQ(link_time_s(kLink, kinds::all_to_all(), 8, 1), 3 + 1.5 * 0.5);
  EXPECT_DOUBLE_EQ(link_time_s(kLink, kinds::all_to_all(), 8, 1000), 7 + 0.875 * 500);
  EXPECT_DOUBLE_EQ(link_time_s(kLink, kinds::send(), 2, 10), 1 + 5);
}

TEST(Link, IsNoneToARankAlone) { EXPECT_EQ(link_time_s(kLink, kinds::all_reduce(), 1, 1000), 0); }

}  // namespace
}  // namespace tensoropt
