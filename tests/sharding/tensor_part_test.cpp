// The parts of tensors that ranks have: every element once, in any combination of cuts.
#include <strata/runtime/tensor_part.h>

#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace strata {
namespace {

using ::testing::ElementsAre;

TEST(Cut, DealsOutUnitsOfEachSegment) {
  const Cut heads{{CutSegment{4, 3}, CutSegment{2, 3}, CutSegment{2, 3}}, 3};
  EXPECT_EQ(heads.extent(), 24);
  EXPECT_EQ(heads.shard_extent(2), 12);
  EXPECT_THAT(runs_of(heads, 2, 1), ElementsAre(CutRun{6, 0, 6}, CutRun{15, 6, 3}, CutRun{21, 9, 3}));
  EXPECT_FALSE(heads.repeats(2));
  EXPECT_TRUE(heads.repeats(4));
  // Ranks 2 and 3 have the second unit of the last segments.
  EXPECT_THAT(runs_of(heads, 4, 3), ElementsAre(CutRun{9, 0, 3}, CutRun{15, 3, 3}, CutRun{21, 6, 3}));
  EXPECT_FALSE(heads.divides(3));
}

TEST(Cut, GivesTheFirstRanksOneUnitMoreIfItMayHaveARemainder) {
  const Cut vocab = Cut::nearly_even(11, 4);
  EXPECT_TRUE(vocab.divides(4));
  EXPECT_FALSE(vocab.repeats(4));
  std::int64_t next = 0;
  for (const int rank : {0, 1, 2, 3}) {
    const std::int64_t n = rank < 3 ? 3 : 2;
    EXPECT_EQ(vocab.shard_extent(4, rank), n);
    EXPECT_THAT(runs_of(vocab, 4, rank), ElementsAre(CutRun{next, 0, n}));
    next += n;
  }
  EXPECT_EQ(next, 11);
  EXPECT_EQ(Cut::nearly_even(12, 4), Cut::even(12));
  EXPECT_FALSE(Cut::even(11).divides(4));
}

TEST(Cut, GivesEachRankAnEarlyAndALatePartOfEverySequence) {
  const Cut zigzag = Cut::of_sequences(2, 8, 2, true);
  EXPECT_EQ(zigzag.extent(), 16);
  EXPECT_THAT(runs_of(zigzag, 2, 0),
              ElementsAre(CutRun{0, 0, 2}, CutRun{6, 2, 2}, CutRun{8, 4, 2}, CutRun{14, 6, 2}));
  EXPECT_THAT(runs_of(zigzag, 2, 1),
              ElementsAre(CutRun{2, 0, 2}, CutRun{4, 2, 2}, CutRun{10, 4, 2}, CutRun{12, 6, 2}));
  EXPECT_EQ(Cut::of_sequences(1, 8, 2, false), Cut::even(8));
}

/// How often the ranks of two axes have each element, and how often they count it.
std::pair<std::vector<int>, std::vector<int>> covered(const Shape& shape, const Cut& rows, int row_ranks,
                                                      const Cut& columns, int column_ranks) {
  const auto n = static_cast<std::size_t>(shape.n_elems());
  std::vector<int> had(n), counted(n);
  for (int r = 0; r < row_ranks; ++r)
    for (int c = 0; c < column_ranks; ++c) {
      TensorPart part = TensorPart::all_of(shape);
      if (rows.n > 0)
        part.cut(0, rows, row_ranks, r);
      else
        part.replicate(r);
      if (columns.n > 0)
        part.cut(1, columns, column_ranks, c);
      else
        part.replicate(c);
      std::int64_t next = 0;
      part.for_each_run(0, part.shape().n_elems(),
                        [&](std::int64_t whole, std::int64_t own, std::int64_t len) {
                          EXPECT_EQ(own, next);
                          next += len;
                          for (std::int64_t i = 0; i < len; ++i) ++had[static_cast<std::size_t>(whole + i)];
                        });
      EXPECT_EQ(next, part.shape().n_elems());
      part.for_each_counted_run(0, part.shape().n_elems(),
                                [&](std::int64_t whole, std::int64_t, std::int64_t len) {
                                  for (std::int64_t i = 0; i < len; ++i)
                                    ++counted[static_cast<std::size_t>(whole + i)];
                                });
    }
  return {had, counted};
}

TEST(TensorPart, RanksCountEveryElementOnce) {
  const Cut heads{{CutSegment{4, 2}, CutSegment{2, 2}, CutSegment{2, 2}}, 3};
  for (const auto& [shape, rows, row_ranks, columns, column_ranks] :
       std::vector<std::tuple<Shape, Cut, int, Cut, int>>{{{16, 6}, heads, 2, Cut::even(6), 3},
                                                          {{16, 6}, heads, 4, Cut{}, 2},
                                                          {{16, 6}, Cut{}, 3, Cut{}, 2},
                                                          {{16}, heads, 4, Cut{}, 3},
                                                          {{5, 6}, Cut{}, 2, Cut::even(6), 2}}) {
    const auto [had, counted] = covered(shape, rows, row_ranks, columns, column_ranks);
    EXPECT_THAT(counted, ::testing::Each(1));
    EXPECT_THAT(had, ::testing::Each(::testing::Ge(1)));
  }
}

TEST(TensorPart, RangesThatAreNotCountedAreThoseOfNeighboursBefore) {
  const Cut heads{{CutSegment{4, 2}, CutSegment{2, 2}, CutSegment{2, 2}}, 3};
  TensorPart part = TensorPart::all_of({16, 5});
  part.cut(0, heads, 4, 1);
  EXPECT_EQ(part.shape(), (Shape{6, 5}));
  EXPECT_THAT(part.uncounted(), ElementsAre(TensorPart::Range{10, 30}));
  TensorPart first = TensorPart::all_of({16, 5});
  first.cut(0, heads, 4, 2);
  EXPECT_THAT(first.uncounted(), ::testing::IsEmpty());
  first.replicate(1);
  EXPECT_THAT(first.uncounted(), ElementsAre(TensorPart::Range{0, 30}));
}

TEST(TensorPart, AStackOfMatricesIsCutBetweenThem) {
  TensorPart part = TensorPart::all_of({4, 3, 5});
  EXPECT_EQ(part.shape(), Shape({4, 3, 5}));
  EXPECT_EQ(part.n_left(), 60);
  part.cut(0, Cut::even(4), 2, 1);
  EXPECT_EQ(part.shape(), Shape({2, 3, 5}));
  EXPECT_EQ(part.n_left(), 30);
  std::vector<std::vector<std::int64_t>> runs;
  part.for_each_run(10, 15, [&](auto whole, auto own, auto n) { runs.push_back({whole, own, n}); });
  EXPECT_THAT(runs, ElementsAre(std::vector<std::int64_t>{30 + 10, 10, 15}));
  part.replicate(1);
  EXPECT_EQ(part.uncounted(), (std::vector<TensorPart::Range>{{0, 30}}));
  part.is_elsewhere = true;
  EXPECT_EQ(part.shape(), Shape({0, 3, 5}));
}

TEST(TensorPart, RunsOfAPieceBeginAndEndWithIt) {
  TensorPart part = TensorPart::all_of({4, 6});
  part.cut(1, Cut::even(6), 2, 1);
  std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>> runs;
  part.for_each_run(
      2, 5, [&](std::int64_t whole, std::int64_t own, std::int64_t n) { runs.emplace_back(whole, own, n); });
  EXPECT_THAT(runs, ElementsAre(std::tuple(5, 2, 1), std::tuple(9, 3, 3), std::tuple(15, 6, 1)));
}

}  // namespace
}  // namespace strata
