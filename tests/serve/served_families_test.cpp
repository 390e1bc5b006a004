// Texts of several clients are those of the generator whatever its layers keep of a sequence.
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "serve/served_tiny.h"

namespace strata {
namespace {

using nlohmann::json;
using test::ServedTiny;

/// A family for each kind of layer that keeps something of a sequence.
class ServedFamilyTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ServedFamilyTest, MoreTextsAtOnceThanThereArePlacesAreThoseOfTheGenerator) {
  ServedTiny tiny({.places = 2, .max_waiting = 8, .family = GetParam()});
  const std::vector<std::string> prompts = {"the cat", "on", "that mat and the other cat", "sat", "the mat",
                                            "and the", "o"};
  std::vector<std::string> texts(prompts.size());
  {
    std::vector<std::jthread> clients;
    for (std::size_t i = 0; i < prompts.size(); ++i)
      clients.emplace_back([&, i] {
        const json asked = {{"prompt", prompts[i]}, {"max_tokens", 6 + 2 * i}, {"seed", i + 1}};
        const ApiResponse response = tiny.post("/v1/completions", asked.dump());
        if (response.status == 200) texts[i] = json::parse(response.body)["choices"][0]["text"];
      });
  }
  for (std::size_t i = 0; i < prompts.size(); ++i)
    EXPECT_EQ(texts[i], tiny.generated({prompts[i], {}}, static_cast<std::int64_t>(6 + 2 * i), {}, i + 1))
        << prompts[i];
}

INSTANTIATE_TEST_SUITE_P(Families, ServedFamilyTest,
                         ::testing::Values("llama", "qwen3_5_text", "granitemoehybrid", "nemotron_h",
                                           "falcon_h1", "lfm2", "deepseek_v3"),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace strata
