// Tests the values that a key implies for others that nobody has set.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/config/load_config.h>

namespace strata {
namespace {

using ::testing::HasSubstr;

Result<LoadedConfig> loaded(std::vector<std::string> items) {
  return load_config({.items = std::move(items), .preset = "austen-tiny"});
}

TEST(ImpliedValuesTest, GaloreHasNoWeightDecayUnlessItIsGiven) {
  const LoadedConfig run = must(loaded({"optim.name=galore"}));
  EXPECT_EQ(run.config.optim.weight_decay, 0);
  EXPECT_EQ(run.tree.entry("optim.weight_decay").origin, "optim.name = galore");
  EXPECT_THAT(std::string(loaded({"optim.name=galore", "optim.weight_decay=0.1"}).status().message()),
              HasSubstr("optim.weight_decay = 0.1, but optim.name is galore"));
}

TEST(ImpliedValuesTest, ZeroOneAddsGradientsOnceUnlessItIsToldToAddEach) {
  EXPECT_EQ(must(loaded({"parallel.zero=1"})).config.parallel.reduce, "once");
  EXPECT_THAT(std::string(loaded({"parallel.zero=1", "parallel.reduce=each"}).status().message()),
              HasSubstr("parallel.reduce is each (argument"));
}

}  // namespace
}  // namespace strata
