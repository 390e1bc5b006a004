#include <gtest/gtest.h>

#include <strata/graph/ops.h>
#include <strata/runtime/units.h>

#include "graph/arena_replay.h"
#include "graph/program_maker.h"

namespace strata {
namespace {

using test::decoder_program;
using test::make_decoder_config;
using test::replay;

TEST(MemoryPlanTest, NoTwoLiveValuesShareAByteInDecodersOfManySizes) {
  for (const std::int64_t layers : {1, 2, 5})
    for (const std::int64_t hidden : {8, 34, 128})
      for (const Recompute recompute : kRecomputeModes) {
        EXPECT_EQ(replay(decoder_program(make_decoder_config(layers, hidden), 2, recompute)), "")
            << layers << " layers of " << hidden;
        EXPECT_EQ(replay(must(record_decoder(make_decoder_config(layers, hidden), 2, DecoderHead::logits))),
                  "");
      }
}

// Values that are stored for backward are live over many spans of instructions, and most are in one or two.
TEST(MemoryPlanTest, NoTwoLiveValuesShareAByteInProgramsOfManyMicroBatches) {
  for (const Recompute recompute : {Recompute::none, Recompute::full}) {
    const Program program =
        interleave_micro_batches(decoder_program(make_decoder_config(5, 8), 2, recompute), 40);
    ASSERT_GT(program.code.size(), 10u * 256u);
    EXPECT_EQ(replay(program), "") << to_string(recompute);
  }
}

TEST(MemoryPlanTest, StatesTakeNoArenaMemory) {
  const auto arena = [](std::int64_t sequences) {
    const Program program = must(
        record_cached_decoder(make_decoder_config(2, 32), {.rows = 3, .sequences = sequences, .context = 9}));
    EXPECT_EQ(program.states.size(), 4u);
    EXPECT_EQ(replay(program), "");
    const MemoryPlan plan = plan_memory(program);
    for (const ValueId id : program.states)
      EXPECT_EQ(plan.offset[static_cast<std::size_t>(id)], MemoryPlan::kUnplaced);
    return plan.arena_bytes;
  };
  EXPECT_EQ(arena(1), arena(1000));
}

TEST(MemoryPlanTest, NoTwoLiveValuesShareAByteInRandomPrograms) {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    const Program forward = test::random_program(seed);
    ASSERT_EQ(replay(forward), "") << "seed " << seed;
    const Program both = must(derive_backward(forward, "loss"));
    ASSERT_EQ(replay(both), "") << "seed " << seed;
    for (const Recompute recompute : {Recompute::selective, Recompute::full})
      ASSERT_EQ(replay(recompute_regions(both, recompute)), "") << "seed " << seed << to_string(recompute);
  }
}

TEST(MemoryPlanTest, AnInputReadLateKeepsItsMemoryFromTheBeginning) {
  Builder b;
  const Value x = b.input("x", {64, 64}, DType::f32), late = b.input("late", {64, 64}, DType::f32);
  Value y = b.gelu(x);
  for (int i = 0; i < 3; ++i) y = b.gelu(y);
  EXPECT_EQ(replay(must(b.finish({{"out", b.add(y, late)}}))), "");
}

TEST(MemoryPlanTest, AnInPlaceOpRunsInPlaceExactlyWhereItsOperandDies) {
  Builder b;
  const Value x = b.gelu(b.input("x", {8, 8}, DType::f32)), y = b.gelu(x);
  const Value kept = b.add(x, y), reused = b.add(x, kept), twice = b.add(reused, reused);
  const Program program = must(b.finish({{"out", b.gelu(twice)}}));
  const MemoryPlan plan = plan_memory(program);
  const auto offset = [&](Value value) { return plan.offset[static_cast<std::size_t>(value.id)]; };
  EXPECT_NE(offset(kept), offset(x));        // x is read later
  EXPECT_EQ(offset(reused), offset(x));      // x dies here
  EXPECT_NE(offset(twice), offset(reused));  // the operand is given twice
}

TEST(MemoryPlanTest, RecomputationNeedsLessMemoryFromTwoLayersOnAndGrowsSlower) {
  const auto arena = [](std::int64_t layers, Recompute recompute) {
    return plan_memory(decoder_program(make_decoder_config(layers, 64), 4, recompute)).arena_bytes;
  };
  for (const std::int64_t layers : {2, 4, 8})
    EXPECT_LT(arena(layers, Recompute::full), arena(layers, Recompute::none)) << layers;
  const std::size_t border = 4 * 16 * 64 * 4;  // one [T, h] per layer is stored
  EXPECT_LE(arena(8, Recompute::full) - arena(4, Recompute::full), 4 * border + 4096);
}

TEST(MemoryPlanTest, TheArenaIsCloseToThePeakOfLiveBytes) {
  for (const Recompute recompute : kRecomputeModes) {
    const Program program = decoder_program(make_decoder_config(4, 64), 4, recompute);
    const MemoryPlan plan = plan_memory(program);
    std::vector<std::pair<int, int>> live_ranges(program.values.size(), {-1, -1});
    const auto touch = [&](ValueId id, int at) {
      if (id == kNoValue || plan.offset[static_cast<std::size_t>(id)] == MemoryPlan::kUnplaced) return;
      auto& [first, last] = live_ranges[static_cast<std::size_t>(id)];
      if (first < 0) first = at;
      last = at;
    };
    for (std::size_t i = 0; i < program.code.size(); ++i)
      for (const auto* list : {&program.code[i].in, &program.code[i].out})
        for (const ValueId id : *list) touch(id, static_cast<int>(i));
    std::size_t peak = 0;
    for (std::size_t i = 0; i < program.code.size(); ++i) {
      std::size_t alive = 0;
      for (std::size_t v = 0; v < live_ranges.size(); ++v)
        if (live_ranges[v].first >= 0 && live_ranges[v].first <= static_cast<int>(i) &&
            static_cast<int>(i) <= live_ranges[v].second)
          alive += program.values[v].bytes();
      peak = std::max(peak, alive);
    }
    EXPECT_LE(static_cast<double>(plan.arena_bytes), 1.1 * static_cast<double>(peak)) << to_string(recompute);
  }
}

}  // namespace
}  // namespace strata
