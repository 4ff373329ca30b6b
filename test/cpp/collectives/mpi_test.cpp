// Reductions and gathers over MPI, on every rank of a job of any size.
#include <gtest/gtest.h>
#include <mpi.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "half.hpp"
#include "mpi/group.hpp"
#include "mpi/mpi_reduction.hpp"
#include "mpi/mpi_transport.hpp"

namespace tensoropt {
namespace {

// A rank's value in tests, which every rank can compute.
std::int64_t value_of(int rank, std::size_t i) {
  return std::int64_t(i * 13 % 101) - 50 + 7 * rank;
}

std::int64_t combined(std::size_t i, Reduction reduction) {
  std::int64_t value = value_of(0, i);
  for (int rank = 1; rank < job_size(); ++rank) {
    const auto other = value_of(rank, i);
    if (reduction == Reduction::Sum) value += other;
    else value = reduction == Reduction::Max ? std::max(value, other) : std::min(value, other);
  }
  return value;
}

template <class T>
T made(std::int64_t value) {
  if constexpr (requires { T::round(1.0f); }) return T::round(float(value));
  else return T(value);
}

template <class T>
double read(T value) {
  if constexpr (requires { value.widen(); }) return value.widen();
  else return double(value);
}

// All values are small whole numbers: exact in every type.
template <class T>
void check_all_reduce(Element element, std::size_t count, Waiting waiting = Waiting::Awake) {
  MpiTransport transport(MPI_COMM_WORLD, element_info(int(element)), waiting);
  for (const auto reduction : {Reduction::Sum, Reduction::Max, Reduction::Min}) {
    std::vector<T> x(count), y(count);
    for (std::size_t i = 0; i < count; ++i) x[i] = made<T>(value_of(job_rank(), i));
    transport.all_reduce(x.data(), y.data(), count, reduction);
    transport.all_reduce(x.data(), x.data(), count, reduction);  // in place
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(read(y[i]), read(made<T>(combined(i, reduction))))
          << element_info(int(element)).name << " " << reduction_name(reduction) << " " << i;
      ASSERT_EQ(read(x[i]), read(y[i])) << "in place, " << i;
    }
  }
}

TEST(MpiTransport, AllReduceOfEveryType) {
  check_all_reduce<float>(Element::Float32, 1000);
  check_all_reduce<double>(Element::Float64, 1000);
  check_all_reduce<Float16>(Element::Float16, 1000);
  check_all_reduce<BFloat16>(Element::BFloat16, 1000);
  check_all_reduce<std::int64_t>(Element::Int64, 1000);
  check_all_reduce<std::int32_t>(Element::Int32, 1000);
  check_all_reduce<std::int8_t>(Element::Int8, 40);
}

// Large enough to be reduced in pieces, and in several calls.
TEST(MpiTransport, AllReduceOfMany) { check_all_reduce<float>(Element::Float32, 1'300'001); }

TEST(MpiTransport, AllReduceAsleep) {
  check_all_reduce<double>(Element::Float64, 1000, Waiting::Asleep);
  check_all_reduce<float>(Element::Float32, 600'001, Waiting::Asleep);
}

TEST(MpiTransport, IntegersWrap) {
  MpiTransport transport(MPI_COMM_WORLD, element_info(int(Element::UInt8)));
  const std::uint8_t x = 200;
  std::uint8_t y = 0;
  transport.all_reduce(&x, &y, 1, Reduction::Sum);
  EXPECT_EQ(y, std::uint8_t(200 * job_size()));
}

TEST(MpiTransport, BooleansAreOrAndAnd) {
  MpiTransport transport(MPI_COMM_WORLD, element_info(int(Element::Bool)));
  const std::uint8_t x[] = {0, std::uint8_t(job_rank() == 0), 1};
  std::uint8_t y[3];
  transport.all_reduce(x, y, 3, Reduction::Sum);
  EXPECT_EQ(y[0], 0);
  EXPECT_EQ(y[1], 1);
  EXPECT_EQ(y[2], 1);
  transport.all_reduce(x, y, 3, Reduction::Min);
  EXPECT_EQ(y[0], 0);
  EXPECT_EQ(y[1], job_size() == 1);
  EXPECT_EQ(y[2], 1);
}

TEST(MpiTransport, NotANumberPasses) {
  MpiTransport transport(MPI_COMM_WORLD, element_info(int(Element::Float32)));
  const float x = job_rank() == job_size() - 1 ? std::numeric_limits<float>::quiet_NaN() : 1;
  for (const auto reduction : {Reduction::Sum, Reduction::Max, Reduction::Min}) {
    float y = 0;
    transport.all_reduce(&x, &y, 1, reduction);
    EXPECT_TRUE(std::isnan(y)) << reduction_name(reduction);
  }
}

TEST(MpiTransport, ReduceScatterOfFewAndMany) {
  for (const std::size_t count : {7, 500'000}) {  // elements per rank
    MpiTransport transport(MPI_COMM_WORLD, element_info(int(Element::Int64)));
    std::vector<std::int64_t> x(count * std::size_t(job_size())), y(count);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = value_of(job_rank(), i);
    transport.reduce_scatter(x.data(), y.data(), count, 1, Reduction::Sum);
    for (std::size_t i = 0; i < count; ++i)
      ASSERT_EQ(y[i], combined(std::size_t(job_rank()) * count + i, Reduction::Sum));
  }
}

TEST(MpiTransport, PiecesGoToTheirPlaces) {
  MpiTransport transport(MPI_COMM_WORLD, element_info(int(Element::Int64)));
  const auto ranks = std::size_t(job_size());
  std::vector<std::int64_t> x(3), gathered(3 * ranks), sent(2 * ranks), received(2 * ranks);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = value_of(job_rank(), i);
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = value_of(job_rank(), i);
  transport.all_gather(x.data(), gathered.data(), 3, 1);
  transport.all_to_all(sent.data(), received.data(), 2);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(gathered[3 * rank + i], value_of(int(rank), i));
    for (std::size_t i = 0; i < 2; ++i)
      EXPECT_EQ(received[2 * rank + i], value_of(int(rank), 2 * std::size_t(job_rank()) + i));
  }
}

TEST(MpiTransport, PiecesMayBeUnequal) {
  MpiTransport transport(MPI_COMM_WORLD, element_info(int(Element::Int64)));
  const auto ranks = std::size_t(job_size()), own = std::size_t(job_rank());
  const auto count = [](std::size_t from, std::size_t to) { return (from + 2 * to) % 3; };
  std::vector<std::size_t> sent(ranks), received(ranks);
  std::vector<std::int64_t> x, expected;
  for (std::size_t place = 0; place < ranks; ++place) {
    sent[place] = count(own, place);
    received[place] = count(place, own);
    x.insert(x.end(), sent[place], std::int64_t(10 * own + place));
    expected.insert(expected.end(), received[place], std::int64_t(10 * place + own));
  }
  std::vector<std::int64_t> y(expected.size());
  transport.all_to_all_unequal(x.data(), sent.data(), y.data(), received.data());
  EXPECT_EQ(y, expected);
}

TEST(MpiTransport, EachGetsAnothersPart) {
  const int ranks = job_size(), before = (job_rank() + ranks - 1) % ranks;
  for (const auto waiting : {Waiting::Awake, Waiting::Asleep}) {
    MpiTransport transport(MPI_COMM_WORLD, element_info(int(Element::Int64)), waiting);
    std::vector<std::int64_t> x(3), y(3);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = value_of(job_rank(), i);
    transport.exchange(x.data(), y.data(), 3, (job_rank() + 1) % ranks, before);
    for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], value_of(before, i));
    transport.exchange(x.data(), y.data(), 3, job_rank(), job_rank());
    EXPECT_EQ(y, x);
  }
}

