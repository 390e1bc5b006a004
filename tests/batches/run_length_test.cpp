// How long a run and its sequences are, and the other defaults of a run that starts from a folder.
#include <strata/batches/run_length.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/config/load_config.h>
#include <strata/runtime/plural.h>

#include "support/temp_dir.h"

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class RunLengthTest : public ::testing::Test {
 protected:
  RunLengthTest() {
    must(write_text_atomically(posix_io(), dir_.file("config.json"),
                               R"({"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 1,
        "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 300, "max_position_embeddings": 512})"));
  }
  Result<LoadedConfig> load(std::vector<std::string> items, const std::string& task = {},
                            std::vector<std::string> environment = {}) const {
    return load_config({.items = std::move(items), .task = task, .environment = std::move(environment)});
  }
  LoadedConfig tuned(std::vector<std::string> items = {}, const std::string& task = {}) const {
    items.push_back("model.from=" + dir_.path());
    return must(load(std::move(items), task));
  }
  const test::TempDir dir_;
};

TEST_F(RunLengthTest, ARunFromRandomValuesHasAThousandSteps) {
  const LoadedConfig run = must(load({}));
  EXPECT_EQ(run.config.train.steps, 1000);
  EXPECT_EQ(run.config.optim.warmup, 50);
  EXPECT_EQ(run.config.model.seq, 128);
  EXPECT_EQ(run.config.optim.lr, 1e-3);
  EXPECT_EQ(run.config.optim.weight_decay, 0.1);
}

TEST_F(RunLengthTest, AFolderIsTunedWithTheRatesOfItsKind) {
  const TrainConfig::Optim all = tuned().config.optim;
  EXPECT_EQ(all.lr, 2e-5);
  EXPECT_EQ(all.weight_decay, 0);
  EXPECT_EQ(all.min_lr_ratio, 0);
  EXPECT_EQ(tuned({"adapter.method=lora"}).config.optim.lr, 2e-4);
  EXPECT_EQ(tuned({}, "lora").config.optim.lr, 2e-4);
  EXPECT_EQ(tuned({"optim.lr=0.5", "optim.weight_decay=0.25"}).config.optim.lr, 0.5);
  EXPECT_EQ(tuned({}, "dpo").config.optim.lr, 1e-6);
  EXPECT_EQ(tuned().tree.entry("optim.lr").origin, "fine-tuning of model.from");
}

TEST_F(RunLengthTest, AFolderIsTunedForEpochsUnlessStepsAreGiven) {
  EXPECT_EQ(tuned().config.train.epochs, 3);
  EXPECT_TRUE(tuned().tree.is_auto("train.steps"));
  EXPECT_EQ(tuned({}, "dpo").config.train.epochs, 1);
  EXPECT_EQ(tuned({"train.epochs=0.5"}).config.train.epochs, 0.5);
  const LoadedConfig steps = tuned({"train.steps=200"});
  EXPECT_EQ(steps.config.train.steps, 200);
  EXPECT_EQ(steps.config.optim.warmup, 6);
  EXPECT_EQ(tuned({"align.reward=ended"}, "grpo").config.train.steps, 1000);
}

TEST_F(RunLengthTest, ARunThatGoesOnFromStatesIsNoTuning) {
  const LoadedConfig run = tuned({"model.states=states"});
  EXPECT_EQ(run.config.optim.lr, 1e-3);
  EXPECT_EQ(run.config.train.steps, 1000);
}

TEST_F(RunLengthTest, OfStepsAndEpochsTheLaterSourceCounts) {
  EXPECT_TRUE(must(load({"train.epochs=2"}, {}, {"STRATA_TRAIN_STEPS=7"})).tree.is_auto("train.steps"));
  EXPECT_EQ(must(load({"train.steps=7"}, {}, {"STRATA_TRAIN_EPOCHS=2"})).config.train.steps, 7);
  EXPECT_THAT(std::string(load({"train.steps=7", "train.epochs=2"}).status().message()),
              AllOf(HasSubstr("train.epochs = 2"), HasSubstr("train.steps = 7"), HasSubstr("leave one out")));
  EXPECT_THAT(std::string(load({"train.epochs=2"}, "grpo").status().message()),
              HasSubstr("train.objective = grpo samples its answers; set train.steps"));
}

TEST_F(RunLengthTest, ASequenceIsAtMostTheContextOfTheFolder) {
  const LoadedConfig run = tuned();
  EXPECT_TRUE(run.config.model.seq_is_most);
  EXPECT_EQ(run.config.model.seq, 512);
  EXPECT_FALSE(tuned({"model.seq=64"}).config.model.seq_is_most);
  EXPECT_EQ(tuned({"model.seq=64"}).config.model.seq, 64);
  EXPECT_EQ(tuned({"adapter.method=prefix", "adapter.virtual_tokens=8"}).config.model.seq, 504);
}

TEST(GroupedTest, ThousandsHaveACommaBetween) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(-1234567), "-1,234,567");
  EXPECT_EQ(grouped(-123), "-123");
  EXPECT_EQ(plural_grouped(12292, "token"), "12,292 tokens");
  EXPECT_EQ(plural_grouped(1, "token"), "1 token");
}

}  // namespace
}  // namespace strata
