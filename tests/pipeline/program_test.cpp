// The programs of a pipeline's ranks against that of one rank.
#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include <gmock/gmock.h>

#include <strata/graph/ops.h>
#include <strata/graph/passes.h>
#include <strata/graph/pipeline.h>
#include <strata/model/decoder.h>
#include <strata/runtime/str.h>

#include "sharding/gradient_run.h"

namespace strata {
namespace {

using test::Gradients;
using test::Rank;
using test::ShardedRun;
using ::testing::HasSubstr;

constexpr std::int64_t kRows = 2;

DecoderConfig model_of(const char* family) {
  DecoderConfig config = test::small_config(family);
  config.layers = 8;
  config.tied_head = false;
  return config;
}
Program derived(const DecoderConfig& config, DType compute = DType::f32) {
  return must(derive_backward(
      must(record_decoder(config, kRows, DecoderHead::loss, DecoderRows::whole, compute)), "loss"));
}

/// As many layers in each stage; the embedding in the first one, and the head in the last one.
std::vector<std::int32_t> stages_of(const Program& program, std::int32_t layers, std::int32_t stages) {
  std::vector<std::int32_t> stage;
  std::int32_t next = 0;
  for (const Region& region : program.regions) {
    if (region.name.rfind("layers.", 0) == 0)
      next = std::stoi(region.name.substr(7)) * stages / layers;
    else if (next > 0)
      next = stages - 1;
    stage.push_back(next);
  }
  return stage;
}

/// Every micro-batch has tokens of its own.
void fill_micro_batches(ShardedRun& run, const Program& program, std::uint64_t vocab) {
  for (const ValueId id : program.inputs) {
    const ValueInfo& info = program.value(id);
    if (info.dtype == DType::f32) {
      const float divisor = 32;
      run.set(id, &divisor);
      continue;
    }
    std::vector<std::int32_t> values(static_cast<std::size_t>(info.shape.n_elems()));
    const Rng rng(std::hash<std::string>()(info.name), 2);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<std::int32_t>(rng.below(i, vocab));
    run.set(id, values.data());
  }
}

struct Step {
  std::vector<float> losses;  ///< one for each micro-batch
  test::NamedValues gradients;
};
Result<Step> run_step(const Program& program, const Program& whole, Rank& rank,
                      const test::AxisGroups& axes) {
  ShardedRun run(program, rank, axes);
  fill_micro_batches(run, program, test::vocab_of(whole));
  for (std::size_t p = 0; p < program.params.size(); ++p)
    if (program.params[p].shape.n_elems() > 0)
      run.set_values(program.params[p].value, test::drawn(whole.params[p], 1));
  STRATA_TRY(run.run());
  Step step;
  for (std::int32_t k = 0; k < program.micro_batches; ++k)
    step.losses.push_back(run.values(program.find(name_in_micro_batch("loss", k))).front());
  for (const ParamInfo& param : program.params)
    if (param.grad != kNoValue) step.gradients[param.name] = run.values(param.grad);
  return step;
}
Step step_of_one(const Program& whole, std::int32_t micro_batches) {
  Step step;
  test::make_ranks(1, StreamSchedule::latest_legal)->must_run([&](Rank& rank) -> Status {
    STRATA_TRY_ASSIGN(step, run_step(interleave_micro_batches(whole, micro_batches), whole, rank, {}));
    return {};
  });
  return step;
}

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits(values.size());
  std::memcpy(bits.data(), values.data(), values.size() * sizeof(float));
  return bits;
}

/// Calls `check` with what each rank of the pipeline has.
void for_each_rank(const Program& whole, const PipelineSchedule& schedule,
                   const std::vector<std::int32_t>& stages, const std::function<void(const Step&)>& check) {
  std::mutex mutex;
  test::make_ranks(schedule.ranks(), StreamSchedule::latest_legal)->must_run([&](Rank& rank) -> Status {
    STRATA_TRY_ASSIGN(const Program own,
                      pipeline(whole, schedule, stages, {.axis = 0, .rank = rank.index()}));
    STRATA_TRY_ASSIGN(const Step step, run_step(own, whole, rank, {{0, &rank.group}}));
    const std::lock_guard lock(mutex);
    check(step);
    return {};
  });
}

/// Every gradient is on one rank, with the bits of one rank; the losses are on all.
void expect_the_bits_of_one_rank(const Program& whole, const PipelineSchedule& schedule,
                                 const std::vector<std::int32_t>& stages) {
  const Step want = step_of_one(whole, schedule.micro_batches);
  std::map<std::string, int> found;
  for_each_rank(whole, schedule, stages, [&](const Step& step) {
    EXPECT_EQ(bits_of(step.losses), bits_of(want.losses));
    for (const auto& [name, values] : step.gradients) {
      EXPECT_EQ(bits_of(values), bits_of(want.gradients.at(name))) << name;
      ++found[name];
    }
  });
  EXPECT_EQ(found.size(), want.gradients.size());
  for (const auto& [name, ranks] : found) EXPECT_EQ(ranks, 1) << name;
}

class PipelinePrograms : public ::testing::TestWithParam<std::tuple<const char*, std::int32_t>> {};

TEST_P(PipelinePrograms, HaveTheBitsOfOneRank) {
  const auto [name, ranks] = GetParam();
  for (const char* family : {"gpt2", "llama"}) {
    const DecoderConfig config = model_of(family);
    const Program whole = derived(config);
    for (const std::int32_t micro_batches : {ranks, 2 * ranks}) {
      SCOPED_TRACE(str(family, ", ", micro_batches, " micro-batches"));
      const bool several = std::string_view(name) == "interleaved" && ranks < 8;
      const PipelineSchedule schedule =
          must(make_pipeline_schedule(name, ranks, micro_batches, several ? 2 : 1));
      expect_the_bits_of_one_rank(whole, schedule, stages_of(whole, config.layers, schedule.stages()));
      expect_the_bits_of_one_rank(whole, schedule,
                                  must(balance_stages(region_flops(whole), schedule.stages())));
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Schedules, PipelinePrograms,
                         ::testing::Combine(::testing::Values("gpipe", "1f1b", "interleaved", "zb-h1"),
                                            ::testing::Values(1, 2, 3, 4, 8)));

bool is_constant(const Instr& instr) {
  return std::all_of(instr.in.begin(), instr.in.end(), [](ValueId id) { return id == kNoValue; });
}

/// How many micro-batches' activations the program of a rank holds at once, over all stages of the rank:
/// those that their forward makes and a gradient needs, from the first that is made to the last that is read.
std::int32_t most_live(const Program& whole, const std::vector<std::int32_t>& stages, const Program& own,
                       std::int32_t rank, std::int32_t ranks) {
  std::set<ValueId> made, kept;
  std::map<ValueId, std::int32_t> stage_of;
  for (const Instr& instr : whole.code) {
    for (const ValueId id : instr.in)
      if (instr.backward && made.count(id) > 0) kept.insert(id);
    for (const ValueId id : instr.out)
      if (const std::int32_t stage = stages[static_cast<std::size_t>(instr.region)];
          !instr.backward && !is_constant(instr) && stage % ranks == rank) {
        made.insert(id);
        stage_of[id] = stage;
      }
  }
  std::map<std::string, std::pair<std::int32_t, std::int32_t>> names;  // the stage and micro-batch of each
  for (const ValueId id : kept)
    for (std::int32_t k = 0; k < own.micro_batches; ++k)
      names[name_in_micro_batch(whole.value(id).name, k)] = {stage_of.at(id), k};
  std::map<std::pair<std::int32_t, std::int32_t>, std::pair<std::size_t, std::size_t>> live;  // first, last
  for (std::size_t i = 0; i < own.code.size(); ++i) {
    const Instr& instr = own.code[i];
    if (is_message(instr.op)) continue;
    for (const auto* list : {&instr.in, &instr.out})
      for (const ValueId id : *list) {
        const auto named = id == kNoValue ? names.end() : names.find(own.value(id).name);
        if (named == names.end()) continue;
        live.try_emplace(named->second, i, i).first->second.second = i;
      }
  }
  std::int32_t most = 0;
  for (std::size_t i = 0; i < own.code.size(); ++i)
    most = std::max(most,
                    static_cast<std::int32_t>(std::count_if(live.begin(), live.end(), [i](const auto& each) {
                      return each.second.first <= i && i <= each.second.second;
                    })));
  return most;
}

TEST_P(PipelinePrograms, KeepActivationsOfAsManyMicroBatchesAsTheScheduleSays) {
  const auto [name, ranks] = GetParam();
  const DecoderConfig config = model_of("gpt2");
  const Program whole = derived(config);
  for (const std::int32_t micro_batches : {ranks, 2 * ranks, 4 * ranks}) {
    const bool several = std::string_view(name) == "interleaved" && ranks < 8;
    const PipelineSchedule schedule =
        must(make_pipeline_schedule(name, ranks, micro_batches, several ? 2 : 1));
    const std::vector<std::int32_t> stages = stages_of(whole, config.layers, schedule.stages());
    for (std::int32_t rank = 0; rank < ranks; ++rank)
      EXPECT_EQ(most_live(whole, stages, must(pipeline(whole, schedule, stages, {.axis = 0, .rank = rank})),
                          rank, ranks),
                max_live_micro_batches(schedule, rank))
          << "rank " << rank << " of " << ranks << ", " << micro_batches << " micro-batches";
  }
}

// The table is read in the first stage and in the last one.
TEST_P(PipelinePrograms, BothRanksOfATiedTableHaveTheSumOfItsGradients) {
  const auto [name, ranks] = GetParam();
  if (ranks == 1) return;
  DecoderConfig config = model_of("gpt2");
  config.tied_head = true;
  const Program whole = derived(config);
  for (const std::int32_t micro_batches : {1, ranks}) {
    const PipelineSchedule schedule = must(make_pipeline_schedule(name, ranks, micro_batches, 1));
    const Step want = step_of_one(whole, micro_batches);
    std::vector<std::vector<float>> tables;
    for_each_rank(whole, schedule, stages_of(whole, config.layers, ranks), [&](const Step& step) {
      for (const auto& [param, values] : step.gradients)
        if (param == "tokens.weight")
          tables.push_back(values);
        else
          EXPECT_EQ(bits_of(values), bits_of(want.gradients.at(param))) << param;
    });
    ASSERT_EQ(tables.size(), 2U);
    EXPECT_EQ(bits_of(tables[0]), bits_of(tables[1]));
    const std::vector<float>& table = want.gradients.at("tokens.weight");
    for (std::size_t i = 0; i < table.size(); ++i)
      ASSERT_NEAR(tables[0][i], table[i], 1e-6 * test::largest(table)) << "element " << i;
  }
}

std::string refusal(const Program& whole, const PipelineSchedule& schedule,
                    const std::vector<std::int32_t>& stages, std::int32_t rank = 0) {
  const auto own = pipeline(whole, schedule, stages, {.axis = 0, .rank = rank});
  return own.has_value() ? std::string() : own.status().to_string();
}

TEST(PipelineProgram, WhatCannotBeAPipelineIsRefused) {
  DecoderConfig config = model_of("gpt2");
  const Program whole = derived(config);
  const PipelineSchedule schedule = must(one_f_one_b(2, 2));
  std::vector<std::int32_t> stages = stages_of(whole, config.layers, 2);
  EXPECT_EQ(refusal(whole, schedule, stages), "");
  EXPECT_THAT(refusal(whole, schedule, stages, 2), HasSubstr("rank 2 of a pipeline of 2"));
  EXPECT_THAT(refusal(interleave_micro_batches(whole, 2), schedule, stages),
              HasSubstr("a program of 2 micro-batches"));
  EXPECT_THAT(refusal(whole, schedule, {0, 1}),
              HasSubstr(str("2 stages for ", whole.regions.size(), " regions")));
  PipelineSchedule other = schedule;
  other.tasks[0].pop_back();
  EXPECT_THAT(refusal(whole, other, stages), HasSubstr("0 backwards"));
  std::swap(stages.front(), stages.back());
  std::reverse(stages.begin(), stages.end());
  EXPECT_THAT(refusal(whole, schedule, stages), HasSubstr("reads it"));
}

}  // namespace
}  // namespace strata
