// Programs that refresh are planned, checked and forecast with the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/engine/forecast.h>

#include "engine/execute/subspace_runs.h"

namespace strata {
namespace {

using test::subspace::groups_of;
using test::subspace::Kind;
using test::subspace::options_of;
using test::subspace::programs_of;
using testing::HasSubstr;

const DecoderConfig& refreshed_config() {
  static const DecoderConfig config = test::tiny_of_family("gpt2");
  return config;
}

TEST(RefreshPlanTest, AProgramThatCannotRunBetweenStepsIsRefused) {
  const auto refused = [](const std::function<void(ProgramSet&, SessionOptions&)>& change) {
    ProgramSet set = programs_of(refreshed_config(), {.micro_batches = 2});
    SessionOptions options = options_of(2);
    change(set, options);
    const Status status = Engine::plan(set, options).status();
    EXPECT_FALSE(status.is_ok());
    return std::string(status.message());
  };
  EXPECT_THAT(refused([](ProgramSet& set, SessionOptions&) { set[ProgramRole::train] = {}; }),
              HasSubstr("program refresh with the role refresh needs a program that trains"));
  EXPECT_THAT(refused([](ProgramSet& set, SessionOptions& options) {
                options.grad_accum = 1;
                options.clip = 0;
                set[ProgramRole::train] = programs_of(refreshed_config())[ProgramRole::train];
              }),
              HasSubstr("covers 2 micro-batches, but a step has 1"));
  EXPECT_THAT(refused([](ProgramSet& set, SessionOptions&) { set[ProgramRole::refresh].results.clear(); }),
              HasSubstr("has no results"));
  EXPECT_THAT(refused([](ProgramSet& set, SessionOptions&) {
                Program& program = set[ProgramRole::refresh];
                program.values[static_cast<std::size_t>(program.results[0])].dtype = DType::bf16;
              }),
              HasSubstr("lora_A in bf16; it must be f32"));
  EXPECT_THAT(refused([](ProgramSet& set, SessionOptions&) {
                set[ProgramRole::refresh].params[3].grad = set[ProgramRole::refresh].params[3].value;
              }),
              HasSubstr("computes a gradient of parameter "));
  EXPECT_THAT(refused([](ProgramSet& set, SessionOptions&) {
                set.add({"again", ProgramRole::refresh, set[ProgramRole::refresh]});
              }),
              HasSubstr("the programs refresh and again both refresh; a run has at most one"));
  EXPECT_THAT(refused([](ProgramSet& set, SessionOptions& options) {
                set[ProgramRole::train] =
                    programs_of(refreshed_config(),
                                {.clips = false, .micro_batches = 2, .of_train = 1})[ProgramRole::train];
                options.groups.clear();
                options.ranks.ranks = 2;
              }),
              HasSubstr("with the role refresh needs a run with one rank; there are 2"));
}

TEST(RefreshPlanTest, MatricesAreReadOnlyAndOnlyFactorsHaveGradientsAndMoments) {
  for (const bool clips : {true, false}) {
    const auto plan = must(
        Engine::plan(programs_of(refreshed_config(), {.clips = clips}), options_of(1, clips ? 1.0 : 0.0)));
    std::size_t n_outside = 0;
    for (const LayoutTensor& tensor : plan->tensors.specs)
      n_outside += tensor.name.find(".lora_outside") != std::string::npos ? 1 : 0;
    EXPECT_EQ(n_outside, clips ? groups_of(refreshed_config()).size() : 0u);
    for (const LoraGroup& group : groups_of(refreshed_config()))
      for (const LayoutTensor& tensor : plan->tensors.specs) {
        if (tensor.name == group.weight || tensor.name == group.basis()) {
          EXPECT_FALSE(tensor.group.trainable) << tensor.name;
        }
        if (tensor.name == group.factor() || tensor.name == group.outside) {
          EXPECT_TRUE(tensor.group.trainable) << tensor.name;
        }
      }
  }
}

TEST(RefreshPlanTest, AForecastHasTheTimeOfARefreshAndItsStepsAreUnchangedByIt) {
  MachineProfile profile;
  profile.name = "even";
  profile.cores = 8;
  profile.memory = {kUnlimited, kUnlimited, kUnlimited};
  profile.gemm_sizes = {1};
  profile.flops_16bit = profile.flops_f32 = {1e12};
  profile.attention_flops_per_s = profile.device_bytes_per_s = 1e12;
  profile.h2d_bytes_per_s = profile.d2h_bytes_per_s = profile.link_bytes_per_s = 1e10;
  profile.host_bytes_per_s = 1e10;
  profile.update_s_per_param = {1e-9, 1e-9, 1e-9};
  profile.read_bytes_per_s = profile.write_bytes_per_s = profile.disk_bytes_per_s = 1e9;
  ProgramSet set = programs_of(refreshed_config());
  const auto with = must(Engine::plan(set, options_of()));
  set[ProgramRole::refresh] = {};
  const auto without = must(Engine::plan(set, options_of()));
  const Forecast refreshed = must(forecast(*with, profile)), plain = must(forecast(*without, profile));
  EXPECT_GT(refreshed.refresh_s, 0);
  EXPECT_EQ(plain.refresh_s, 0);
  EXPECT_EQ(refreshed.step_s, plain.step_s);
  EXPECT_EQ(refreshed.peak, with->planned_peak);
}

}  // namespace
}  // namespace strata
