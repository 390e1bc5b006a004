#include "verbs/verify_variants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/config/key_facts.h>

namespace strata::cli {
namespace {

bool is_set(const std::string& key) {
  for (const VerifyVariant& variant : verify_variants())
    for (const std::string& assignment : variant.overrides)
      if (assignment.starts_with(key + "=") && assignment != key + "=auto") return true;
  return false;
}

TEST(VerifyVariantsTest, EveryKeyThatAPlanDecidesForOneRankIsSetByAVariant) {
  std::vector<std::string> forgotten;
  for (const std::string& key : planned_keys())
    if (!key.starts_with("parallel.") && !is_set(key)) forgotten.push_back(key);
  EXPECT_THAT(forgotten, ::testing::IsEmpty());
}

}  // namespace
}  // namespace strata::cli
