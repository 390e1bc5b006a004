#include <strata/align/tasks.h>

#include <algorithm>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/config/train_config.h>
#include <strata/config/train_schema.h>

namespace strata {
namespace {

using ::testing::HasSubstr;

TrainConfig of_objective(const char* objective) {
  TrainConfig config;
  config.train.objective = objective;
  return config;
}

TEST(TasksTest, EveryObjectiveOfTheSchemaHasATask) {
  for (const char* objective : {"lm", "reward", "dpo", "ppo", "grpo"}) {
    const auto kind = task_kind(of_objective(objective), all_tasks());
    ASSERT_TRUE(kind.has_value()) << kind.status().message();
    EXPECT_EQ((*kind)->objective, objective);
  }
  std::string choices;
  for (const TaskKind& kind : all_tasks())
    choices += std::string(choices.empty() ? "" : "|") + std::string(kind.objective);
  const auto keys = train_schema().keys;
  const auto key = std::find_if(keys.begin(), keys.end(), [](const KeySpec& each) {
    return each.section == "train" && each.name == "objective";
  });
  ASSERT_NE(key, keys.end());
  EXPECT_EQ(key->choices, choices);
}

TEST(TasksTest, AProgramThatKnowsTextsAloneRefusesOtherObjectives) {
  const auto kind = task_kind(of_objective("dpo"), text_tasks());
  ASSERT_FALSE(kind.has_value());
  EXPECT_EQ(kind.status().code(), Code::unsupported);
  EXPECT_THAT(std::string(kind.status().message()),
              HasSubstr("train.objective = dpo, but this program runs lm (SessionRequest::tasks)"));
}

TEST(TasksTest, OnlyTasksThatSampleAnswersAreOfOneRank) {
  for (const TaskKind& kind : all_tasks())
    EXPECT_EQ(kind.runs_on_ranks, kind.objective != "ppo" && kind.objective != "grpo") << kind.objective;
}

}  // namespace
}  // namespace strata
