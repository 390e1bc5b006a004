// OpenAI's API without a transport.
#include <strata/serve/service.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <thread>

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
using test::events_of;
using test::message_of;
using test::ServedTiny;
using test::text_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kCompletions = "/v1/completions";
constexpr const char* kChat = "/v1/chat/completions";

TEST(ServiceTest, ATextIsWhatTheGeneratorMakesOfThePrompt) {
  ServedTiny tiny;
  const json greedy =
      body_of(tiny.post(kCompletions, R"({"prompt": "the cat", "max_tokens": 12, "temperature": 0})"));
  EXPECT_EQ(greedy["choices"][0]["text"], tiny.generated({"the cat", {}}, 12, {.temperature = 0}, 1));
  EXPECT_EQ(greedy["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(greedy["usage"]["completion_tokens"], 12);
  EXPECT_EQ(greedy["model"], "tiny");
  const json drawn = body_of(tiny.post(
      kCompletions,
      R"({"prompt": "the cat", "max_tokens": 12, "temperature": 0.8, "top_k": 40, "top_p": 0.9, "seed": 5})"));
  EXPECT_EQ(drawn["choices"][0]["text"], tiny.generated({"the cat", {}}, 12, {0.8, 40, 0.9}, 5));
}

TEST(ServiceTest, WithoutASeedEachTextIsAnother) {
  ServedTiny tiny;
  const std::string request = R"({"prompt": "the", "max_tokens": 16})";
  EXPECT_NE(body_of(tiny.post(kCompletions, request))["choices"],
            body_of(tiny.post(kCompletions, request))["choices"]);
}

TEST(ServiceTest, AStreamHasTheSameTextInPieces) {
  ServedTiny tiny;
  const std::string fields = R"("prompt": "on the mat", "max_tokens": 15, "seed": 2)";
  const json whole = body_of(tiny.post(kCompletions, str("{", fields, "}")));
  const auto events = events_of(tiny.post(
      kCompletions, str("{", fields, R"(, "stream": true, "stream_options": {"include_usage": true}})")));
  EXPECT_EQ(text_of(events), whole["choices"][0]["text"]);
  EXPECT_GT(events.size(), 5U);
  EXPECT_EQ(events.back()["usage"], whole["usage"]);
  EXPECT_EQ(events[events.size() - 2]["choices"][0]["finish_reason"], "length");
}

TEST(ServiceTest, AConversationIsAnsweredAsItsTemplateWritesIt) {
  ServedTiny tiny;
  const std::string messages = R"("messages": [{"role": "user", "content": "Who?"}])";
  const json whole = body_of(tiny.post(kChat, str("{", messages, R"(, "temperature": 0, "max_tokens": 9})")));
  const std::string text = whole["choices"][0]["message"]["content"];
  EXPECT_EQ(text, tiny.generated({{}, {{"user", "Who?"}}}, 9, {.temperature = 0}, 1));
  const auto events = events_of(
      tiny.post(kChat, str("{", messages, R"(, "temperature": 0, "max_tokens": 9, "stream": true})")));
  EXPECT_EQ(events[0]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(text_of(events), text);
  EXPECT_EQ(
      body_of(tiny.post(kChat, str("{", messages, R"(, "temperature": 0})")))["choices"][0]["finish_reason"],
      "length")
      << "without a limit it goes on until the context is full";
}

TEST(ServiceTest, SeveralPromptsAndAnswersHaveRandomNumbersOfTheirOwn) {
  ServedTiny tiny({.places = 2, .max_waiting = 8});
  const json body = body_of(
      tiny.post(kCompletions, R"({"prompt": ["the cat", "the mat"], "n": 2, "max_tokens": 10, "seed": 4})"));
  ASSERT_EQ(body["choices"].size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(body["choices"][i]["index"], i);
  EXPECT_EQ(body["choices"][0]["text"], tiny.generated({"the cat", {}}, 10, {}, 4));
  EXPECT_NE(body["choices"][0]["text"], body["choices"][1]["text"]);
  EXPECT_EQ(body["usage"]["completion_tokens"], 40);
  const auto events = events_of(tiny.post(
      kCompletions,
      R"({"prompt": ["the cat", "the mat"], "n": 2, "max_tokens": 10, "seed": 4, "stream": true})"));
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(text_of(events, i), body["choices"][i]["text"]);
}

TEST(ServiceTest, AStopTextEndsTheAnswerBeforeIt) {
  ServedTiny tiny;
  const std::string fields = R"("prompt": "cat", "max_tokens": 20, "seed": 9)";
  const std::string whole = body_of(tiny.post(kCompletions, str("{", fields, "}")))["choices"][0]["text"];
  // Some characters of the text, wherever its tokens end.
  std::size_t at = whole.size() / 2, end = at;
  while ((static_cast<unsigned char>(whole[at]) & 0xC0U) == 0x80U) ++at;
  for (end = at + 3; end < whole.size() && (static_cast<unsigned char>(whole[end]) & 0xC0U) == 0x80U;) ++end;
  const std::string stop = whole.substr(at, end - at), before = whole.substr(0, whole.find(stop));
  const std::string body = str("{", fields, ", \"stop\": [", json(stop).dump(), ", \"never there\"]}");
  const json stopped = body_of(tiny.post(kCompletions, body))["choices"][0];
  EXPECT_EQ(stopped["text"], before);
  EXPECT_EQ(stopped["finish_reason"], "stop");
  json streamed = json::parse(body);
  streamed["stream"] = true;
  EXPECT_EQ(text_of(events_of(tiny.post(kCompletions, streamed.dump()))), before);
}

TEST(ServiceTest, AnEchoWithScoresIsWhatLmEvalReads) {
  ServedTiny tiny;
  const std::vector<std::int32_t> ids = tiny.tokenizer().encode("the cat sat on that mat and the other");
  const json body = body_of(tiny.post(
      kCompletions,
      json{{"prompt", ids}, {"max_tokens", 1}, {"temperature", 0}, {"logprobs", 1}, {"echo", true}}.dump()));
  const json choice = body["choices"][0], scores = choice["logprobs"];
  EXPECT_EQ(choice["text"].get<std::string>().substr(0, 37), "the cat sat on that mat and the other");
  ASSERT_EQ(scores["token_logprobs"].size(), ids.size() + 1);
  EXPECT_EQ(scores["token_logprobs"][0], nullptr);
  for (std::size_t i = 1; i <= ids.size(); ++i) {
    const double logprob = scores["token_logprobs"][i], best = scores["top_logprobs"][i].front();
    EXPECT_LT(logprob, 0);
    if (i == ids.size()) {
      EXPECT_EQ(scores["top_logprobs"][i].size(), 1U) << "it was the most likely one";
    }
    double most = best;
    for (const json& each : scores["top_logprobs"][i]) most = std::max(most, each.get<double>());
    EXPECT_LE(logprob, most);
  }
  EXPECT_EQ(scores["text_offset"][1], tiny.tokenizer().token_bytes(ids[0]));
  const json alone = body_of(tiny.post(
      kCompletions, json{{"prompt", ids}, {"max_tokens", 0}, {"logprobs", 1}, {"echo", true}}.dump()));
  EXPECT_EQ(alone["choices"][0]["text"], "the cat sat on that mat and the other");
  EXPECT_EQ(alone["choices"][0]["logprobs"]["token_logprobs"].size(), ids.size());
}

TEST(ServiceTest, AScoreIsThatOfTheTokenAfterTheTextBeforeIt) {
  ServedTiny tiny;
  const std::vector<std::int32_t> ids = tiny.tokenizer().encode("the cat sat");
  const auto ask = [&](const std::vector<std::int32_t>& prompt, int tokens, bool echo) {
    return body_of(tiny.post(
        kCompletions,
        json{{"prompt", prompt}, {"max_tokens", tokens}, {"temperature", 0}, {"logprobs", 20}, {"echo", echo}}
            .dump()))["choices"][0]["logprobs"];
  };
  const json echoed = ask(ids, 0, true);
  const json after = ask({ids.begin(), ids.end() - 1}, 1, false);
  EXPECT_EQ(after["top_logprobs"][0].size(), 20U);
  for (const auto& [token, logprob] : echoed["top_logprobs"].back().items())
    if (after["top_logprobs"][0].contains(token)) {
      EXPECT_NEAR(after["top_logprobs"][0][token].get<double>(), logprob.get<double>(), 1e-5) << token;
    }
}

TEST(ServiceTest, AConversationHasTheScoresThatACompletionHas) {
  ServedTiny tiny;
  const json options = {{"max_tokens", 3}, {"temperature", 0}, {"top_logprobs", 2}, {"logprobs", true}};
  json asked = options;
  asked["messages"] = json::array({{{"role", "user"}, {"content", "cat"}}});
  const json chat = body_of(tiny.post(kChat, asked.dump()));
  const json tokens = chat["choices"][0]["logprobs"]["content"];
  const PromptTokens prompt =
      must(encode_prompt(tiny.tokenizer(), {{}, {{"user", "cat"}}}, ChatTemplate{}, {}));
  const json same = {{"prompt", prompt.ids}, {"max_tokens", 3}, {"temperature", 0}, {"logprobs", 2}};
  const json scores = body_of(tiny.post(kCompletions, same.dump()))["choices"][0]["logprobs"];
  ASSERT_EQ(tokens.size(), chat["usage"]["completion_tokens"]);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_EQ(tokens[i]["token"], scores["tokens"][i]);
    EXPECT_EQ(tokens[i]["logprob"], scores["token_logprobs"][i]);
    EXPECT_EQ(tokens[i]["top_logprobs"].size(), 2U);
  }
}

TEST(ServiceTest, APromptMayHaveSpecialTokensUnlessTheyArePlainText) {
  ServedModel model{.name = "m",
                    .adapters = {},
                    .tokenizer = test::small_tokenizer(),
                    .chat = ChatTemplate{},
                    .stop_ids = {},
                    .context = 48,
                    .choose_adapter = {}};
  const std::int32_t end = model.tokenizer.markers().end;
  const std::string text = "cat" + model.tokenizer.token(end);
  EXPECT_EQ(encode_input(model, text)->ids.back(), end);
  model.in_prompts = SpecialTokens::as_text;
  EXPECT_NE(encode_input(model, text)->ids.back(), end);
}

TEST(ServiceTest, APromptThatBeginsWithBosGetsNoSecondOne) {
  TokenizerSpec spec = test::small_tokenizer().spec();
  spec.prefix = {test::small_tokenizer().markers().end};
  const ServedModel model{.name = "m",
                          .adapters = {},
                          .tokenizer = must(Tokenizer::create(spec)),
                          .chat = ChatTemplate{},
                          .stop_ids = {},
                          .context = 48,
                          .choose_adapter = {}};
  const auto without = encode_input(model, std::string("cat")),
             with = encode_input(model, std::string("<|endoftext|>cat"));
  EXPECT_EQ(without->ids, with->ids);
  EXPECT_EQ(without->ids.front(), spec.prefix.front());
  EXPECT_EQ(without->n_unwritten, 1U);
  EXPECT_EQ(with->n_unwritten, 0U);
}

TEST(ServiceTest, OffsetsCountTheSpecialTokensThatAPromptShows) {
  ServedTiny tiny;
  const Tokenizer& tokenizer = tiny.tokenizer();
  std::vector<std::int32_t> ids = tokenizer.encode("cat");
  const std::size_t n = ids.size();
  ids.push_back(tokenizer.markers().end);
  ids.push_back(tokenizer.encode("s").front());
  const json choice = body_of(tiny.post(
      kCompletions,
      json{{"prompt", ids}, {"max_tokens", 0}, {"logprobs", 1}, {"echo", true}}.dump()))["choices"][0];
  const std::string special = tokenizer.token(tokenizer.markers().end);
  EXPECT_EQ(choice["text"], str("cat", special, "s"));
  EXPECT_EQ(choice["logprobs"]["text_offset"][n], 3);
  EXPECT_EQ(choice["logprobs"]["text_offset"][n + 1], 3 + special.size());
}

TEST(ServiceTest, RequestsThatCannotBeAnsweredSayWhy) {
  ServedTiny tiny;
  EXPECT_EQ(message_of(tiny.post(kCompletions, R"({"prompt": "a", "model": "tinny"})"), 404),
            "there is no model 'tinny' here; GET /v1/models lists the names; did you mean 'tiny'?");
  EXPECT_THAT(message_of(tiny.post(kCompletions, R"({"prompt": ""})"), 400),
              HasSubstr("the prompt is empty"));
  EXPECT_EQ(message_of(tiny.post(kCompletions, R"({"prompt": [1, 287]})"), 400),
            str("token 287 is out of range; the vocabulary has ", tiny.tokenizer().vocab_size(), " tokens"));
  const ApiResponse longer = tiny.post(kCompletions, json{{"prompt", std::vector<int>(49, 1)}}.dump());
  EXPECT_THAT(message_of(longer, 400), HasSubstr("the prompt has 49 tokens, but the context is 48"));
  EXPECT_EQ(json::parse(longer.body)["error"]["code"], "context_length_exceeded");
  EXPECT_THAT(message_of(tiny.post(kCompletions, R"({"prompt": "a", "n": 7})"), 400),
              HasSubstr("asks for 7 answers; this server takes at most 6"));
  EXPECT_THAT(message_of(tiny.post(kCompletions, "{"), 400), HasSubstr("not the JSON"));
  EXPECT_THAT(message_of(tiny.get("/v1/nothing"), 404), HasSubstr("there is no /v1/nothing here"));
  EXPECT_EQ(message_of(tiny.get(kChat), 405), "/v1/chat/completions needs POST");
  EXPECT_THAT(message_of(tiny.get("/v1/models/other"), 404), HasSubstr("no model 'other'"));
  EXPECT_EQ(message_of(tiny.post("/v1/embeddings", R"({"input": "a"})"), 404),
            "the model 'tiny' writes text: this server makes no embeddings, so there is no /v1/embeddings");
}

TEST(ServiceTest, ModelsHealthAndFiguresAreThere) {
  ServedTiny tiny;
  EXPECT_EQ(body_of(tiny.get("/v1/models"))["data"][0]["id"], "tiny");
  EXPECT_EQ(body_of(tiny.get("/v1/models/tiny"))["object"], "model");
  EXPECT_EQ(body_of(tiny.get("/health"))["status"], "ok");
  (void)tiny.post(kCompletions, R"({"prompt": "cat", "max_tokens": 3, "temperature": 0})");
  (void)tiny.post(kCompletions, R"({"prompt": "cat", "max_tokens": -3})");
  while (tiny.service.load().done.tokens < 3) std::this_thread::yield();  // counted after the pass
  const ApiResponse figures = tiny.get("/metrics");
  EXPECT_THAT(figures.content_type, HasSubstr("text/plain"));
  EXPECT_THAT(
      figures.body,
      AllOf(HasSubstr("strata_serve_requests_total{endpoint=\"/v1/completions\",status=\"200\"} 1\n"),
            HasSubstr("strata_serve_requests_total{endpoint=\"/v1/completions\",status=\"400\"} 1\n"),
            HasSubstr("strata_serve_queue_length 0\n"), HasSubstr("strata_serve_generated_tokens_total 3\n"),
            HasSubstr("# TYPE strata_serve_active_sequences gauge\n")));
}

TEST(ServiceTest, FiguresHaveVllmsNamesToo) {
  ServedTiny tiny;
  (void)tiny.post(kCompletions, R"({"prompt": "cat", "max_tokens": 3, "n": 2, "temperature": 0})");
  while (tiny.service.load().done.tokens < 6) std::this_thread::yield();  // counted after the pass
  const auto prompt_tokens = 2 * tiny.tokenizer().encode("cat").size();
  EXPECT_THAT(
      tiny.get("/metrics").body,
      AllOf(HasSubstr("vllm:num_requests_running{model_name=\"tiny\"} 0\n"),
            HasSubstr("vllm:num_requests_waiting{model_name=\"tiny\"} 0\n"),
            HasSubstr(str("vllm:prompt_tokens_total{model_name=\"tiny\"} ", prompt_tokens, "\n")),
            HasSubstr("vllm:generation_tokens_total{model_name=\"tiny\"} 6\n"),
            HasSubstr("vllm:request_success_total{finished_reason=\"length\",model_name=\"tiny\"} 2\n"),
            HasSubstr("vllm:request_success_total{finished_reason=\"abort\",model_name=\"tiny\"} 0\n"),
            HasSubstr("# TYPE vllm:time_to_first_token_seconds histogram\n"),
            HasSubstr("vllm:time_to_first_token_seconds_bucket{le=\"+Inf\",model_name=\"tiny\"} 2\n"),
            HasSubstr("vllm:time_to_first_token_seconds_count{model_name=\"tiny\"} 2\n"),
            HasSubstr("vllm:e2e_request_latency_seconds_count{model_name=\"tiny\"} 2\n")));
}

TEST(ServiceTest, AHistogramCountsWhatIsUpToEachLimit) {
  constexpr double kLimits[] = {0.5, 2};
  TimeHistogram histogram(kLimits);
  for (const double seconds : {0.25, 0.5, 1.0, 8.0}) histogram.add(seconds);
  EXPECT_EQ(histogram.text("t", "m=\"x\""),
            "t_bucket{le=\"0.5\",m=\"x\"} 2\nt_bucket{le=\"2\",m=\"x\"} 3\n"
            "t_bucket{le=\"+Inf\",m=\"x\"} 4\nt_sum{m=\"x\"} 9.75\nt_count{m=\"x\"} 4\n");
}

TEST(ServiceTest, WhoHasReadAStreamFindsItInTheFigures) {
  ServedTiny tiny;
  const ApiResponse stream = tiny.post(kCompletions, R"({"prompt": "cat", "max_tokens": 3, "stream": true})");
  std::string events;
  while (events.find("[DONE]") == std::string::npos) events += stream.next().value_or("[DONE]");
  EXPECT_THAT(tiny.get("/metrics").body,
              HasSubstr("strata_serve_requests_total{endpoint=\"/v1/completions\",status=\"200\"} 1\n"));
}

TEST(ServiceTest, AFullQueueIsSaidWithATimeToWait) {
  ServedTiny tiny({.places = 1, .max_waiting = 1, .context = 48, .runs = false});
  std::vector<std::jthread> clients;
  for (int i = 0; i < 2; ++i)
    clients.emplace_back([&] { (void)tiny.post(kCompletions, R"({"prompt": "cat", "max_tokens": 4})"); });
  while (tiny.service.load().waiting < 2) std::this_thread::yield();
  const ApiResponse refused = tiny.post(kCompletions, R"({"prompt": "cat"})");
  EXPECT_THAT(message_of(refused, 429), HasSubstr("too many requests wait already"));
  EXPECT_GT(refused.retry_after_s, 0);
  tiny.start();
}

std::function<ClientState()> client_of(const std::atomic<bool>& connected) {
  return [&] { return connected ? ClientState::there : ClientState::left; };
}

TEST(ServiceTest, AClientThatSendsNoMoreGetsItsAnswerAfterASpace) {
  ServedTiny tiny;
  const std::string body = R"({"prompt": "cat", "max_tokens": 4, "temperature": 0})";
  const ApiResponse plain = tiny.post(kCompletions, body);
  const ApiResponse half =
      tiny.service.handle({"POST", kCompletions, body, [] { return ClientState::sends_no_more; }});
  ASSERT_TRUE(half.next);
  EXPECT_EQ(half.next(), " ") << "sending it tells whether the client has left";
  EXPECT_EQ(json::parse(*half.next())["choices"], json::parse(plain.body)["choices"]);
  EXPECT_EQ(half.next(), std::nullopt);
}

TEST(ServiceTest, AClientThatHasLeftWhileItWaitedIsNoticedWhenItIsAsked) {
  ServedTiny tiny({.places = 1, .max_waiting = 4, .context = 48, .runs = false});
  for (const char* body : {R"({"prompt": "cat"})", R"({"prompt": "cat", "stream": true})"}) {
    auto state = ClientState::sends_no_more;
    const ApiResponse half = tiny.service.handle({"POST", kCompletions, body, [&] { return state; }});
    ASSERT_TRUE(half.next);
    EXPECT_TRUE(half.next());
    state = ClientState::left;
    EXPECT_EQ(half.next(), std::nullopt);
  }
}

TEST(ServiceTest, AClientThatLeavesFreesItsPlace) {
  ServedTiny tiny({.places = 1, .max_waiting = 0});
  std::atomic<bool> connected = true;
  const std::string body = R"({"prompt": "cat", "max_tokens": 40, "stream": true})";
  {
    const ApiResponse stream = tiny.service.handle({"POST", kCompletions, body, client_of(connected)});
    EXPECT_TRUE(stream.next());
  }
  ApiResponse next = tiny.post(kCompletions, R"({"prompt": "cat", "max_tokens": 2})");
  while (next.status == 429) next = tiny.post(kCompletions, R"({"prompt": "cat", "max_tokens": 2})");
  EXPECT_EQ(next.status, 200);
  EXPECT_THAT(tiny.get("/metrics").body, HasSubstr("status=\"499\"} 1\n"));
  connected = false;
  ServedTiny idle({.places = 1, .max_waiting = 1, .context = 48, .runs = false});
  EXPECT_EQ(idle.service.handle({"POST", kCompletions, R"({"prompt": "cat"})", client_of(connected)}).status,
            499);
}

}  // namespace
}  // namespace strata
