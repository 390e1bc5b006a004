// Answers that are shaped by penalties, a bias, or a form that they must have.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <strata/runtime/str.h>

#include "serve/api_answers.h"
#include "serve/served_tiny.h"

namespace strata {
namespace {

using nlohmann::json;
using test::body_of;
using test::message_of;
using test::ServedTiny;

constexpr const char *kTexts = "/v1/completions", *kTalks = "/v1/chat/completions";

TEST(ShapedAnswersTest, PenaltiesAndBiasShapeTheTextAndNotItsScores) {
  ServedTiny tiny;
  const auto asked = [&](const std::string& more) {
    return body_of(
        tiny.post(kTexts, str(R"({"prompt": "the cat", "max_tokens": 12, "temperature": 0, "logprobs": 1, )",
                              more, "}")))["choices"][0];
  };
  const json plain = asked(R"("min_p": 0)");
  EXPECT_EQ(asked(R"("repetition_penalty": 50)")["text"],
            tiny.generated({"the cat", {}}, 12, {.temperature = 0, .repetition_penalty = 50}, 1));
  EXPECT_NE(asked(R"("repetition_penalty": 50)")["text"], plain["text"]);
  const json same = asked(R"("logit_bias": {"65": 100})");
  EXPECT_EQ(same["text"], std::string(12, tiny.tokenizer().decode(std::vector{65})->front()));
  EXPECT_EQ(same["logprobs"]["top_logprobs"][0][plain["logprobs"]["tokens"][0].get<std::string>()],
            plain["logprobs"]["token_logprobs"][0])
      << "the model's own most likely token";
  EXPECT_EQ(message_of(tiny.post(kTexts, R"({"prompt": "a", "logit_bias": {"287": 1}})"), 400),
            str("'logit_bias' has token 287, which is out of range; the vocabulary has ",
                tiny.tokenizer().vocab_size(), " tokens"));
}

TEST(ShapedAnswersTest, AnAnswerThatMustBeAJsonObjectIsOneAndEndsThere) {
  ServedTiny tiny;
  json asked = json::parse(R"({"response_format": {"type": "json_object"}, "max_tokens": 44})");
  int n_whole = 0;
  for (int seed = 0; seed < 6; ++seed) {
    asked["seed"] = seed;
    // A model with random weights closes what it opens if it likes to.
    for (const char* text : {"\"", "}"})
      asked["logit_bias"][std::to_string(tiny.tokenizer().encode(text).front())] = 8 * seed;
    asked.erase("prompt");
    json chat = asked;
    chat["messages"] = json::array({{{"role", "user"}, {"content", "c"}}});
    asked["prompt"] = "cat";
    const json choice = body_of(tiny.post(kTexts, asked.dump()))["choices"][0];
    const std::string text = choice["text"];
    EXPECT_EQ(choice["finish_reason"] == "stop", json::accept(text)) << text;
    const json said = body_of(tiny.post(kTalks, chat.dump()))["choices"][0];
    const std::string content = said["message"]["content"];
    EXPECT_EQ(said["finish_reason"] == "stop", json::accept(content)) << content;
    n_whole += choice["finish_reason"] == "stop" ? 1 : 0;
  }
  EXPECT_GT(n_whole, 0);
  EXPECT_LT(n_whole, 6) << "and others were cut";
}

}  // namespace
}  // namespace strata
