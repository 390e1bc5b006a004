// The arithmetic of the kernel, which the host can run, too, against the reduction of the other transports.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include <strata/runtime/threads/thread_pool.h>

#include "nccl/reduce_piece.h"
#include "reduce.h"

namespace strata {
namespace {

using detail::PieceArgs;
using Bytes = std::vector<std::byte>;

/// Random bits: every class of number but NaN, whose bits are the processor's.
template <class T>
std::vector<T> numbers(std::mt19937& random, std::size_t n) {
  std::vector<T> values(n);
  for (T& value : values) do {
      std::uint64_t bits = (std::uint64_t{random()} << 32) | random();
      std::memcpy(&value, &bits, sizeof value);
    } while (std::isnan(static_cast<double>(detail::widen(value))));
  return values;
}

struct Case {
  int size, rank;
  std::size_t n, misaligned;  // elements by which this rank's piece is not aligned
};

/// The piece of `rank` in place, those of the others in an inbox.
template <class T, class Op, bool kAligned>
std::vector<T> reduced_in_place(const std::vector<std::vector<T>>& parts, const Case& c) {
  constexpr std::size_t kSlot = 512;  // bytes, as many as the longest case
  alignas(16) std::byte inbox[8 * kSlot] = {};
  alignas(16) std::byte own[2 * kSlot];
  std::memset(own, 0xAB, sizeof own);
  std::byte* const mine = own + c.misaligned * sizeof(T);
  int slot = 0;
  for (int q = 0; q < c.size; ++q)
    std::memcpy(q == c.rank ? mine : inbox + static_cast<std::size_t>(slot++) * kSlot,
                parts[static_cast<std::size_t>(q)].data(), c.n * sizeof(T));
  const PieceArgs args{mine, inbox, kSlot, c.rank, c.size, mine, c.n * sizeof(T), DType::f32, Reduction::sum};
  EXPECT_EQ(detail::is_aligned(args), kAligned);
  const auto piece = detail::piece_of<T>(args);
  for (std::int64_t i = 0; i < detail::n_vectors(piece); ++i)
    detail::reduce_vector<kAligned, T, Op>(piece, i);
  for (const std::byte* after = mine + c.n * sizeof(T); after != own + sizeof own; ++after)
    EXPECT_EQ(*after, std::byte{0xAB}) << "past the end";
  std::vector<T> out(c.n);
  std::memcpy(out.data(), mine, c.n * sizeof(T));
  return out;
}

template <class T>
class ReducePieceTest : public ::testing::Test {};
template <class T, DType kDType>
struct Typed {
  using Type = T;
  static constexpr DType kType = kDType;
};
using Types = ::testing::Types<Typed<double, DType::f64>, Typed<float, DType::f32>, Typed<bf16, DType::bf16>,
                               Typed<f16, DType::f16>>;
TYPED_TEST_SUITE(ReducePieceTest, Types);

TYPED_TEST(ReducePieceTest, HasTheBitsOfTheReductionInRankOrder) {
  using T = typename TypeParam::Type;
  std::mt19937 random(7);
  const auto pool = must(ThreadPool::create(1));
  for (const int size : {1, 2, 3, 8})
    for (const std::size_t n : {std::size_t{1}, std::size_t{7}, std::size_t{8}, std::size_t{51}})
      for (int rank = 0; rank < size; ++rank) {
        std::vector<std::vector<T>> parts;
        std::vector<const std::byte*> sources;
        for (int q = 0; q < size; ++q) parts.push_back(numbers<T>(random, n));
        for (const auto& part : parts) sources.push_back(reinterpret_cast<const std::byte*>(part.data()));
        const auto same = [&](const std::vector<T>& a, const std::vector<T>& b) {
          for (std::size_t i = 0; i < n; ++i)
            if (std::memcmp(&a[i], &b[i], sizeof(T)) != 0 &&
                !std::isnan(static_cast<double>(detail::widen(b[i]))))
              return false;
          return true;
        };
        for (const Reduction reduction : {Reduction::sum, Reduction::max}) {
          std::vector<T> want(n);
          detail::reduce({sources, reinterpret_cast<std::byte*>(want.data()), n * sizeof(T), TypeParam::kType,
                          reduction},
                         *pool);
          if (reduction == Reduction::sum) {
            EXPECT_TRUE(same((reduced_in_place<T, detail::Sum, true>(parts, {size, rank, n, 0})), want));
            EXPECT_TRUE(same((reduced_in_place<T, detail::Sum, false>(parts, {size, rank, n, 1})), want));
          } else {
            EXPECT_TRUE(same((reduced_in_place<T, detail::Max, true>(parts, {size, rank, n, 0})), want));
            EXPECT_TRUE(same((reduced_in_place<T, detail::Max, false>(parts, {size, rank, n, 1})), want));
          }
        }
      }
}

TEST(ReducePieceTypesTest, EveryDtypeThatCanBeReducedHasItsType) {
  const auto width = [](DType dtype) {
    return detail::with_types(dtype, Reduction::max, [](auto type, auto op) {
      EXPECT_TRUE((std::is_same_v<decltype(op), detail::Max>));
      return sizeof type;
    });
  };
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i32})
    EXPECT_EQ(width(dtype), size_of(dtype)) << to_string(dtype);
}

}  // namespace
}  // namespace strata
