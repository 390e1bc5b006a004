// Which layouts a number of ranks has, and what closed forms say of them.
#include <gmock/gmock.h>

#include <strata/model/decoder.h>
#include <strata/runtime/str.h>
#include <strata/config/load_config.h>
#include <strata/plan/split/mesh_search.h>
#include <strata/config/train_config.h>
#include <strata/config/model_choice.h>

namespace strata {
namespace {

using ::testing::HasSubstr;

LoadedConfig run_of(std::vector<std::string> items) {
  items.insert(items.begin(), {"train.dtype=bf16", "memory.backend=cuda"});
  return must(load_config({.items = std::move(items)}));
}
// A row of Narayanan et al. 2021 (arXiv 2104.04473), table 1: 145.6 B parameters.
LoadedConfig gpt3_class() {
  return run_of({"model.layers=80", "model.hidden=12288", "model.heads=96", "model.ffn=49152",
                 "model.vocab=51200", "model.seq=2048", "train.micro_batch=1", "train.grad_accum=2304",
                 "parallel.reduce=once"});
}

TEST(MeshLayouts, EveryNumberOfRanksHasLayoutsOrIsToldTheNearestThatHas) {
  const LoadedConfig run = gpt3_class();
  const MachineProfile machine = must(load_machine_profile("a100-80gb"));
  int answered = 0;
  for (int ranks = 1; ranks <= 4096; ++ranks) {
    const auto found = mesh_layouts(run.config, machine, {.ranks = ranks});
    if (found.has_value()) {
      ++answered;
      for (const LayoutEstimate& each : *found) {
        const MeshLayout& l = each.layout;
        EXPECT_EQ(l.ranks(), ranks);
        EXPECT_EQ(2304 % l.dp, 0);
        EXPECT_EQ(96 % l.tp, 0);
        EXPECT_LE(l.pp, 80);
        EXPECT_GT(each.step_s, 0);
      }
      continue;
    }
    if (found.status().code() == Code::does_not_fit) continue;  // few ranks have too little memory
    const std::string message(found.status().message());
    const std::string last = message.substr(message.rfind(' ') + 1);
    const auto nearest = mesh_layouts(run.config, machine, {.ranks = std::stoi(last)});
    EXPECT_TRUE(nearest.has_value() || nearest.status().code() == Code::does_not_fit) << message;
    for (int between = std::min(ranks, std::stoi(last)) + 1; between < std::max(ranks, std::stoi(last));
         ++between)
      EXPECT_EQ(mesh_layouts(run.config, machine, {.ranks = between}).status().code(), Code::invalid);
  }
  EXPECT_GT(answered, 300);
}

TEST(MeshLayouts, ARunThatNoRankCanHoldIsRefusedAndAPrimeNumberIsToldItsNeighbour) {
  const LoadedConfig run = gpt3_class();
  const MachineProfile machine = must(load_machine_profile("a100-80gb"));
  const Status one = mesh_layouts(run.config, machine, {.ranks = 1}).status();
  EXPECT_EQ(one.code(), Code::does_not_fit);
  EXPECT_THAT(std::string(one.message()), HasSubstr("the smallest, 1 rank, needs"));
  const Status prime = mesh_layouts(run.config, machine, {.ranks = 4093}).status();
  EXPECT_EQ(prime.code(), Code::invalid);
  EXPECT_THAT(std::string(prime.message()), HasSubstr("the nearest number of ranks that has one is 409"));
}

TEST(MeshLayouts, ThePublishedLayoutOfAModelIsAmongTheBest) {
  const LoadedConfig run = gpt3_class();
  const auto found = must(mesh_layouts(run.config, must(load_machine_profile("a100-80gb")), {.ranks = 1536}));
  int rank = 0;
  for (const LayoutEstimate& each : first_of_each_mesh(found)) {
    if (each.layout.tp == 8 && each.layout.pp == 8 && each.layout.cp == 1) break;
    ++rank;
  }
  for (std::size_t i = 0; i < std::min<std::size_t>(8, found.size()); ++i)
    RecordProperty(str("best_", i), str(to_string(found[i].layout), " ", found[i].step_s));
  EXPECT_LT(rank, 5) << "of the meshes that are run dry";
}

TEST(MeshLayouts, WhatIsSetIsNotVaried) {
  const LoadedConfig run =
      run_of({"model.layers=8", "model.hidden=512", "model.heads=8", "model.ffn=2048", "train.grad_accum=8",
              "parallel.pp=2", "parallel.tp=2", "parallel.ranks=8"});
  const auto found =
      must(mesh_layouts(run.config, must(load_machine_profile("h100-80gb")), mesh_request(run, 16)));
  for (const LayoutEstimate& each : found) {
    EXPECT_EQ(each.layout.pp, 2);
    EXPECT_EQ(each.layout.tp, 2);
    EXPECT_EQ(each.layout.dp * each.layout.cp, 4);
  }
}

TEST(MeshSearch, AsManyThreadsAsThereAreFindTheSame) {
  const MachineProfile machine = must(load_machine_profile("h100-80gb"));
  const LoadWith load = [](const std::vector<std::string>& assignments) {
    ConfigRequest request{.items = {"model.family=llama", "model.layers=4", "model.hidden=128",
                                    "model.heads=4", "model.ffn=256", "model.vocab=512", "model.seq=32",
                                    "train.micro_batch=1", "train.grad_accum=8", "train.dtype=bf16"}};
    return load_config(with_overrides(request, assignments));
  };
  const LoadedConfig run = must(load({}));
  const auto estimates = first_of_each_mesh(must(mesh_layouts(run.config, machine, {.ranks = 4})));
  const auto alone = dry_run_layouts(estimates, 4, load, machine, true, 1),
             together = dry_run_layouts(estimates, 4, load, machine, true, 3);
  ASSERT_EQ(alone.size(), together.size());
  for (std::size_t i = 0; i < alone.size(); ++i) {
    EXPECT_EQ(to_string(alone[i].estimate.layout), to_string(together[i].estimate.layout));
    EXPECT_EQ(alone[i].step_s, together[i].step_s);
  }
}

// The real engines run dry: together the stages have all parameters, and no send lacks its receive, or it
// would fail.
TEST(MeshSearch, StagesThatRunDryHoldTheWholeModel) {
  const std::vector<std::string> items = {"model.family=llama", "model.layers=8",      "model.hidden=256",
                                          "model.heads=4",      "model.ffn=512",       "model.vocab=512",
                                          "model.seq=64",       "train.micro_batch=1", "train.grad_accum=32"};
  const MachineProfile machine = must(load_machine_profile("h100-80gb"));
  const LoadWith load = [&](const std::vector<std::string>& assignments) {
    ConfigRequest request{.items = items};
    request.items.emplace_back("train.dtype=bf16");
    return load_config(with_overrides(request, assignments));
  };
  const LoadedConfig run = must(load({}));
  for (const MeshLayout& layout :
       {MeshLayout{.pp = 4}, MeshLayout{.dp = 2, .pp = 2, .tp = 2, .zero = 2},
        MeshLayout{.dp = 4, .pp = 4, .zero = 2, .schedule = "zb-h1"},
        MeshLayout{.dp = 2, .pp = 2, .virtual_stages = 2, .tp = 4, .zero = 3, .schedule = "interleaved"}}) {
    const DryRunLayout found = dry_run_layout({.layout = layout}, load, machine, true);
    ASSERT_TRUE(found.refused.is_ok()) << to_string(layout) << ": " << found.refused.to_string();
    EXPECT_EQ(found.param_elems, count_parameters(decoder_config(run.config))) << to_string(layout);
    EXPECT_EQ(found.peak.size(), static_cast<std::size_t>(layout.pp));
    EXPECT_GT(found.step_s, 0);
    EXPECT_GT(found.idle_share(), 0);
    EXPECT_LT(found.idle_share(), 1);
  }
}

}  // namespace
}  // namespace strata
