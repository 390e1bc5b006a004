// A sequence continued token by token has the same logits as when it is processed at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/kernels/bf16_gemm.h>
#include <strata/kernels/linear.h>
#include <strata/runtime/memory/alloc_counter.h>
#include <strata/runtime/str.h>

#include "engine/tiny_run.h"
#include "support/fault_io.h"
#include "support/numeric.h"

namespace strata {
namespace {

using test::TinyRun;
using ::testing::HasSubstr;

constexpr std::int64_t kContext = 16, kCachedSequences = 3;

ProgramSet cached_programs(const DecoderConfig& config, std::int64_t prefill_rows = 5,
                           DType compute = DType::f32) {
  const CacheShape decode = {kCachedSequences, kCachedSequences, kContext, kCachedSequences};
  CacheShape prefill = decode;
  prefill.rows = prefill_rows;
  ProgramSet set;
  set[ProgramRole::infer] = must(record_decoder(config, 1, DecoderHead::logits, DecoderRows::whole, compute));
  set[ProgramRole::prefill] = must(record_cached_decoder(config, prefill, compute));
  set[ProgramRole::decode] = must(record_cached_decoder(config, decode, compute));
  return set;
}

std::vector<std::int32_t> text(std::uint64_t seed, std::int64_t n) {
  return test::Values(seed * 1000003).below(n, 50);
}

/// Logits of every token, row by row, from the full-context program.
std::vector<std::vector<float>> whole_logits(Engine& engine, const std::vector<std::int32_t>& tokens) {
  std::vector<std::int32_t> window(kContext);
  std::copy(tokens.begin(), tokens.end(), window.begin());
  std::vector<std::vector<float>> rows;
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    const auto logits = must(engine.infer(window, static_cast<std::int64_t>(row)));
    rows.emplace_back(logits.begin(), logits.end());
  }
  return rows;
}

/// Adds `tokens` to the sequence in slot `slot` in runs of the given sizes and returns the logits of each
/// run's last token.
std::vector<std::vector<float>> cached_logits(Engine& engine, const std::vector<std::int32_t>& tokens,
                                              std::int32_t slot, const std::vector<std::size_t>& runs) {
  std::vector<std::vector<float>> rows;
  std::size_t at = 0;
  for (const std::size_t n : runs) {
    std::vector<SequenceToken> run;
    for (std::size_t i = 0; i < n; ++i, ++at)
      run.push_back({tokens[at], static_cast<std::int32_t>(at), slot});
    const auto logits = must(engine.extend(run, std::vector{static_cast<std::int32_t>(n) - 1}));
    rows.emplace_back(logits.begin(), logits.end());
  }
  return rows;
}

std::vector<std::string> family_names() { return {decoder_families().begin(), decoder_families().end()}; }

class CachedFamilyTest : public ::testing::TestWithParam<std::string> {
 protected:
  ~CachedFamilyTest() override { kernels::force_widened_bf16_gemm(false); }
  void expect_logits(std::span<const float> got, std::span<const float> want, const std::string& what,
                     DType compute = DType::f32) const {
    if (kernels::host_rows_are_exact()) {
      EXPECT_EQ(
          test::differing_bits(std::vector(got.begin(), got.end()), std::vector(want.begin(), want.end())),
          0u)
          << what;
    } else {
      EXPECT_LE(test::relative_error(got, want), compute == DType::f32 ? 1e-5 : 3e-2) << what;
    }
  }
  void expect_logits_in_any_pieces(DType compute) {
    TinyRun run(must(Engine::plan(cached_programs(config, 5, compute), {})));
    must(run.engine->initialize(1));
    const std::vector<std::int32_t> tokens = text(1, kContext);
    const auto want = whole_logits(*run.engine, tokens);
    const std::vector<std::vector<std::size_t>> cuts = {
        std::vector<std::size_t>(kContext, 1), {5, 5, 5, 1}, {4, 1, 1, 5, 2, 3}};
    for (std::size_t c = 0; c < cuts.size(); ++c) {
      const auto got = cached_logits(*run.engine, tokens, static_cast<std::int32_t>(c), cuts[c]);
      for (std::size_t i = 0, end = 0; i < got.size(); ++i) {
        end += cuts[c][i];
        expect_logits(got[i], want[end - 1], str(to_string(compute), ", cut ", c, ", token ", end - 1),
                      compute);
      }
    }
  }
  const DecoderConfig config = test::tiny_of_family(GetParam());
};

// What is trained is what is served: the program of whole sequences is the forward of training.
TEST_P(CachedFamilyTest, AnySplitOfAPromptHasTheLogitsOfTheWholeContext) {
  expect_logits_in_any_pieces(DType::f32);
  for (const bool widened : {false, true}) {
    kernels::force_widened_bf16_gemm(widened);
    expect_logits_in_any_pieces(DType::bf16);
  }
}

TEST_P(CachedFamilyTest, SequencesOfOneRunDoNotSeeEachOther) {
  TinyRun run(must(Engine::plan(cached_programs(config), {})));
  must(run.engine->initialize(1));
  const std::vector<std::vector<std::int32_t>> texts = {text(1, 3), text(2, 9), text(3, 6)};
  std::vector<SequenceToken> rows;
  for (std::size_t s = 0; s < texts.size(); ++s)
    for (std::size_t i = 0; i < texts[s].size(); ++i)
      rows.push_back({texts[s][i], static_cast<std::int32_t>(i), static_cast<std::int32_t>(2 - s)});
  std::size_t at = 0;
  for (const std::size_t n : {5u, 5u, 5u, 3u}) {  // runs begin and end within sequences
    std::vector<std::int32_t> wanted;
    std::vector<std::size_t> ends;
    for (std::size_t i = 0; i < n; ++i)
      if (at + i + 1 == 3 || at + i + 1 == 12 || at + i + 1 == 18) {
        wanted.push_back(static_cast<std::int32_t>(i));
        ends.push_back(at + i + 1 == 3 ? 0 : at + i + 1 == 12 ? 1 : 2);
      }
    const auto logits = must(run.engine->extend(std::span(rows).subspan(at, n), wanted));
    const std::vector<float> got(logits.begin(), logits.end());
    for (std::size_t k = 0; k < ends.size(); ++k)
      expect_logits(std::span(got).subspan(50 * k, 50), whole_logits(*run.engine, texts[ends[k]]).back(),
                    str("sequence ", ends[k]));
    at += n;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, CachedFamilyTest, ::testing::ValuesIn(family_names()),
                         [](const auto& param) { return param.param; });

// --- placements ---

/// The logits of a prompt and of four more tokens.
std::vector<float> bits_of(const SessionOptions& options) {
  const DecoderConfig config = test::tiny_of_family("qwen3");
  TinyRun run(must(Engine::plan(cached_programs(config), options)));
  must(run.engine->initialize(1));
  std::vector<float> all;
  for (const auto& row : cached_logits(*run.engine, text(4, 11), 1, {5, 2, 1, 1, 1, 1}))
    all.insert(all.end(), row.begin(), row.end());
  EXPECT_EQ(run.engine->peak_bytes(), run.plan->planned_peak);
  for (std::size_t t = 0; t < kTiers; ++t) EXPECT_LE(run.plan->planned_peak[t], options.budgets[t]);
  return all;
}

TEST(CachedPlacementTest, NoPlacementChangesABitAndPlannedPeakIsMeasuredPeak) {
  const test::TempDir dir;
  SessionOptions options;
  options.nvme.dirs = {dir.path()};
  const std::vector<float> all_on_device = bits_of(options);
  for (const PlacementPolicy policy : {PlacementPolicy::pinned, PlacementPolicy::nvme}) {
    SessionOptions other = options;
    other.policy = policy;
    other.chunk_elems = 4096;
    EXPECT_EQ(test::differing_bits(bits_of(other), all_on_device), 0u);
  }
  SessionOptions tight = options;
  tight.budgets = {160 * kKiB, 60 * kKiB, kMiB};
  tight.chunk_elems = 4096;
  EXPECT_EQ(test::differing_bits(bits_of(tight), all_on_device), 0u);
}

TEST(CachedPlacementTest, TheCacheIsInThePlanToTheByte) {
  const CacheShape one{.rows = 1, .sequences = 1, .context = kContext};
  // k and v, heads and head_dim of both layers, f32
  for (const auto& [family, of_layers] :
       {std::pair<const char*, unsigned>{"llama", 2 * 2 * 8}, {"gemma4_text", 2 * 8 + 2 * 16}}) {
    const DecoderConfig config = test::tiny_of_family(family);
    const auto planned = [&](std::int64_t sequences) {
      ProgramSet set;
      set[ProgramRole::prefill] = must(record_cached_decoder(config, {4, sequences, kContext, 1}));
      set[ProgramRole::decode] = must(record_cached_decoder(config, {1, sequences, kContext, 1}));
      return must(Engine::plan(set, {}))->planned_peak[0];
    };
    EXPECT_EQ(cache_bytes(config, one), 2u * of_layers * kContext * 4) << family;
    EXPECT_EQ(planned(9) - planned(1), 8 * cache_bytes(config, one)) << family;
  }
}

// A state has no positions that could be left out.
TEST(CachedPlacementTest, ASequenceOfLayersWithAStateIsNotCutBack) {
  for (const std::string_view family : {"llama", "gemma4_text", "lfm2", "qwen3_5_text"}) {
    TinyRun run(must(Engine::plan(cached_programs(test::tiny_of_family(family)), {})));
    must(run.engine->initialize(1));
    const bool has_states = family == "lfm2" || family == "qwen3_5_text";
    const std::array<SequenceToken, 3> first = {{{5, 0, 0}, {6, 1, 0}, {7, 2, 0}}};
    const std::array<SequenceToken, 1> back = {{{8, 1, 0}}}, again = {{{5, 0, 0}}}, next = {{{6, 1, 0}}};
    const std::array<std::int32_t, 1> wanted = {0};
    must(run.engine->extend(first, wanted));
    EXPECT_EQ(run.engine->continues_from(0, 1), has_states ? 0 : 1) << family;
    const Status status = run.engine->extend(back, wanted).status();
    EXPECT_EQ(status.is_ok(), !has_states) << family;
    if (has_states) {
      EXPECT_NE(status.message().find("position 1 of sequence 0 is before the end of its 3 tokens"),
                std::string_view::npos)
          << status.message();
    }
    must(run.engine->extend(again, wanted));
    must(run.engine->extend(next, wanted));
  }
}

TEST(CachedPlacementTest, ItsBytesAreThoseOfTheStatesOfAnyFamily) {
  const CacheShape three{.rows = 1, .sequences = 3, .context = kContext};
  for (const std::string& family : family_names())
    for (const DType compute : {DType::f32, DType::bf16}) {
      const DecoderConfig config = test::tiny_of_family(family);
      const Program program = must(record_cached_decoder(config, three, compute));
      std::uint64_t bytes = 0;
      for (const ValueInfo& value : program.values)
        if (value.kind == ValueKind::state)
          bytes += static_cast<std::uint64_t>(value.shape.n_elems()) * size_of(value.dtype);
      EXPECT_EQ(cache_bytes(config, three, compute), bytes) << family << " in " << to_string(compute);
    }
}

TEST(CachedPlacementTest, ACacheThatDoesNotFitIsRefusedWithWhatItNeeds) {
  const DecoderConfig config = test::tiny_of_family("llama");
  ProgramSet set;
  set[ProgramRole::prefill] = must(record_cached_decoder(config, {4, 4096, kContext, 1}));
  set[ProgramRole::decode] = must(record_cached_decoder(config, {1, 4096, kContext, 1}));
  SessionOptions options;
  options.budgets = {kMiB, kMiB, 0};
  const Status refused = Engine::plan(set, options).status();
  EXPECT_EQ(refused.code(), Code::does_not_fit);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("16.")) << "the cache alone takes 16 MiB";
}

TEST(CachedPlacementTest, ProgramsThatDoNotShareTheirStatesAreRefused) {
  const DecoderConfig config = test::tiny_of_family("llama");
  ProgramSet set;
  set[ProgramRole::prefill] = must(record_cached_decoder(config, {4, 2, kContext, 1}));
  set[ProgramRole::decode] = must(record_cached_decoder(config, {1, 3, kContext, 1}));
  EXPECT_THAT(std::string(Engine::plan(set, {}).status().message()), HasSubstr("layers.0.keys[2, 2, 16, 8]"));
}

// --- what extend() refuses ---

class ExtendTest : public ::testing::Test {
 protected:
  ExtendTest() : run(must(Engine::plan(cached_programs(test::tiny_config()), {}))) {
    must(run.engine->initialize(1));
  }
  std::string refusal(const std::vector<SequenceToken>& tokens,
                      const std::vector<std::int32_t>& wanted = {}) {
    const Status status = run.engine->extend(tokens, wanted).status();
    EXPECT_EQ(status.code(), Code::invalid);
    return std::string(status.message());
  }
  TinyRun run;
};

TEST_F(ExtendTest, WhatExceedsTheCacheIsRefusedWithBothNumbers) {
  EXPECT_THAT(refusal({{1, 0, 3}}), HasSubstr("slot 3 is out of range; slots of the cache: 3"));
  EXPECT_THAT(refusal({{50, 0, 0}}), HasSubstr("token 50 is out of range; size of the vocabulary: 50"));
  EXPECT_THAT(
      refusal({{1, 16, 0}}),
      HasSubstr("position 16 of sequence 0 is out of range; the cache has 16 positions per sequence"));
  EXPECT_THAT(refusal(std::vector<SequenceToken>(6)), HasSubstr("a run accepts 1 to 5 tokens"));
  EXPECT_THAT(refusal({{1, 0, 0}}, {1}), HasSubstr("no such row of logits: token 1 of 1"));
}

TEST_F(ExtendTest, ASequenceHasNoGapsAndMayRestartOrGoBack) {
  EXPECT_THAT(refusal({{1, 1, 0}}),
              HasSubstr("position 1 of sequence 0 does not continue its first 0 tokens"));
  must(run.engine->extend(std::vector<SequenceToken>{{1, 0, 0}, {2, 1, 0}, {3, 2, 0}}, {}));
  EXPECT_THAT(refusal({{4, 3, 0}, {4, 3, 0}}),
              HasSubstr("position 3 of sequence 0 does not continue its first 4"));
  const std::vector<std::int32_t> last = {0};
  const auto there = must(run.engine->extend(std::vector<SequenceToken>{{9, 2, 0}}, last));
  const std::vector<float> got(there.begin(), there.end());
  EXPECT_LE(test::relative_error(got, whole_logits(*run.engine, {1, 2, 9}).back()), 1e-5);
}

TEST_F(ExtendTest, ARunWithoutTheseProgramsIsRefused) {
  TinyRun other(must(Engine::plan(test::tiny_programs(), {})));
  EXPECT_EQ(other.engine->extend(std::vector<SequenceToken>{{1, 0, 0}}, {}).status().code(),
            Code::unsupported);
}

// Parameters are read from nvme. Wherever a read fails, the sequence stays as it was, and the same tokens can
// be added again.
TEST(ExtendFaultTest, AReadThatFailsAnywhereLeavesTheSequenceAsItWas) {
  const test::TempDir dir;
  const auto swapped = [&] {
    return must(Engine::plan_with(cached_programs(test::tiny_config()),
                                  test::swapping_options(dir.path(), StepMode::serial),
                                  [](const ChunkLayout&, Placement& placement) {
                                    for (auto& homes : placement.homes)
                                      homes[static_cast<std::size_t>(Payload::param)] = Tier::nvme;
                                  }));
  };
  test::FaultIo io(posix_io(), 5);
  TinyRun straight(swapped(), 1),
      faulty(swapped(), 1, {.schedule = StreamSchedule::latest_legal, .check = true}, io);
  const std::array<std::int32_t, 1> last = {0};
  std::uint64_t failures = 0;
  for (TinyRun* run : {&straight, &faulty}) must(run->engine->initialize(1));
  for (std::int32_t position = 0; position < 4; ++position) {
    const std::array<SequenceToken, 1> token = {{{position + 3, position, 0}}};
    const std::span<const float> logits = must(straight.engine->extend(token, last));
    const std::vector<float> want(logits.begin(), logits.end());
    for (std::uint64_t nth = 1;; ++nth, ++failures) {
      io.add({test::IoCall::read, test::FaultKind::fail, io.calls(test::IoCall::read) + nth, true});
      const auto got = faulty.engine->extend(token, last);
      io.clear();
      if (got.has_value()) {
        EXPECT_THAT(*got, ::testing::ElementsAreArray(want)) << "position " << position;
        break;
      }
      ASSERT_EQ(got.status().code(), Code::io_error) << got.status().to_string();
      EXPECT_THAT(std::string(got.status().message()), HasSubstr("param: reading id"));
    }
  }
  EXPECT_GT(failures, 10u);
}

TEST_F(ExtendTest, DecodingAllocatesAndCreatesNothing) {
  ASSERT_TRUE(AllocCounter::hooked());
  TinyRun quiet(must(Engine::plan(cached_programs(test::tiny_config()), {})), 2, HostBackendOptions{});
  must(quiet.engine->initialize(1));
  Status status;
  const auto step = [&](std::int32_t position) {
    const std::array<SequenceToken, 2> tokens = {{{1, position, 0}, {2, position, 1}}};
    const std::array<std::int32_t, 2> wanted = {0, 1};
    if (status.is_ok()) status = quiet.engine->extend(tokens, wanted).status();
  };
  for (int i = 0; i < 3; ++i) step(i);
  const std::uint64_t resources = quiet.engine->resources_created(), allocations = AllocCounter::count();
  AllocCounter::set_armed(true);
  for (int i = 3; i < 10; ++i) step(i);
  AllocCounter::set_armed(false);
  must(status);
  EXPECT_EQ(AllocCounter::count(), allocations);
  EXPECT_EQ(quiet.engine->resources_created(), resources);
}

}  // namespace
}  // namespace strata
