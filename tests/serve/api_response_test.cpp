// Tests the answers to clients, in the form that OpenAI's clients parse.
#include <strata/serve/api_response.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "answer/token_scores.h"
#include "serve/served_tiny.h"

namespace strata {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::StartsWith;

const Tokenizer& tokenizer() {
  static const Tokenizer made = test::small_tokenizer();
  return made;
}
ResponseWriter writer(bool is_chat, bool with_scores = false) {
  return {{is_chat, "id-1", 1700000000, "m", with_scores}, tokenizer()};
}
json event_json(const std::string& event) {
  EXPECT_THAT(event, StartsWith("data: "));
  EXPECT_EQ(event.substr(event.size() - 2), "\n\n");
  EXPECT_EQ(event.find('\n'), event.size() - 2) << "an event is one line";
  return json::parse(event.substr(6));
}

TEST(ApiResponseTest, ACompletionHasItsChoicesAndTheNumbersOfTokens) {
  const json body =
      json::parse(writer(false).whole({{0, " one", {}, "stop"}, {1, " two", {}, "length"}}, {5, 7}));
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["id"], "id-1");
  EXPECT_EQ(body["created"], 1700000000);
  EXPECT_EQ(body["model"], "m");
  EXPECT_EQ(body["choices"][0],
            (json{{"text", " one"}, {"index", 0}, {"logprobs", nullptr}, {"finish_reason", "stop"}}));
  EXPECT_EQ(body["choices"][1]["finish_reason"], "length");
  EXPECT_EQ(body["usage"], (json{{"prompt_tokens", 5}, {"completion_tokens", 7}, {"total_tokens", 12}}));
}

TEST(ApiResponseTest, AnAnswerInAConversationIsAMessageOrDeltas) {
  const json body = json::parse(writer(true).whole({{0, "Hi", {}, "stop"}}, {}));
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(body["choices"][0]["message"]["content"], "Hi");
  const json begin = event_json(writer(true).begin_event(2));
  EXPECT_EQ(begin["object"], "chat.completion.chunk");
  EXPECT_EQ(begin["choices"][0]["index"], 2);
  EXPECT_EQ(begin["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(event_json(writer(true).event({2, "a\n", {}, ""}))["choices"][0]["delta"],
            (json{{"content", "a\n"}}));
  const json end = event_json(writer(true).event({2, "", {}, "stop"}))["choices"][0];
  EXPECT_EQ(end["delta"], json::object());
  EXPECT_EQ(end["finish_reason"], "stop");
}

TEST(ApiResponseTest, ScoresOfAConversationAreThoseOfItsTokensWithTheirBytes) {
  const ResponseWriter chat({true, "id-1", 1700000000, "m", true, 1}, tokenizer());
  const TokenScore score{'a', -0.5, {{'b', -0.25}, {0xE2, -0.375}, {'a', -0.5}}, 0};
  const json scores = json::parse(chat.whole({{0, "a", {score}, "stop"}}, {}))["choices"][0]["logprobs"];
  EXPECT_EQ(scores["refusal"], nullptr);
  EXPECT_EQ(scores["content"][0]["token"], "a");
  EXPECT_EQ(scores["content"][0]["logprob"], -0.5);
  EXPECT_EQ(scores["content"][0]["bytes"], json{97});
  EXPECT_EQ(scores["content"][0]["top_logprobs"],
            json::array({{{"token", "b"}, {"logprob", -0.25}, {"bytes", {98}}}}));
  EXPECT_EQ(event_json(chat.event({0, "a", {score}, ""}))["choices"][0]["logprobs"], scores);
  EXPECT_EQ(event_json(chat.event({0, "", {}, "stop"}))["choices"][0]["logprobs"], nullptr);
}

TEST(ApiResponseTest, EventsOfACompletionAndTheLastOneWithTheNumbers) {
  EXPECT_EQ(writer(false).begin_event(0), "");
  const json event = event_json(writer(false).event({1, "x", {}, ""}));
  EXPECT_EQ(event["choices"][0],
            (json{{"text", "x"}, {"index", 1}, {"logprobs", nullptr}, {"finish_reason", nullptr}}));
  const json usage = event_json(writer(false).usage_event({2, 3}));
  EXPECT_EQ(usage["choices"], json::array());
  EXPECT_EQ(usage["usage"]["total_tokens"], 5);
}

TEST(ApiResponseTest, ScoresAreFourArraysOfOneLength) {
  const TokenScore first{'a', std::nullopt, {}, 0}, second{'b', -0.5, {{'b', -0.5}, {'c', -1.5}}, 1};
  const json scores = json::parse(
      writer(false, true).whole({{0, "ab", {first, second}, "stop"}}, {}))["choices"][0]["logprobs"];
  EXPECT_EQ(scores["tokens"], (json{"a", "b"}));
  EXPECT_EQ(scores["token_logprobs"], (json{nullptr, -0.5}));
  EXPECT_EQ(scores["top_logprobs"], (json{nullptr, {{"b", -0.5}, {"c", -1.5}}}));
  EXPECT_EQ(scores["text_offset"], (json{0, 1}));
}

TEST(ApiResponseTest, ATokenThatIsNoTextByItselfHasItsBytes) {
  EXPECT_EQ(token_text(tokenizer(), 'a'), "a");
  EXPECT_EQ(token_text(tokenizer(), 0xE2), "bytes:\\xe2");
  EXPECT_EQ(token_text(tokenizer(), 100000), "token:100000");
}

TEST(ApiResponseTest, ModelsAreAList) {
  const json list = json::parse(models_json({"base", "law"}, 3));
  EXPECT_EQ(list["object"], "list");
  EXPECT_EQ(list["data"][1],
            (json{{"id", "law"}, {"object", "model"}, {"created", 3}, {"owned_by", "strata"}}));
}

TEST(TokenScoreTest, HasTheMostLikelyTokensAndTheTokenItself) {
  const std::vector<float> logits = {1, 3, 2, 3, 0};
  const TokenScore score = detail::score_token(logits, 4, 3);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  EXPECT_NEAR(*score.logprob, 0 - std::log(sum), 1e-6);
  std::vector<std::int32_t> ids;
  for (const auto& [id, logprob] : score.top) {
    ids.push_back(id);
    EXPECT_NEAR(logprob, static_cast<double>(logits[static_cast<std::size_t>(id)]) - std::log(sum), 1e-6);
  }
  EXPECT_THAT(ids, ElementsAre(1, 3, 2, 4)) << "of equal ones the lower id first";
  EXPECT_EQ(*score.logprob, score.top.back().second);
  const TokenScore best = detail::score_token(logits, 1, 1);
  EXPECT_EQ(best.top.size(), 1U);
  EXPECT_EQ(*best.logprob, best.top[0].second)
      << "equal, so that a client sees that it is the most likely one";
}

}  // namespace
}  // namespace strata
