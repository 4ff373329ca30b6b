#include "strided.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

namespace tensoropt {
namespace {

TEST(TransposeChunks, OfEverySize) {
  for (std::size_t bytes = 1; bytes <= 33; ++bytes)
    for (const std::size_t rows : {1, 2, 5})
      for (const std::size_t columns : {1, 3, 4}) {
        std::vector<unsigned char> from(rows * columns * bytes), to(from.size()), back(from.size());
        for (std::size_t i = 0; i < from.size(); ++i) from[i] = (unsigned char)(i * 37 + i / 256);
        transpose_chunks(rows, columns, bytes, from.data(), to.data());
        for (std::size_t i = 0; i < rows; ++i)
          for (std::size_t j = 0; j < columns; ++j)
            for (std::size_t b = 0; b < bytes; ++b)
              EXPECT_EQ(to[(j * rows + i) * bytes + b], from[(i * columns + j) * bytes + b]);
        transpose_chunks(columns, rows, bytes, to.data(), back.data());
        EXPECT_EQ(back, from);
      }
}

TEST(CutOf, TellsWhatLiesOutsideAndInside) {
  const Cut middle = cut_of({2, 3, 5}, 1, 4, 8);
  EXPECT_EQ(middle.outer, 2u);
  EXPECT_EQ(middle.pieces, 4u);
  EXPECT_EQ(middle.chunk_bytes, 3u * 5 * 8);
  const Cut first = cut_of({2, 3, 5}, 0, 4, 2);
  EXPECT_EQ(first.outer, 1u);
  EXPECT_EQ(first.chunk_bytes, 2u * 3 * 5 * 2);
}

TEST(ThreadScratch, HasRoomAndIsOnesOwn) {
  void* mine = thread_scratch(0, 1000);
  std::memset(mine, 1, 1000);
  EXPECT_EQ(thread_scratch(0, 10), mine) << "used again";
  EXPECT_NE(thread_scratch(1, 10), mine);
  std::jthread([&] { EXPECT_NE(thread_scratch(0, 1000), mine); }).join();
  std::memset(thread_scratch(0, 5000), 2, 5000);
}

}  // namespace
}  // namespace tensoropt
