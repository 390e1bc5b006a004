// Files of the usual shapes: what becomes of every key, and the configuration. The reasons are left out.
#include "ds_config/findings.h"

#include <fstream>
#include <sstream>

namespace strata {
namespace {

std::string contents(const std::string& name) {
  std::ifstream file(std::string(STRATA_DS_CONFIG_DATA) + "/" + name);
  EXPECT_TRUE(file.good()) << name;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

class SampleFileTest : public ::testing::TestWithParam<const char*> {};

TEST_P(SampleFileTest, EveryKeyBecomesWhatIsExpected) {
  const std::vector<DsFinding> findings = test::findings_of(contents(str(GetParam(), ".json")));
  std::string text;
  for (const DsFinding& one : findings) {
    EXPECT_FALSE(one.reason.empty()) << one.key;
    text += str(one.key, one.is_default ? " (default)" : "", ": ", test::text_of(one), "\n");
  }
  if (ds_config_problems(findings).is_ok()) text += "\n" + ds_config_toml(findings);
  EXPECT_EQ(text, contents(str(GetParam(), ".expected")));
}

INSTANTIATE_TEST_SUITE_P(Files, SampleFileTest,
                         ::testing::Values("hf_zero3_cpu", "zero_infinity_nvme", "bf16_zero2", "refused"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace strata
