#include <strata/align/tasks.h>

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/config/objectives.h>
#include <strata/config/train_config.h>

namespace strata {
namespace {

using ::testing::HasSubstr;

TrainConfig of_objective(std::string_view objective) {
  TrainConfig config;
  config.train.objective = objective;
  return config;
}

TEST(TasksTest, EveryObjectiveHasATaskAndThoseThatSampleRunOnOneRank) {
  EXPECT_EQ(all_tasks().size(), all_objectives().size());
  for (const Objective& objective : all_objectives()) {
    const auto kind = task_kind(of_objective(objective.name), all_tasks());
    ASSERT_TRUE(kind.has_value()) << kind.status().message();
    EXPECT_EQ((*kind)->objective, objective.name);
    EXPECT_EQ((*kind)->runs_on_ranks, objective.data != RunData::prompts);
  }
}

TEST(TasksTest, AProgramThatKnowsTextsAloneRefusesOtherObjectives) {
  const auto kind = task_kind(of_objective("dpo"), text_tasks());
  ASSERT_FALSE(kind.has_value());
  EXPECT_EQ(kind.status().code(), Code::unsupported);
  EXPECT_THAT(std::string(kind.status().message()),
              HasSubstr("train.objective = dpo, but this program runs lm (RunRequest::tasks)"));
}

}  // namespace
}  // namespace strata
