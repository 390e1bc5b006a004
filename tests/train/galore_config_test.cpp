// optim.name = galore: its keys, what they cannot be combined with, and what they train.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/config/train_schema.h>
#include <strata/runtime/str.h>
#include <strata/plan/activation_choices.h>
#include <strata/plan/subspaces.h>
#include <strata/train/subspaces/schedule.h>
#include <strata/config/train_config.h>
#include <strata/config/model_choice.h>

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Arguments = std::vector<std::string>;

Result<TrainConfig> galore_run(Arguments arguments, bool trains = true) {
  for (const std::string key :
       {"optim.name=galore", "optim.weight_decay=0", "optim.galore_rank=4", "train.dtype=f32"})
    if (std::none_of(arguments.begin(), arguments.end(), [&](const std::string& argument) {
          return argument.starts_with(key.substr(0, key.find('=') + 1));
        }))
      arguments.push_back(key);
  STRATA_TRY_ASSIGN(const ConfigTree tree,
                    ConfigTree::build(train_schema(), {.arguments = arguments, .preset = "austen-tiny"}));
  return fill_train_config(tree, trains);
}
std::string problems_of(Arguments arguments) {
  const Status status = galore_run(std::move(arguments)).status();
  return status.is_ok() ? std::string() : std::string(status.message());
}
DecoderConfig decoder_of(const TrainConfig& config) { return with_derived_sizes(decoder_config(config)); }
TrainConfig llama_run(Arguments arguments = {}) {
  for (const char* size : {"model.family=llama", "model.heads=4", "model.kv_heads=2"})
    arguments.emplace_back(size);
  return must(galore_run(std::move(arguments)));
}

TEST(GaloreConfigTest, WhatItCannotBeCombinedWithIsRefusedAllAtOnce) {
  EXPECT_THAT(
      problems_of({"adapter.method=lora", "train.dtype=f16", "optim.weight_decay=0.1", "parallel.ranks=2",
                   "train.fp8=true", "model.states=somewhere", "offload.micro_batch_order=depth_first"}),
      AllOf(HasSubstr("adapter.method = lora, but optim.name is galore (argument"),
            HasSubstr("train.dtype = f16, but optim.name is galore"),
            HasSubstr("optim.weight_decay = 0.1, but optim.name is galore"),
            HasSubstr("parallel.ranks = 2, but optim.name is galore"),
            HasSubstr("train.fp8 = true, but optim.name is galore"),
            HasSubstr("model.states = somewhere, but optim.name is galore"),
            HasSubstr("offload.micro_batch_order = depth_first, but optim.name is galore"),
            HasSubstr("whole gradient of 2 micro-batches (train.grad_accum)")));
}

TEST(GaloreConfigTest, TheOrderOfMicroBatchesIsFreeWithoutClipping) {
  EXPECT_EQ(problems_of({"offload.micro_batch_order=depth_first", "optim.clip=0"}), "");
  EXPECT_EQ(problems_of({"offload.micro_batch_order=depth_first", "train.grad_accum=1"}), "");
}

TEST(GaloreConfigTest, ARunIsReadForInferenceInAnyDtype) {
  EXPECT_TRUE(galore_run({"train.dtype=f16"}, false).has_value());
}

TEST(GaloreConfigTest, KeysOfGaloreAreRefusedForOtherOptimizers) {
  EXPECT_THAT(problems_of({"optim.name=adamw", "optim.galore_gap=20"}),
              AllOf(HasSubstr("optim.galore_rank = 4 is of optim.name = galore, but optim.name is adamw"),
                    HasSubstr("optim.galore_gap = 20 is of optim.name = galore")));
}

// As the configuration of a run does.
TEST(GaloreConfigTest, AFileMayListAllKeysWithTheirDefaults) {
  const ConfigTree defaults = must(ConfigTree::build(train_schema(), {.preset = "austen-tiny"}));
  const ConfigTree again = must(ConfigTree::build(train_schema(), {.file_text = defaults.to_toml(false)}));
  EXPECT_TRUE(fill_train_config(again).has_value()) << fill_train_config(again).status().message();
}

TEST(GaloreConfigTest, ClippingOverSeveralMicroBatchesTakesThemInOneProgram) {
  const auto orders = [](Arguments arguments) {
    std::vector<bool> of_choices;
    for (const ActivationChoice& choice : activation_choices(must(galore_run(std::move(arguments))), true))
      of_choices.push_back(choice.breadth_first);
    return of_choices;
  };
  EXPECT_THAT(orders({"optim.clip=1"}), AllOf(Each(true), ::testing::Not(IsEmpty())));
  EXPECT_THAT(orders({"optim.clip=1", "train.grad_accum=1"}), Each(false));
  EXPECT_THAT(orders({"optim.clip=0", "offload.micro_batch_order=depth_first"}), Each(false));
}

TEST(SubspaceGroupsTest, TheBasisIsOfTheShorterSideOfEachModule) {
  const TrainConfig config = llama_run();
  const auto groups = must(subspace_groups(config, decoder_of(config)));
  std::vector<std::string> bases;
  for (const LoraGroup& group : groups)
    if (group.weight.starts_with("layers.0.")) bases.push_back(str(group.basis(), " ", group.parts.n));
  // Queries [64, 64] are beside keys and values [32, 64]; gates and inputs of the MLP are [256, 64].
  EXPECT_THAT(bases,
              ElementsAre("layers.0.qkv.lora_A 1", "layers.0.qkv.lora_B.1 2", "layers.0.attn_out.lora_A 1",
                          "layers.0.mlp_in.lora_A 2", "layers.0.mlp_out.lora_B 1"));
  for (const LoraGroup& group : groups) EXPECT_EQ(group.scale, 1) << group.weight;
}

