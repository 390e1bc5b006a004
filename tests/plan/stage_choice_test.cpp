// How the layers of a pipeline are cut into stages, and which schedule it has where neither is set.
#include <gmock/gmock.h>

#include <numeric>

#include <strata/runtime/str.h>
#include <strata/plan/job.h>
#include <strata/config/load_config.h>
#include <strata/plan/split/mesh_search.h>
#include <strata/plan/split/plan_stages.h>

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<std::string> small_model() {
  return {"model.family=llama", "model.layers=12",  "model.hidden=256", "model.heads=4",
          "model.ffn=512",      "model.vocab=4096", "model.seq=64",     "train.micro_batch=1",
          "train.grad_accum=8", "train.dtype=bf16", "parallel.pp=2",    "parallel.ranks=2",
          "memory.backend=cuda"};
}
Result<LoadedConfig> load_small(const std::vector<std::string>& more) {
  return load_config(with_overrides(ConfigRequest{.items = small_model()}, more));
}

// A GPU whose memory is slow for its GEMMs, so that the head costs more than its flops say.
MachineProfile slow_memory() {
  MachineProfile profile = must(load_machine_profile("h100-80gb"));
  profile.device_bytes_per_s /= 40;
  profile.launch_s = 0;
  return profile;
}

PlannedJob plan_on(LoadedConfig& loaded, const MachineProfile* profile, bool by_forecast = false) {
  return must(plan_job(
      loaded, {.profile = profile, .other_machine = profile != nullptr, .by_forecast = by_forecast}));
}

double step_s(const std::string& stage_layers, const MachineProfile& machine) {
  const LoadWith load = [&](const std::vector<std::string>& assignments) {
    std::vector<std::string> all = assignments;
    all.push_back("parallel.stage_layers=" + stage_layers);
    all.emplace_back("model.vocab=32768");
    return load_config(with_overrides(ConfigRequest{.items = small_model()}, all));
  };
  const DryRunLayout run = dry_run_layout({.layout = {.pp = 2}}, load, machine, true);
  EXPECT_TRUE(run.refused.is_ok()) << run.refused.to_string();
  return run.step_s;
}

TEST(StageLayers, AreBalancedByTheMeasuredRatesOfTheMachine) {
  const MachineProfile machine = slow_memory();
  LoadedConfig by_time = must(load_small({"model.vocab=32768"}));
  plan_on(by_time, &machine);
  ASSERT_TRUE(by_time.config.parallel.stage_layers.has_value());
  const std::vector<double> chosen = *by_time.config.parallel.stage_layers;
  ASSERT_EQ(chosen.size(), 2u);
  EXPECT_EQ(chosen[0] + chosen[1], 12);
  EXPECT_EQ(by_time.tree.numbers("parallel.stage_layers"), chosen);
  EXPECT_THAT(by_time.tree.entry("parallel.stage_layers").why, HasSubstr(machine.name));

  double best = 1e30;
  std::string best_cut;
  for (int first = 6; first <= 12; ++first) {
    const std::string cut = str(first, ",", 12 - first);
    if (const double s = step_s(cut, machine); s < best) {
      best = s;
      best_cut = cut;
    }
  }
  EXPECT_LE(step_s(str(chosen[0], ",", chosen[1]), machine), 1.02 * best) << best_cut;
  EXPECT_LT(step_s("auto", machine), step_s("6,6", machine)) << "halves leave the head to the last stage";
}

TEST(StageLayers, OfAllRanksAreThoseOfTheFirst) {
  const MachineProfile machine = slow_memory();
  LoadedConfig loaded = must(load_small({}));
  const PlannedJob first = plan_on(loaded, &machine);
  const auto later =
      must(plan_later_stages(loaded, {.profile = &machine, .other_machine = true, .by_forecast = false}));
  ASSERT_EQ(later.size(), 1u);
  std::size_t whole = 0;
  for (std::size_t t = 0; t < first.plan->tensors.specs.size(); ++t)
    whole += !first.plan->tensors.specs[t].is_elsewhere + !later[0].plan->tensors.specs[t].is_elsewhere;
  EXPECT_EQ(whole, first.plan->tensors.specs.size()) << "each tensor is on one of the two ranks";
}

