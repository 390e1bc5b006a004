#include <gtest/gtest.h>

#include <strata/graph/ops.h>
#include <strata/runtime/units.h>

#include "graph/program_maker.h"

namespace strata {
namespace {

using test::decoder_of;
using test::decoder_program;

// Runs the program over an arena that remembers, per 256 bytes, whose contents it holds.
class Replay {
 public:
  Replay(const Program& program, const MemoryPlan& plan)
      : program_(program), plan_(plan), holds_(plan.arena_bytes / MemoryPlan::kAlign, kNoValue) {}

  /// Empty, or what went wrong first.
  std::string run() {
    for (const ValueId id : program_.inputs) write(id);
    for (std::size_t i = 0; i < program_.code.size() && problem_.empty(); ++i) step(i);
    for (const auto* list : {&program_.inputs, &program_.outputs})
      for (const ValueId id : *list) need(id, "at the end");
    return problem_;
  }

 private:
  void step(std::size_t i) {
    const Instr& instr = program_.code[i];
    const std::string where = str("instruction ", i, " ", op_def(instr.op).name);
    for (const ValueId id : instr.in) need(id, where);
    for (std::size_t k = 0; k < instr.out.size(); ++k) {
      for (std::size_t other = 0; other < instr.in.size(); ++other)
        if (overlap(instr.out[k], instr.in[other]) && !may_share(instr, k, other))
          problem_ = str(where, " writes ", program_.value(instr.out[k]).name, " over its operand ", other);
      for (std::size_t other = 0; other < k; ++other)
        if (overlap(instr.out[k], instr.out[other])) problem_ = str(where, " has two outputs in one place");
    }
    for (const ValueId id : instr.out) write(id);
  }
  static bool may_share(const Instr& instr, std::size_t out, std::size_t in) {
    const OpDef::InPlace rule = op_def(instr.op).in_place;
    return rule.out == static_cast<int>(out) && rule.in == static_cast<int>(in) &&
           std::count(instr.in.begin(), instr.in.end(), instr.in[in]) == 1;
  }
  std::pair<std::size_t, std::size_t> range(ValueId id) const {
    if (id == kNoValue || plan_.offset[static_cast<std::size_t>(id)] == MemoryPlan::kNowhere) return {0, 0};
    const std::size_t begin = plan_.offset[static_cast<std::size_t>(id)];
    return {begin / MemoryPlan::kAlign,
            (begin + round_up(program_.value(id).bytes(), MemoryPlan::kAlign)) / MemoryPlan::kAlign};
  }
  bool overlap(ValueId a, ValueId b) const {
    const auto [a_begin, a_end] = range(a);
    const auto [b_begin, b_end] = range(b);
    return a_begin < b_end && b_begin < a_end;
  }
  void need(ValueId id, const std::string& where) {
    const auto [begin, end] = range(id);
    for (std::size_t at = begin; at < end && problem_.empty(); ++at)
      if (holds_.at(at) != id) problem_ = str(where, ": ", program_.value(id).name, " was overwritten");
  }
  void write(ValueId id) {
    const auto [begin, end] = range(id);
    for (std::size_t at = begin; at < end; ++at) holds_.at(at) = id;
  }

