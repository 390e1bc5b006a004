// A sequence of a model whose layers have states goes on from a snapshot as if nothing had followed it.
#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/runtime/memory/alloc_counter.h>
#include <strata/runtime/units.h>

#include "engine/execute/row_adapters.h"
#include "engine/tiny_run.h"
#include "support/fault_io.h"
#include "support/numeric.h"

namespace strata {
namespace {

using test::TinyRun;
using ::testing::HasSubstr;

constexpr std::int64_t kSnapshotContext = 160, kSnapshotRows = 64;
constexpr std::int32_t kSnapshotSlots = 3;

DecoderConfig long_of_family(std::string_view family) {
  DecoderConfig config = test::tiny_of_family(family);
  config.seq = kSnapshotContext;
  return config;
}

ProgramSet snapshot_programs(const DecoderConfig& config, std::int32_t snapshots,
                             DType compute = DType::f32) {
  ProgramSet set;
  set[ProgramRole::prefill] = must(record_cached_decoder(
      config, {kSnapshotRows, kSnapshotSlots, kSnapshotContext, kSnapshotSlots}, compute));
  set[ProgramRole::decode] =
      must(record_cached_decoder(config, {kSnapshotSlots, kSnapshotSlots, kSnapshotContext, 1}, compute));
  set.set_snapshots(snapshots);
  return set;
}
struct SnapshotRun : TinyRun {
  explicit SnapshotRun(const DecoderConfig& config, std::int32_t snapshots, DType compute = DType::f32)
      : TinyRun(must(Engine::plan(snapshot_programs(config, snapshots, compute), {}))) {
    must(test::initialize_by_name(*engine));
  }
};

/// The bytes of what does not grow with a sequence.
std::uint64_t snapshot_state_bytes(const DecoderConfig& config, DType compute = DType::f32) {
  return 2 * cache_bytes(config, {1, 1, kSnapshotContext, 1}, compute) -
         cache_bytes(config, {1, 1, 2 * kSnapshotContext, 1}, compute);
}
std::vector<std::string> families_with_states() {
  std::vector<std::string> names;
  for (const auto family : decoder_families())
    if (snapshot_state_bytes(long_of_family(family)) > 0) names.emplace_back(family);
  return names;
}

/// Token `i` of text `seed`. The texts of all seeds begin with the same `common` tokens.
struct SnapshotText {
  std::uint64_t seed = 0;
  std::int32_t common = 0;
  std::int32_t operator[](std::int32_t i) const {
    return static_cast<std::int32_t>(
        test::Values(static_cast<std::uint64_t>(i) * 977 + (i < common ? 0 : seed)).next_bits() % 50);
  }
};

/// Adds tokens [from, to) of the text to a slot, and returns the logits of the last one. Two rows of logits
/// are more than decode has, so all tokens run through prefill, as GEMMs of few rows round otherwise.
std::vector<float> add_text(Engine& engine, std::int32_t slot, const SnapshotText& text, std::int32_t from,
                            std::int32_t to, std::int32_t adapter = -1) {
  std::vector<float> logits;
  for (std::int32_t at = from; at < to;) {
    std::vector<SequenceToken> tokens;
    for (; at < to && tokens.size() < kSnapshotRows; ++at) tokens.push_back({text[at], at, slot, adapter});
    const auto last = static_cast<std::int32_t>(tokens.size()) - 1;
    const auto rows = must(engine.extend(tokens, std::array<std::int32_t, 2>{last, last}));
    logits.assign(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(rows.size() / 2));
  }
  return logits;
}
Status try_at_position(Engine& engine, std::int32_t slot, std::int32_t position, std::int32_t adapter = -1) {
  return engine.extend(std::array<SequenceToken, 1>{{{7, position, slot, adapter}}}, {}).status();
}
std::string refusal_at_position(Engine& engine, std::int32_t slot, std::int32_t position) {
  const Status status = try_at_position(engine, slot, position);
  EXPECT_EQ(status.code(), Code::invalid);
  return std::string(status.message());
}

// --- bits ---

class SnapshotFamilyTest : public ::testing::TestWithParam<std::string> {
 protected:
  const DecoderConfig config = long_of_family(GetParam());
};

// Inside a chunk of 64 rows, at its border, and where a convolution still has taps before the sequence.
TEST_P(SnapshotFamilyTest, WhatFollowsASnapshotHasTheBitsOfAFreshRun) {
  for (const DType compute : {DType::f32, DType::bf16}) {
    SnapshotRun run(config, 1, compute), fresh(config, 0, compute);
    for (const std::int32_t at : {1, 60, 64, 70, 128}) {
      const SnapshotText first{1, at}, other{2, at};
      add_text(*run.engine, 1, first, 0, at);
      must(run.engine->keep_snapshot(1));
      add_text(*run.engine, 1, first, at, at + 20);
      ASSERT_EQ(run.engine->continues_from(1, at + 19), at);
      std::vector<float> got = add_text(*run.engine, 1, other, at, at + 7), want;
      for (std::int32_t i = 0; i < at + 7; i += 7)  // split otherwise
        want = add_text(*fresh.engine, 0, other, i, std::min(i + 7, at + 7));
      EXPECT_EQ(test::differing_bits(got, want), 0u) << to_string(compute) << " from " << at;
      got = add_text(*run.engine, 1, first, at, at + 20);  // the snapshot is still as it was
      want = add_text(*fresh.engine, 2, first, 0, at + 20);
      EXPECT_EQ(test::differing_bits(got, want), 0u) << to_string(compute) << " again from " << at;
    }
  }
}

TEST_P(SnapshotFamilyTest, SlotsOfOnePassGoOnFromTheirOwnSnapshots) {
  SnapshotRun run(config, 2), fresh(config, 0);
  const std::array<std::int32_t, kSnapshotSlots> at = {5, 66, 33}, end = {90, 80, 40};
  for (std::int32_t slot = 0; slot < kSnapshotSlots; ++slot) {
    const SnapshotText text{10 + static_cast<std::uint64_t>(slot)};
    add_text(*run.engine, slot, text, 0, at[slot]);
    must(run.engine->keep_snapshot(slot));
    add_text(*run.engine, slot, text, at[slot], end[slot]);
  }
  // Two slots go back, the third one goes on from its end.
  const std::array<std::int32_t, kSnapshotSlots> next = {at[0], at[1], end[2]};
  std::vector<SequenceToken> tokens;
  for (std::int32_t slot = 0; slot < kSnapshotSlots; ++slot) tokens.push_back({9, next[slot], slot});
  const auto rows = must(run.engine->extend(tokens, std::array<std::int32_t, 3>{0, 1, 2}));
  const std::vector<float> got(rows.begin(), rows.end());
  for (std::int32_t slot = 0; slot < kSnapshotSlots; ++slot) {
    add_text(*fresh.engine, 0, SnapshotText{10 + static_cast<std::uint64_t>(slot)}, 0, next[slot]);
    const auto want = must(fresh.engine->extend(std::array<SequenceToken, 1>{{{9, next[slot], 0}}},
                                                std::array<std::int32_t, 2>{0, 0}));
    EXPECT_EQ(
        test::differing_bits(std::span(got).subspan(50 * static_cast<std::size_t>(slot), 50), want.first(50)),
        0u)
        << slot;
  }
}

TEST_P(SnapshotFamilyTest, SnapshotsAreInThePlanToThePage) {
  for (const DType compute : {DType::f32, DType::bf16}) {
    const SnapshotRun none(config, 0, compute), five(config, 5, compute);
    EXPECT_EQ(five.plan->planned_peak[0] - none.plan->planned_peak[0],
              round_up(5 * kSnapshotSlots * snapshot_state_bytes(config, compute), kPageBytes));
    add_text(*five.engine, 0, {1}, 0, 70);
    must(five.engine->keep_snapshot(0));
    EXPECT_EQ(five.engine->peak_bytes(), five.plan->planned_peak);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, SnapshotFamilyTest, ::testing::ValuesIn(families_with_states()),
                         [](const auto& param) { return param.param; });

TEST(SnapshotTest, KeysAndValuesNeedNoneAndTakeNoMemoryForThem) {
  const DecoderConfig config = long_of_family("llama");
  SnapshotRun run(config, 4);
  EXPECT_EQ(run.plan->planned_peak, SnapshotRun(config, 0).plan->planned_peak);
  add_text(*run.engine, 0, {1}, 0, 9);
  must(run.engine->keep_snapshot(0));
  EXPECT_EQ(run.engine->continues_from(0, 4), 4);
  EXPECT_EQ(run.engine->continues_from(0, 20), 9);
  must(try_at_position(*run.engine, 0, 4));
  EXPECT_EQ(run.engine->continues_from(0, 20), 5);
}

// --- which positions there are ---

class SnapshotRingTest : public ::testing::Test {
 protected:
  /// Adds tokens to a slot up to `end`, and keeps its state there.
  void keep_at(std::int32_t end, std::int32_t slot = 0) {
    add_text(engine(), slot, {1}, engine().continues_from(slot, end), end);
    must(engine().keep_snapshot(slot));
  }
  Engine& engine() { return *run.engine; }
  SnapshotRun run{long_of_family("qwen3_5_text"), 2};
};

TEST_F(SnapshotRingTest, AFurtherOneReplacesTheOldestAndARefusalNamesThoseThatAreThere) {
  for (const std::int32_t end : {3, 5, 8}) keep_at(end);
  must(engine().keep_snapshot(0));  // there is one already
  keep_at(9, 1);                    // other slots have their own
  add_text(engine(), 0, {1}, 8, 11);
  for (const auto& [position, from] : {std::pair{4, 0}, {5, 5}, {7, 5}, {10, 8}, {11, 11}, {99, 11}})
    EXPECT_EQ(engine().continues_from(0, position), from) << position;
  EXPECT_THAT(
      refusal_at_position(engine(), 0, 3),
      HasSubstr("position 3 of sequence 0 is before the end of its 11 tokens, and layers of this model "
                "have a state of all of them; it goes on from its snapshots at 5 and 8, or starts "
                "again"));
  must(try_at_position(engine(), 0, 5));
}

TEST_F(SnapshotRingTest, GoingBackDropsThoseBehindAndARestartAll) {
  keep_at(3);
  keep_at(6);
  must(try_at_position(engine(), 0, 3));
  EXPECT_EQ(engine().continues_from(0, 3), 3);
  EXPECT_EQ(engine().continues_from(0, 6), 4) << "its end";
  must(try_at_position(engine(), 0, 0));
  EXPECT_EQ(engine().continues_from(0, 3), 1) << "its end";
  EXPECT_EQ(engine().continues_from(0, 0), 0);
  add_text(engine(), 0, {1}, 1, 6);
  EXPECT_THAT(refusal_at_position(engine(), 0, 3), HasSubstr("start it again"));
}

TEST_F(SnapshotRingTest, WhatCannotBeKeptIsRefused) {
  const auto refused = [](Engine& engine, std::int32_t slot) {
    const Status status = engine.keep_snapshot(slot);
    EXPECT_EQ(status.code(), Code::invalid);
    return std::string(status.message());
  };
  EXPECT_THAT(refused(engine(), 3), HasSubstr("slot 3 is out of range; slots of the cache: 3"));
  must(engine().keep_snapshot(0));  // no tokens yet
  EXPECT_EQ(engine().continues_from(0, 5), 0);
  EXPECT_EQ(engine().continues_from(-1, 5), 0);
  SnapshotRun none(long_of_family("lfm2"), 0);
  add_text(*none.engine, 0, {1}, 0, 4);
  EXPECT_THAT(refused(*none.engine, 0), HasSubstr("room for 0 of each sequence"));
  EXPECT_THAT(refusal_at_position(*none.engine, 0, 2), HasSubstr("start it again"));
  ProgramSet set = snapshot_programs(long_of_family("lfm2"), -1);
  EXPECT_THAT(std::string(Engine::plan(set, {}).status().message()), HasSubstr("room for -1 snapshots"));
  TinyRun trains(must(Engine::plan(test::tiny_programs(), {})));
  EXPECT_EQ(trains.engine->keep_snapshot(0).code(), Code::unsupported);
}

// --- with adapters, memory and faults ---

TEST(SnapshotTest, ASequenceOfAnAdapterGoesOnWithIt) {
  const DecoderConfig config = long_of_family("qwen3_5_text");
  std::vector<NamedLora> adapters;
  for (const float scale : {0.5f, 2.0f})
    adapters.push_back(
        {str("scale", scale), group_lora_modules(std::vector<LoraModule>{
                                  {"layers.0.delta_out.weight", {0, config.hidden, 2}, scale},
                                  {"layers.1.attn_out.weight", {0, config.hidden, 3}, scale}})});
  const test::RowAdapterPrograms programs{.config = config,
                                          .adapters = adapters,
                                          .prefill_rows = kSnapshotRows,
                                          .sequences = 2,
                                          .context = kSnapshotContext};
  ProgramSet set = programs.set();
  set.set_snapshots(1);
  TinyRun run(must(Engine::plan(set, {}))), fresh(must(Engine::plan(set, {})));
  for (TinyRun* each : {&run, &fresh}) must(test::initialize_by_name(*each->engine));
  add_text(*run.engine, 0, {1, 70}, 0, 70, 1);
  must(run.engine->keep_snapshot(0));
  add_text(*run.engine, 0, {1, 70}, 70, 75, 1);
  EXPECT_THAT(std::string(try_at_position(*run.engine, 0, 70, 0).message()),
              HasSubstr("has adapter 0, but the tokens before it have adapter 1"));
  EXPECT_EQ(test::differing_bits(add_text(*run.engine, 0, {2, 70}, 70, 74, 1),
                                 add_text(*fresh.engine, 0, {2, 70}, 0, 74, 1)),
            0u);
}

// Parameters are read from nvme, and a read fails in the middle of a pass.
TEST(SnapshotTest, AStateThatAnErrorLostIsRefusedAndItsSnapshotIsNot) {
  const test::TempDir dir;
  const DecoderConfig config = long_of_family("lfm2");
  test::FaultIo io(posix_io(), 5);
  TinyRun run(must(Engine::plan_with(snapshot_programs(config, 1),
                                     test::swapping_options(dir.path(), StepMode::serial),
                                     [](const ChunkLayout&, Placement& placement) {
                                       for (auto& homes : placement.homes)
                                         homes[static_cast<std::size_t>(Payload::param)] = Tier::nvme;
                                     })),
              1, {.schedule = StreamSchedule::latest_legal, .check = true}, io);
  SnapshotRun fresh(config, 0);
  must(test::initialize_by_name(*run.engine));
  add_text(*run.engine, 0, {1, 10}, 0, 10);
  must(run.engine->keep_snapshot(0));
  add_text(*run.engine, 0, {1, 10}, 10, 12);
  io.add({test::IoCall::read, test::FaultKind::fail, io.calls(test::IoCall::read) + 2, true});
  EXPECT_EQ(try_at_position(*run.engine, 0, 12).code(), Code::io_error);
  io.clear();
  EXPECT_THAT(
      refusal_at_position(*run.engine, 0, 12),
      HasSubstr("position 12 of sequence 0 is the end of its 12 tokens, whose state in layers of this "
                "model was lost in an error; it goes on from its snapshots at 10"));
  EXPECT_THAT(std::string(run.engine->keep_snapshot(0).message()), HasSubstr("were lost in an error"));
  EXPECT_EQ(run.engine->continues_from(0, 12), 10);
  EXPECT_EQ(test::differing_bits(add_text(*run.engine, 0, {2, 10}, 10, 15),
                                 add_text(*fresh.engine, 0, {2, 10}, 0, 15)),
            0u);
}

TEST(SnapshotTest, KeepingAndGoingBackAllocatesAndCreatesNothing) {
  ASSERT_TRUE(AllocCounter::hooked());
  TinyRun run(must(Engine::plan(snapshot_programs(long_of_family("lfm2"), 1), {})), 2, HostBackendOptions{});
  must(run.engine->initialize(1));
  Status status;
  const auto token = [&](std::int32_t position) {
    const std::array<SequenceToken, 1> tokens = {{{1, position, 0}}};
    if (status.is_ok()) status = run.engine->extend(tokens, std::array<std::int32_t, 1>{0}).status();
  };
  const auto turn = [&](std::int32_t position) {
    token(position);
    if (status.is_ok()) status = run.engine->keep_snapshot(0);
    token(position + 1);
    token(position + 1);
  };
  for (std::int32_t i = 0; i < 2; ++i) turn(2 * i);
  const std::uint64_t resources = run.engine->resources_created(), allocations = AllocCounter::count();
  AllocCounter::set_armed(true);
  for (std::int32_t i = 2; i < 8; ++i) turn(2 * i);
  AllocCounter::set_armed(false);
  must(status);
  EXPECT_EQ(AllocCounter::count(), allocations);
  EXPECT_EQ(run.engine->resources_created(), resources);
}

}  // namespace
}  // namespace strata
