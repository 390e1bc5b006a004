// samples.txt: whatever a model says, its samples are those that were written.
#include <strata/report/samples_file.h>

#include <gtest/gtest.h>

namespace strata {
namespace {

TEST(SamplesFile, ATextThatLooksLikeAHeadingStaysPartOfItsSample) {
  const std::string text = "--- step 7 ---\nI count:\n--- step 900 ---\n\\--- step 1 ---\n--- steps\n";
  const std::string file = sample_block(3, text) + sample_block(5, "--- step 4 ---");
  const auto samples = read_samples(file);
  ASSERT_EQ(samples.size(), 2U);
  EXPECT_EQ(samples[0].step, 3);
  EXPECT_EQ(samples[0].text, text + "\n");
  EXPECT_EQ(samples[1].step, 5);
  EXPECT_EQ(samples[1].text, "--- step 4 ---\n\n");
}

TEST(SamplesFile, AResumedRunKeepsTheSamplesUpToItsStep) {
  const std::string kept = sample_block(3, "--- step 900 ---\nand so on");
  EXPECT_EQ(samples_up_to(kept + sample_block(5, "later"), 3), kept);
  EXPECT_EQ(samples_up_to(kept, 4), kept);
  EXPECT_EQ(samples_up_to(kept, 2), "");
}

}  // namespace
}  // namespace strata