TEST(MpiTransport, BroadcastAndMessage) {
  MpiTransport transport(MPI_COMM_WORLD, element_info(int(Element::Int64)));
  const int last = job_size() - 1;
  std::int64_t x = 100 + job_rank(), y = 0;
  transport.broadcast(&x, &y, 1, last);
  EXPECT_EQ(y, 100 + last);
  if (last == 0) return;
  if (job_rank() == 0) transport.send(&x, 1, last);
  if (job_rank() != last) return;
  transport.recv(&y, 1, 0);
  EXPECT_EQ(y, 100);
}

TEST(Group, MembersAgreeOrAllThrow) {
  EXPECT_NO_THROW(check_agreement(MPI_COMM_WORLD, "the same"));
  const auto mine = "rank " + std::to_string(job_rank());
  if (job_size() == 1) return;
  EXPECT_THROW(check_agreement(MPI_COMM_WORLD, mine), Error);
}

TEST(Group, OrderOfRanksIsTheGroups) {
  Shape group;
  for (int rank = job_size(); rank-- > 0;) group.push_back(rank);
  const MPI_Comm comm = communicator(group);
  int place = -1;
  MPI_Comm_rank(comm, &place);
  EXPECT_EQ(group[std::size_t(place)], job_rank());
  EXPECT_EQ(communicator(group), comm) << "made once";
}

TEST(Group, ThatCannotBe) {
  EXPECT_THROW(check_group({}), Error);
  EXPECT_THROW(check_group({job_rank(), job_rank()}), Error);
  EXPECT_THROW(check_group({job_rank(), job_size()}), Error);
  EXPECT_THROW(check_group({-1, job_rank()}), Error);
  EXPECT_NO_THROW(check_group({job_rank()}));
}

class Mpi : public testing::Environment {
 public:
  void SetUp() override { require_mpi(); }
};

const auto* const kMpi = testing::AddGlobalTestEnvironment(new Mpi);

}  // namespace
}  // namespace tensoropt