// GPT-2's folders have matrices [in, out], in which a square one has the rows of the other side.
TEST(SubspaceGroupsTest, SquareMatricesFollowTheLayoutOfTheFolder) {
  const TrainConfig config = must(galore_run({}));
  const auto groups = must(subspace_groups(config, decoder_of(config)));
  const auto found = std::find_if(groups.begin(), groups.end(), [](const LoraGroup& group) {
    return group.weight == "layers.0.attn_out.weight";
  });
  ASSERT_NE(found, groups.end());
  EXPECT_EQ(found->trained, LoraTrained::a);
}

TEST(SubspaceGroupsTest, FrozenMatricesAreNotAmongThem) {
  const TrainConfig config = must(galore_run({"train.freeze=layers.0.*"}));
  for (const LoraGroup& group : must(subspace_groups(config, decoder_of(config))))
    EXPECT_TRUE(group.weight.starts_with("layers.1.")) << group.weight;
  const TrainConfig all = must(galore_run({"train.freeze=layers.*"}));
  EXPECT_THAT(std::string(subspace_groups(all, decoder_of(all)).status().message()),
              HasSubstr("train.freeze names every matrix of optim.galore_targets"));
}

TEST(SubspaceGroupsTest, ModulesAndRanksThatDoNotFitAreNamed) {
  const TrainConfig config = must(galore_run({"optim.galore_targets=q_proj,c_fc", "optim.galore_rank=65"}));
  EXPECT_THAT(
      std::string(subspace_groups(config, decoder_of(config)).status().message()),
      AllOf(HasSubstr("optim.galore:"), HasSubstr("targets 'q_proj' names no module of the model"),
            HasSubstr("the rank of transformer.h.0.mlp.c_fc is 65; its matrix [256, 64] allows 1 to 64")));
}

TEST(SubspaceParamGroupsTest, FactorsHaveTheScaleOfTheirMatrixsGroup) {
  const TrainConfig config = must(galore_run(
      {"optim.galore_scale=0.5", "optim.clip=0",
       "optim.param_groups=layers.0.qkv.weight lr_scale=0.1,layers.*.bias lr_scale=3 weight_decay=0.2"}));
  const auto groups = must(param_groups(config, decoder_of(config)));
  ASSERT_THAT(groups, SizeIs(3));
  EXPECT_EQ(groups[0].pattern, "layers.0.qkv.lora_B");
  EXPECT_DOUBLE_EQ(groups[0].lr_scale, 0.05);
  EXPECT_EQ(groups[1].pattern, "*.lora_[AB]*");
  EXPECT_DOUBLE_EQ(groups[1].lr_scale, 0.5);
  EXPECT_EQ(groups[2].pattern, "layers.*.bias");
  EXPECT_EQ(groups[2].weight_decay, 0.2);
}

TEST(SubspaceParamGroupsTest, WhatIsOutsideOfTheBasesIsClippedByAndNotUpdated) {
  const TrainConfig config = must(galore_run({"optim.clip=1"}));
  const auto groups = must(param_groups(config, decoder_of(config)));
  ASSERT_THAT(groups, SizeIs(2));
  EXPECT_EQ(groups[1].pattern, "*.lora_outside*");
  EXPECT_EQ(groups[1].lr_scale, 0);
  EXPECT_EQ(groups[1].weight_decay, 0);
}

TEST(SubspaceParamGroupsTest, DecayOfAMatrixIsRefused) {
  const TrainConfig config = must(galore_run({"optim.param_groups=layers.* weight_decay=0.1"}));
  EXPECT_THAT(std::string(param_groups(config, decoder_of(config)).status().message()),
              HasSubstr("'layers.*' has weight_decay = 0.1 and matches layers.0.qkv.weight"));
}

TEST(SubspaceScheduleTest, BasesAreDueBeforeEveryGapAndOnce) {
  const TrainConfig config = must(galore_run({"optim.galore_gap=3"}));
  SubspaceSchedule schedule(config);
  std::vector<std::int64_t> due;
  for (std::int64_t steps = 0; steps < 8; ++steps)
    if (schedule.is_due(steps)) due.push_back(steps);
  EXPECT_THAT(due, ElementsAre(0, 3, 6));
  EXPECT_THAT(schedule.state(3), IsEmpty());
  // A checkpoint of a run whose fourth step failed after its bases had been renewed.
  schedule.resume(3, {{"galore.renewed_after", "3"}});
  EXPECT_FALSE(schedule.is_due(3));
  EXPECT_THAT(schedule.state(3), SizeIs(1));
  EXPECT_THAT(schedule.state(4), IsEmpty());
  schedule.resume(6, {});
  EXPECT_TRUE(schedule.is_due(6));
}

TEST(SubspaceScheduleTest, OtherOptimizersHaveNone) {
  const ConfigTree tree = must(ConfigTree::build(train_schema(), {.preset = "austen-tiny"}));
  EXPECT_FALSE(SubspaceSchedule(must(fill_train_config(tree))).is_due(0));
}

}  // namespace
}  // namespace strata
