#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>

#include "graph/arena_replay.h"
#include "graph/program_maker.h"

namespace strata {
namespace {

using test::decoder_program;
using test::make_decoder_config;
using test::make_realistic_config;
using testing::HasSubstr;

// Computation takes no time compared to the transfers, so each copy gets exactly one region.
constexpr OffloadOptions kOneRegion{.link_bytes_per_s = 1, .store_bytes_per_s = 1};

Program on_store(const Program& program, const OffloadOptions& options) {
  return store_activations(offload_activations(program, options), options);
}

struct Move {
  std::size_t offload_begin = 0, offload_end = 0, fetch_begin = 0, fetch_end = 0;  // instruction indices
  ValueId value = kNoValue, back = kNoValue;
};
std::vector<Move> moves_of(const Program& program) {
  std::vector<Move> moves;
  const auto move = [&](const Instr& instr) -> Move& {
    moves.resize(std::max(moves.size(), static_cast<std::size_t>(instr.attrs.as<MoveAttrs>().number) + 1));
    return moves[static_cast<std::size_t>(instr.attrs.as<MoveAttrs>().number)];
  };
  for (std::size_t i = 0; i < program.code.size(); ++i) {
    const Instr& instr = program.code[i];
    if (instr.op == Op::offload_begin) move(instr).offload_begin = i, move(instr).value = instr.in[0];
    if (instr.op == Op::offload_end) move(instr).offload_end = i;
    if (instr.op == Op::fetch_begin) move(instr).fetch_begin = i;
    if (instr.op == Op::fetch_end) move(instr).fetch_end = i, move(instr).back = instr.out[0];
  }
  return moves;
}

// Returns the original program: removes the moves and replaces each fetched value by the one that was
// offloaded.
std::string without_moves(Program program) {
  std::map<ValueId, ValueId> left;
  for (const Move& move : moves_of(program)) left[move.back] = move.value;
  std::erase_if(program.code, [](const Instr& instr) { return is_move(instr.op); });
  for (Instr& instr : program.code)
    for (ValueId& id : instr.in)
      if (left.count(id) != 0) id = left[id];
  return to_string(program);
}

// A chain of `n` activation functions, each in a region of its own, each of which stores its input for
// backward.
Program chain(int n) {
  Builder b;
  const Value tokens = b.input("tokens", {64}, DType::i32), targets = b.input("targets", {64}, DType::i32);
  b.region("embed", false);
  Value x = b.embedding(tokens, b.param("table", {16, 256}, {}));
  for (int i = 0; i < n; ++i) {
    b.region(str("r", i), false);
    x = b.gelu(x);
  }
  b.region("head", false);
  const Value loss = b.linear_cross_entropy(x, b.param("head", {16, 256}, {}), targets);
  return must(derive_backward(must(b.finish({{"loss", loss}})), "loss"));
}
constexpr std::size_t kChainValue = 64 * 256 * sizeof(float);

std::vector<Program> programs() {
  std::vector<Program> all;
  for (const std::string_view family : decoder_families())
    for (const Recompute mode : kRecomputeModes)
      all.push_back(decoder_program(make_realistic_config(family), 2, mode, DType::bf16));
  for (const std::int64_t layers : {1, 2, 5})
    for (const Recompute mode : kRecomputeModes)
      all.push_back(decoder_program(make_decoder_config(layers, 32), 2, mode));
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const Program both = must(derive_backward(test::random_program(seed), "loss"));
    all.push_back(recompute_regions(both, kRecomputeModes[seed % kRecomputeModes.size()]));
  }
  return all;
}

TEST(OffloadActivationsTest, RemovingItsMovesGivesTheInputProgram) {
  std::size_t moves = 0;
  for (const Program& program : programs())
    for (const OffloadOptions& options : {OffloadOptions{}, kOneRegion, OffloadOptions{.share = 0.5}}) {
      const Program offloaded = offload_activations(program, options);
      must(verify(offloaded));
      ASSERT_EQ(without_moves(offloaded), to_string(program));
      const Program farther = store_activations(offloaded, options);
      must(verify(farther));
      ASSERT_EQ(without_moves(farther), to_string(program));
      moves += moves_of(offloaded).size();
    }
  EXPECT_GT(moves, 1000u);
}

TEST(OffloadActivationsTest, NoTwoValuesShareAByteOnTheDeviceOrOnTheHostWhileTheyLiveOrMove) {
  for (const Program& program : programs())
    for (const OffloadOptions& options : {OffloadOptions{}, kOneRegion}) {
      ASSERT_EQ(test::replay(offload_activations(program, options)), "") << to_string(program);
      ASSERT_EQ(test::replay(on_store(program, options)), "") << to_string(program);
    }
}

TEST(OffloadActivationsTest, TheArenaShrinksByWhatIsOffloadedAtItsPeak) {
  const Program before = chain(10), after = offload_activations(before, kOneRegion);
  // Backward reads eleven values. The last two are needed again before their copies could be complete, as
  // each is copied during the region after its own and fetched during the region before its reader's.
  const std::size_t offloaded = moves_of(after).size();
  EXPECT_EQ(offloaded, 9u);
  const MemoryPlan kept = plan_memory(before), planned = plan_memory(after);
  EXPECT_EQ(planned.host_bytes, offloaded * kChainValue);
  EXPECT_EQ(kept.arena_bytes - planned.arena_bytes, offloaded * kChainValue);
}

// Counts region changes from the last computing instruction at or before `from` to the first at or after
// `to`.
std::size_t borders_within(const Program& program, std::size_t from, std::size_t to) {
  const auto computes = [&](std::size_t i) { return !is_move(program.code[i].op); };
  while (!computes(from)) --from;
  while (!computes(to)) ++to;
  std::size_t borders = 0;
  std::int32_t region = program.code[from].region;
  for (std::size_t i = from + 1; i <= to; ++i) {
    if (!computes(i)) continue;
    borders += program.code[i].region != region;
    region = program.code[i].region;
  }
  return borders;
}

TEST(OffloadActivationsTest, TheHostHoldsAFewRegionsOfADeepModelWhoseActivationsMoveOnToTheSlowTier) {
  const auto planned = [](int n) { return plan_memory(on_store(chain(n), kOneRegion)); };
  EXPECT_EQ(planned(40).arena_bytes, planned(20).arena_bytes);
  EXPECT_EQ(planned(40).host_bytes, planned(20).host_bytes);
  EXPECT_EQ(plan_memory(offload_activations(chain(40), kOneRegion)).arena_bytes, planned(40).arena_bytes);
  // A value is written to the slow tier during one region, after the one during which it is copied to the
  // host; reading and fetching it take one region each likewise.
  EXPECT_LE(planned(40).host_bytes, 6 * kChainValue);
}

TEST(OffloadActivationsTest, CopiesBeginAsSoonAsTheyCanAndLastThroughARegion) {
  for (const Recompute mode : kRecomputeModes) {
    const Program program =
        offload_activations(decoder_program(make_decoder_config(6, 32), 2, mode), kOneRegion);
    ASSERT_GT(moves_of(program).size(), 3u);
    for (const Move& move : moves_of(program)) {
      std::size_t maker = move.offload_begin;
      while (is_move(program.code[maker].op)) --maker;
      EXPECT_THAT(program.code[maker].out, testing::Contains(move.value));
      EXPECT_GE(borders_within(program, maker, move.offload_end), 2u);
      EXPECT_GE(borders_within(program, move.fetch_begin, move.fetch_end), 2u);
    }
  }
}

double seconds_between(const Program& program, std::size_t from, std::size_t to, double flops_per_s) {
  double work = 0;
  for (std::size_t i = from; i < to; ++i) work += flops(program, program.code[i]);
  return work / flops_per_s;
}

TEST(OffloadActivationsTest, EveryCopyIsHiddenWhereTheLinkKeepsPace) {
  const OffloadOptions options{
      .share = 0.3, .flops_per_s = 1e12, .memory_bytes_per_s = 1e18, .link_bytes_per_s = 1.2e9};
  const Program program =
      offload_activations(decoder_program(make_realistic_config("gpt2"), 2, Recompute::selective), options);
  std::vector<Move> moves = moves_of(program);
  ASSERT_GT(moves.size(), 8u);
  const auto seconds = [&](const Move& move) {
    return static_cast<double>(program.value(move.value).bytes()) / options.link_bytes_per_s;
  };
  std::sort(moves.begin(), moves.end(),
            [](const Move& a, const Move& b) { return a.offload_begin < b.offload_begin; });
  double link_free_s = 0;
  for (const Move& move : moves) {
    link_free_s =
        std::max(link_free_s, seconds_between(program, 0, move.offload_begin, 1e12)) + seconds(move);
    EXPECT_LE(link_free_s, seconds_between(program, 0, move.offload_end, 1e12) * (1 + 1e-9));
  }
  std::sort(moves.begin(), moves.end(),
            [](const Move& a, const Move& b) { return a.fetch_begin < b.fetch_begin; });
  link_free_s = 0;
  for (const Move& move : moves) {
    link_free_s = std::max(link_free_s, seconds_between(program, 0, move.fetch_begin, 1e12)) + seconds(move);
    EXPECT_LE(link_free_s, seconds_between(program, 0, move.fetch_end, 1e12) * (1 + 1e-9));
  }
}

TEST(OffloadActivationsTest, AShareOffloadsTheLongestUnusedFirstAndNoMoreThanItNeeds) {
  const Program program = decoder_program(make_realistic_config("llama"), 2, Recompute::full, DType::bf16);
  const auto bytes = [](const Program& of) {
    std::size_t sum = 0;
    for (const Move& move : moves_of(of)) sum += of.value(move.value).bytes();
    return sum;
  };
  const Program all = offload_activations(program, {}), half = offload_activations(program, {.share = 0.5}),
                none = offload_activations(program, {.share = 0});
  EXPECT_EQ(to_string(none), to_string(program));
  EXPECT_EQ(11 * bytes(half), 6 * bytes(all));  // eleven block inputs of twelve blocks, and half of them
  std::vector<ValueId> some, every;
  for (const Move& move : moves_of(all)) every.push_back(move.value);
  for (const Move& move : moves_of(half)) some.push_back(move.value);
  std::sort(every.begin(), every.end());
  std::sort(some.begin(), some.end());
  EXPECT_TRUE(std::equal(some.begin(), some.end(), every.begin()));  // forward produces these first
  EXPECT_LT(plan_memory(half).arena_bytes, plan_memory(program).arena_bytes);
  EXPECT_LT(plan_memory(all).arena_bytes, plan_memory(half).arena_bytes);
}

TEST(OffloadActivationsTest, IsIdempotentAndLeavesForwardProgramsAlone) {
  for (const Program& program : programs()) {
    const Program once = offload_activations(program, {});
    ASSERT_EQ(to_string(offload_activations(once, {})), to_string(once));
    const Program stored = store_activations(once, {});
    ASSERT_EQ(to_string(store_activations(stored, {})), to_string(stored));
  }
  const Program forward = must(record_decoder(make_decoder_config(4, 32), 2, DecoderHead::loss));
  EXPECT_EQ(to_string(offload_activations(forward, {})), to_string(forward));
  EXPECT_EQ(to_string(store_activations(chain(9), {})), to_string(chain(9)));
}

TEST(OffloadActivationsTest, VerifyRejectsMismatchedMoves) {
  const Program good = offload_activations(chain(8), kOneRegion);
  must(verify(good));
  const Move first = moves_of(good).front(), second = moves_of(good)[1];
  const auto broken = [&](const std::function<void(Program&)>& breaks) {
    Program program = good;
    breaks(program);
    return std::string(verify(program).message());
  };
  const auto erase = [](std::size_t at) {
    return [at](Program& p) { p.code.erase(p.code.begin() + static_cast<std::ptrdiff_t>(at)); };
  };
  // In chain(), the instruction right after a fetch reads the fetched value.
  const std::size_t reader = first.fetch_end + 1;
  EXPECT_THAT(broken(erase(first.offload_end)), HasSubstr("before it is written"));
  EXPECT_THAT(broken([&](Program& p) { p.code[reader].in[0] = first.value; }),
              HasSubstr("after it was moved"));
  EXPECT_THAT(broken([&](Program& p) { p.code[reader].in[0] = p.code[first.fetch_end].in[0]; }),
              HasSubstr("after it was moved"));
  EXPECT_THAT(broken([&](Program& p) { p.code[first.fetch_end].attrs = p.code[second.fetch_end].attrs; }),
              HasSubstr("does not continue move"));
  EXPECT_THAT(broken([&](Program& p) {
                for (Instr& instr : p.code)
                  for (ValueId& id : instr.in)
                    if (id == first.back) id = first.value;
                erase(first.fetch_end)(p);
              }),
              HasSubstr("after it was moved"));
  const Program stored = on_store(chain(20), kOneRegion);
  for (const Op op : {Op::store_end, Op::load_begin, Op::load_end, Op::fetch_begin}) {
    Program program = stored;
    program.code.erase(std::find_if(program.code.begin(), program.code.end(),
                                    [&](const Instr& instr) { return instr.op == op; }));
    EXPECT_THAT(std::string(verify(program).message()), HasSubstr("before it is written"));
  }
  EXPECT_THAT(broken([&](Program& p) { p.outputs.push_back(first.value); }),
              HasSubstr("is an output of the program"));
  EXPECT_THAT(broken([&](Program& p) {
                p.values[static_cast<std::size_t>(p.code[first.fetch_begin].out[0])].kind = ValueKind::host;
              }),
              HasSubstr("needs an activation on the device and the same on the host"));
}

}  // namespace
}  // namespace strata
