// Results of collectives on whole tensors, element by element.
#include "collective.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "error.hpp"
#include "kinds.hpp"
#include "local_transport.hpp"
#include "run.hpp"

namespace tensoropt {
namespace {

constexpr const ElementInfo& kInt64 = kElements[4];

// A tensor of int64; `at` takes one index per dimension.
struct Tensor {
  Shape shape;
  std::vector<std::int64_t> data;

  explicit Tensor(Shape of) : shape(std::move(of)), data(count_of(shape)) {}
  std::int64_t& at(const Shape& index) {
    std::size_t offset = 0;
    for (std::size_t d = 0; d < shape.size(); ++d)
      offset = offset * std::size_t(shape[d]) + std::size_t(index[d]);
    return data[offset];
  }
};

// Every index of a shape, in order.
std::vector<Shape> indices(const Shape& shape) {
  std::vector<Shape> all{{}};
  for (const auto size : shape) {
    std::vector<Shape> longer;
    for (const auto& index : all)
      for (std::int64_t i = 0; i < size; ++i) {
        longer.push_back(index);
        longer.back().push_back(i);
      }
    all = std::move(longer);
  }
  return all;
}

// x of a rank: all elements of the job are distinct.
Tensor input_of(std::size_t rank, const Shape& shape) {
  Tensor x(shape);
  for (std::size_t i = 0; i < x.data.size(); ++i)
    x.data[i] = std::int64_t((i * 7 + 3) % 11 + 100 * i + 10'000 * rank);
  return x;
}

std::vector<Tensor> run_on_ranks(const Collective& node, const Shape& shape, std::size_t most_rows,
                                 std::size_t most_packed = std::size_t(-1)) {
  const std::size_t ranks = node.group.size();
  LocalGroup group(ranks);
  std::vector<Tensor> results(ranks, Tensor(node.output_shape(shape)));
  on_ranks(ranks, [&](std::size_t rank) {
    const Tensor x = input_of(rank, shape);
    LocalTransport transport(group, rank, most_rows, most_packed);
    run(node, kInt64, shape, x.data.data(), results[rank].data.data(), transport);
    EXPECT_LE(transport.most_scratch(), most_packed);
  });
  return results;
}

constexpr std::size_t kRanks = 3;
const Shape kGroup{4, 0, 2};  // places are not ranks
// Rows that a transport takes in place, and bytes that it packs at a time: one element of each
// piece, a few, all.
constexpr std::pair<std::size_t, std::size_t> kWays[] = {
    {1, 24}, {1, 50}, {1, 150}, {1, 300}, {1, 100'000}, {4, 24}, {4, 100'000}, {100, 24}};
constexpr std::size_t kPacked[] = {24, 50, 150, 300, 100'000};

TEST(Collective, AllReduce) {
  for (const auto reduction : {Reduction::Sum, Reduction::Max, Reduction::Min}) {
    const Collective node{.kind = &kinds::all_reduce(), .group = kGroup, .reduction = reduction};
    for (const auto& y : run_on_ranks(node, {2, 5}, 1))
      for (std::size_t i = 0; i < y.data.size(); ++i) {
        std::vector<std::int64_t> all;
        for (std::size_t rank = 0; rank < kRanks; ++rank)
          all.push_back(input_of(rank, {2, 5}).data[i]);
        const auto [low, high] = std::minmax_element(all.begin(), all.end());
        const std::int64_t sum = all[0] + all[1] + all[2];
        EXPECT_EQ(y.data[i], reduction == Reduction::Sum   ? sum
                             : reduction == Reduction::Max ? *high
                                                           : *low);
      }
  }
}

TEST(Collective, AllGather) {
  const Shape shape{2, 3, 4};
  for (const auto& [rows, packed] : kWays)
    for (std::int64_t dim = 0; dim < 3; ++dim) {
      const Collective node{.kind = &kinds::all_gather(), .group = kGroup, .join_dim = dim};
      for (auto& y : run_on_ranks(node, shape, rows, packed))
        for (auto index : indices(y.shape)) {
          const auto found = y.at(index);
          auto& along = index[std::size_t(dim)];
          const auto rank = along / shape[std::size_t(dim)];
          along %= shape[std::size_t(dim)];
          EXPECT_EQ(found, input_of(std::size_t(rank), shape).at(index));
        }
    }
}

TEST(Collective, ReduceScatter) {
  const Shape shape{3, 6, 9};
  for (const auto& [rows, packed] : kWays)
    for (std::int64_t dim = 0; dim < 3; ++dim) {
      const Collective node{.kind = &kinds::reduce_scatter(), .group = kGroup, .cut_dim = dim};
      auto results = run_on_ranks(node, shape, rows, packed);
      for (std::size_t place = 0; place < kRanks; ++place)
        for (auto index : indices(results[place].shape)) {
          const auto found = results[place].at(index);
          index[std::size_t(dim)] += std::int64_t(place) * results[place].shape[std::size_t(dim)];
          std::int64_t sum = 0;
          for (std::size_t rank = 0; rank < kRanks; ++rank) sum += input_of(rank, shape).at(index);
          EXPECT_EQ(found, sum);
        }
    }
}

TEST(Collective, AllToAll) {
  const Shape shape{3, 6, 3};
  for (int way = 0; way < 9 * int(std::size(kPacked)); ++way) {
    const std::int64_t split = way % 3, concat = way / 3 % 3;
    const Collective node{
        .kind = &kinds::all_to_all(), .group = kGroup, .cut_dim = split, .join_dim = concat};
    auto results = run_on_ranks(node, shape, 1, kPacked[way / 9]);
    Shape piece = shape;
    piece[std::size_t(split)] /= std::int64_t(kRanks);
    for (std::size_t place = 0; place < kRanks; ++place)
      for (auto index : indices(results[place].shape)) {
        const auto found = results[place].at(index);
        const auto sender = index[std::size_t(concat)] / piece[std::size_t(concat)];
        index[std::size_t(concat)] %= piece[std::size_t(concat)];
        index[std::size_t(split)] += std::int64_t(place) * piece[std::size_t(split)];
        EXPECT_EQ(found, input_of(std::size_t(sender), shape).at(index));
      }
  }
}

TEST(Collective, AllToAllRowsSendsAnyNumberOfRows) {
  // Rows that each rank sends to each place; nobody sends to place 1, rank 2 sends nothing.
  const std::int64_t sent[kRanks][kRanks] = {{2, 0, 3}, {4, 0, 0}, {0, 0, 0}};
  const Collective node{.kind = &kinds::all_to_all_rows(), .group = kGroup};
  LocalGroup group(kRanks);
  on_ranks(kRanks, [&](std::size_t rank) {
    Shape rows(2 * kRanks), expected;
    for (std::size_t place = 0; place < kRanks; ++place) {
      rows[2 * place] = sent[rank][place];
      rows[2 * place + 1] = sent[place][rank];
    }
    const Shape shape{rows[0] + rows[2] + rows[4], 2};
    const Tensor x = input_of(rank, shape);
    Tensor y(node.output_shape(shape, rows.data(), rows.size()));
    for (std::size_t from = 0; from < kRanks; ++from) {
      const auto all = input_of(from, {sent[from][0] + sent[from][1] + sent[from][2], 2}).data;
      const auto first = std::accumulate(sent[from], sent[from] + rank, std::int64_t{0});
      expected.insert(expected.end(), all.begin() + 2 * first,
                      all.begin() + 2 * (first + sent[from][rank]));
    }
    LocalTransport transport(group, rank, 1);
    run(node, kInt64, shape, x.data.data(), y.data.data(), transport, rows.data());
    EXPECT_EQ(y.data, expected);
  });
  EXPECT_EQ(node.describe(kInt64, {5, 2}), "AllToAllRows of int64[2] rows");
}

TEST(Collective, CollectivePermuteChangesPlaces) {
  const Shape shape{2, 3};
  const Shape sources{1, 2, 0};
  const Collective node{.kind = &kinds::collective_permute(), .group = kGroup, .further = sources};
  EXPECT_EQ(node.output_shape(shape), shape);
  EXPECT_EQ(node.describe(element_info(int(Element::Int64)), shape),
            "CollectivePermute of int64[2, 3] sources [1, 2, 0]");
}

TEST(Collective, BroadcastTakesTheRootsPlace) {
  const Collective node{.kind = &kinds::broadcast(), .group = kGroup, .source = 0};
  for (const auto& y : run_on_ranks(node, {4}, 1)) EXPECT_EQ(y.data, input_of(1, {4}).data);
}

TEST(Collective, MessageFromOneToTheOther) {
  LocalGroup group(2);
  const Tensor x = input_of(0, {5});
  Tensor y({5});
  on_ranks(2, [&](std::size_t rank) {
    LocalTransport transport(group, rank, 1);
    const Collective node{.kind = rank == 0 ? &kinds::send() : &kinds::recv(),
                          .group = {3, 8},
                          .source = 3,
                          .target = 8};
    run(node, kInt64, {5}, x.data.data(), y.data.data(), transport);
  });
  EXPECT_EQ(y.data, x.data);
}

TEST(Collective, NothingIsSentOfNothingNorToOneself) {
  LocalGroup nobody(2);  // a call would wait for the other rank forever
  LocalTransport transport(nobody, 0, 1);
  run({.kind = &kinds::all_reduce(), .group = {0, 1}}, kInt64, {0, 3}, nullptr, nullptr, transport);
  const Tensor x = input_of(0, {3});
  Tensor y({3});
  run({.kind = &kinds::all_reduce(), .group = {5}}, kInt64, {3}, x.data.data(), y.data.data(),
      transport);
  EXPECT_EQ(y.data, x.data);
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Collective, ShapesThatCannotBe) {
  const Collective scatter{.kind = &kinds::reduce_scatter(), .group = kGroup, .cut_dim = 1};
  EXPECT_EQ(error_of([&] { scatter.output_shape({3, 4}); }),
            "dimension 1 of the input of shape [3, 4] does not divide by the group's 3 ranks");
  EXPECT_EQ(error_of([&] { scatter.output_shape({3}); }),
            "dim must be a dimension of the input of shape [3], got: 1");
  EXPECT_EQ(error_of([&] { scatter.place_of(1); }),
            "root must be a rank of the group [4, 0, 2], got: 1");
  EXPECT_EQ(error_of([] { parse_reduction("mean"); }),
            "unknown reduction, expected sum, max or min, got: mean");
  EXPECT_NE(error_of([] { element_info(8); }).find("got: ONNX element type 8"), std::string::npos);
}

TEST(Collective, WhatRanksMustAgreeOn) {
  const Collective gather{.kind = &kinds::all_gather(), .group = kGroup, .join_dim = 1};
  EXPECT_EQ(gather.describe(kInt64, {2, 3}), "AllGather of int64[2, 3] dim 1");
  const Collective send{.kind = &kinds::send(), .group = {0, 2}, .source = 2, .target = 0};
  const Collective receive{.kind = &kinds::recv(), .group = {0, 2}, .source = 2, .target = 0};
  EXPECT_EQ(send.describe(kInt64, {3}), receive.describe(kInt64, {3}));
}

}  // namespace
}  // namespace tensoropt