  const Program& program_;
  const MemoryPlan& plan_;
  std::vector<ValueId> holds_;
  std::string problem_;
};

std::string replay(const Program& program) {
  const MemoryPlan plan = plan_memory(program);
  for (const Instr& instr : program.code)
    for (const auto* list : {&instr.in, &instr.out})
      for (const ValueId id : *list) {
        const bool in_arena = id != kNoValue && program.value(id).kind != ValueKind::param &&
                              program.value(id).kind != ValueKind::grad &&
                              program.value(id).kind != ValueKind::state;
        if (in_arena && program.value(id).bytes() > 0 &&
            plan.offset[static_cast<std::size_t>(id)] == MemoryPlan::kNowhere)
          return str(program.value(id).name, " has no place");
      }
  return Replay(program, plan).run();
}

TEST(MemoryPlanTest, NoTwoLiveValuesShareAByteInDecodersOfManySizes) {
  for (const std::int64_t layers : {1, 2, 5})
    for (const std::int64_t hidden : {8, 34, 128})
      for (const Recompute recompute : kRecomputeModes) {
        EXPECT_EQ(replay(decoder_program(decoder_of(layers, hidden), 2, recompute)), "")
            << layers << " layers of " << hidden;
        EXPECT_EQ(replay(must(record_decoder(decoder_of(layers, hidden), 2, DecoderHead::logits))), "");
      }
}

TEST(MemoryPlanTest, StatesTakeNothingOfTheArena) {
  const auto arena = [](std::int64_t sequences) {
    const Program program =
        must(record_cached_decoder(decoder_of(2, 32), {.rows = 3, .sequences = sequences, .context = 9}));
    EXPECT_EQ(program.states.size(), 4u);
    EXPECT_EQ(replay(program), "");
    const MemoryPlan plan = plan_memory(program);
    for (const ValueId id : program.states)
      EXPECT_EQ(plan.offset[static_cast<std::size_t>(id)], MemoryPlan::kNowhere);
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
    for (const Recompute recompute : {Recompute::selective, Recompute::block})
      ASSERT_EQ(replay(recompute_regions(both, recompute)), "") << "seed " << seed << to_string(recompute);
  }
}

TEST(MemoryPlanTest, AnInputReadLateIsLeftAloneFromTheBeginning) {
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
  EXPECT_EQ(offset(reused), offset(x));      // now it dies
  EXPECT_NE(offset(twice), offset(reused));  // the same operand twice
}

TEST(MemoryPlanTest, RecomputationNeedsLessMemoryFromTwoLayersOnAndGrowsSlower) {
  const auto arena = [](std::int64_t layers, Recompute recompute) {
    return plan_memory(decoder_program(decoder_of(layers, 64), 4, recompute)).arena_bytes;
  };
  for (const std::int64_t layers : {2, 4, 8})
    EXPECT_LT(arena(layers, Recompute::block), arena(layers, Recompute::none)) << layers;
  const std::size_t border = 4 * 16 * 64 * 4;  // one [T, h] a layer stays
  EXPECT_LE(arena(8, Recompute::block) - arena(4, Recompute::block), 4 * border + 4096);
}

TEST(MemoryPlanTest, TheArenaIsCloseToTheMostThatIsAliveAtOnce) {
  for (const Recompute recompute : kRecomputeModes) {
    const Program program = decoder_program(decoder_of(4, 64), 4, recompute);
    const MemoryPlan plan = plan_memory(program);
    std::vector<std::pair<int, int>> lives(program.values.size(), {-1, -1});
    const auto touch = [&](ValueId id, int at) {
      if (id == kNoValue || plan.offset[static_cast<std::size_t>(id)] == MemoryPlan::kNowhere) return;
      auto& [first, last] = lives[static_cast<std::size_t>(id)];
      if (first < 0) first = at;
      last = at;
    };
    for (std::size_t i = 0; i < program.code.size(); ++i)
      for (const auto* list : {&program.code[i].in, &program.code[i].out})
        for (const ValueId id : *list) touch(id, static_cast<int>(i));
    std::size_t most = 0;
    for (std::size_t i = 0; i < program.code.size(); ++i) {
      std::size_t alive = 0;
      for (std::size_t v = 0; v < lives.size(); ++v)
        if (lives[v].first >= 0 && lives[v].first <= static_cast<int>(i) &&
            static_cast<int>(i) <= lives[v].second)
          alive += program.values[v].bytes();
      most = std::max(most, alive);
    }
    EXPECT_LE(static_cast<double>(plan.arena_bytes), 1.1 * static_cast<double>(most)) << to_string(recompute);
  }
}

}  // namespace
}  // namespace strata