TEST(StageLayers, WithoutAProfileFlopsDecide) {
  LoadedConfig loaded = must(load_small({"memory.backend=host"}));
  plan_on(loaded, nullptr);
  EXPECT_THAT(loaded.tree.entry("parallel.stage_layers").why, HasSubstr("flops"));
}

TEST(StageLayers, WhatIsSetIsUsedOrRefusedWithItsNumbers) {
  LoadedConfig loaded = must(load_small({"parallel.stage_layers=5,7", "memory.backend=host"}));
  const PlannedJob first = plan_on(loaded, nullptr);
  int layers = 0;
  for (const auto& spec : first.plan->tensors.specs)
    layers += !spec.is_elsewhere && std::string(spec.name).ends_with(".attn_out.weight");
  EXPECT_EQ(layers, 5);
  for (const char* wrong : {"5,6", "4,4,4", "5.5,6.5"}) {
    const Status status = load_small({str("parallel.stage_layers=", wrong)}).status();
    EXPECT_EQ(status.code(), Code::invalid);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("parallel.stage_layers"), HasSubstr("the model has 12")))
        << wrong;
  }
}

// A model whose parameters do not fit the device, and a link on which each reading of them counts.
std::vector<std::string> streamed() {
  return {"parallel.schedule=auto", "memory.device=32MiB", "memory.pinned=4GiB", "train.grad_accum=32",
          "model.vocab=512"};
}
MachineProfile slow_link() {
  MachineProfile profile = must(load_machine_profile("h100-80gb"));
  profile.h2d_bytes_per_s = profile.d2h_bytes_per_s = 2e8;
  profile.link_bytes_per_s = 4e8;
  profile.launch_s = 1e-6;
  return profile;
}

TEST(ScheduleChoice, StagesAreDealtWhereTheirParametersAreStreamed) {
  const MachineProfile machine = slow_link();
  LoadedConfig loaded = must(load_small(streamed()));
  plan_on(loaded, &machine, true);
  EXPECT_EQ(loaded.config.parallel.schedule, "breadth-first") << loaded.tree.entry("parallel.schedule").why;
  EXPECT_GE(*loaded.config.parallel.virtual_stages, 2);
  EXPECT_THAT(loaded.tree.entry("parallel.schedule").why, HasSubstr("the fastest of"));
}

TEST(ScheduleChoice, StagesAreNotDealtWhereTheParametersFit) {
  const MachineProfile machine = slow_link();
  LoadedConfig loaded = must(load_small({"parallel.schedule=auto", "memory.device=8GiB"}));
  plan_on(loaded, &machine, true);
  EXPECT_NE(loaded.config.parallel.schedule, "breadth-first") << loaded.tree.entry("parallel.schedule").why;
}

TEST(ScheduleChoice, WithoutAForecastItIsTheFirstThatFits) {
  LoadedConfig loaded = must(load_small({"parallel.schedule=auto", "memory.backend=host"}));
  plan_on(loaded, nullptr);
  EXPECT_EQ(loaded.config.parallel.schedule, "1f1b");
  EXPECT_EQ(loaded.config.parallel.virtual_stages, 1);
  LoadedConfig several =
      must(load_small({"parallel.schedule=auto", "parallel.virtual_stages=2", "memory.backend=host"}));
  plan_on(several, nullptr);
  EXPECT_EQ(several.config.parallel.schedule, "interleaved") << "1f1b has one stage a rank";
  // 1f1b has the gradients of a whole stage on the device; dealt stages have those of a layer or two.
  LoadedConfig small =
      must(load_small({"parallel.schedule=auto", "memory.backend=host", "train.grad_accum=32",
                       "parallel.reduce=once", "memory.device=10MiB", "memory.nvme=0", "model.vocab=1024"}));
  plan_on(small, nullptr);
  EXPECT_EQ(small.config.parallel.schedule, "breadth-first");
  EXPECT_GE(*small.config.parallel.virtual_stages, 4);
}

}  // namespace
}  // namespace strata
