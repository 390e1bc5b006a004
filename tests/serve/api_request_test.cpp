// Tests the requests of clients, and how those that cannot be honoured are refused.
#include <strata/serve/api_request.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <strata/runtime/rng.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Ids = std::vector<std::int32_t>;

CompletionRequest completion(const std::string& body) {
  auto request = parse_completion_request(body);
  EXPECT_TRUE(request.has_value()) << request.error().message;
  return request.value_or(CompletionRequest{});
}
ChatRequest conversation(const std::string& body) {
  auto request = parse_chat_request(body);
  EXPECT_TRUE(request.has_value()) << request.error().message;
  return request.value_or(ChatRequest{});
}
/// The message of the error about `fields`, which are added to a request.
ApiError refused(const std::string& fields) {
  const auto request = parse_completion_request(str(R"({"prompt": "a", )", fields, "}"));
  EXPECT_FALSE(request.has_value()) << fields;
  return request.has_value() ? ApiError{} : request.error();
}
ApiError refused_chat(const std::string& body) {
  const auto request = parse_chat_request(body);
  EXPECT_FALSE(request.has_value()) << body;
  return request.has_value() ? ApiError{} : request.error();
}
ApiError refused_body(const std::string& body) {
  const auto request = parse_completion_request(body);
  EXPECT_FALSE(request.has_value()) << body;
  return request.has_value() ? ApiError{} : request.error();
}

TEST(ApiRequestTest, WhatARequestLeavesOutHasOpenAisDefaults) {
  const CompletionRequest request =
      completion(R"({"prompt": "Once", "model": null, "stop": null, "seed": null})");
  EXPECT_EQ(std::get<std::string>(request.prompts.at(0)), "Once");
  EXPECT_EQ(request.options.model, std::nullopt);
  EXPECT_EQ(request.options.max_tokens, std::nullopt);
  EXPECT_EQ(request.options.sampling.temperature, 1.0);
  EXPECT_EQ(request.options.sampling.top_p, 1.0);
  EXPECT_EQ(request.options.sampling.top_k, 0);
  EXPECT_EQ(request.options.seed, std::nullopt);
  EXPECT_THAT(request.options.stop, IsEmpty());
  EXPECT_EQ(request.options.n, 1);
  EXPECT_FALSE(request.options.stream || request.echo || request.logprobs);
}

TEST(ApiRequestTest, EveryFieldIsRead) {
  const CompletionRequest request = completion(
      R"({"model": "m", "prompt": ["a", "b"], "max_tokens": 7, "temperature": 0.5, "top_p": 0.25, "top_k": 3,
          "seed": -1, "stop": ["x", "y"], "n": 2, "best_of": 2, "echo": true, "logprobs": 5, "stream": true,
          "stream_options": {"include_usage": true}, "user": "me", "frequency_penalty": 0.0, "logit_bias": {}})");
  EXPECT_THAT(request.prompts, SizeIs(2));
  EXPECT_EQ(request.options.model, "m");
  EXPECT_EQ(request.options.max_tokens, 7);
  EXPECT_EQ(request.options.sampling.temperature, 0.5);
  EXPECT_EQ(request.options.sampling.top_p, 0.25);
  EXPECT_EQ(request.options.sampling.top_k, 3);
  EXPECT_EQ(request.options.seed, ~std::uint64_t{0});
  EXPECT_THAT(request.options.stop, ElementsAre("x", "y"));
  EXPECT_EQ(request.options.n, 2);
  EXPECT_EQ(request.logprobs, 5);
  EXPECT_TRUE(request.echo && request.options.stream && request.options.include_usage);
}

TEST(ApiRequestTest, APromptIsATextOrTokensOrSeveralOfEither) {
  EXPECT_THAT(completion(R"({"prompt": [1, 2]})").prompts, ElementsAre(PromptInput(Ids{1, 2})));
  EXPECT_THAT(completion(R"({"prompt": [[1], [2, 3]]})").prompts,
              ElementsAre(PromptInput(Ids{1}), PromptInput(Ids{2, 3})));
  EXPECT_EQ(completion(R"({"prompt": ["a", [4]]})").prompts[1], PromptInput(Ids{4}));
  for (const char* bad :
       {"[]", "[[]]", "[1, \"a\"]", "[-1]", "[1.5]", "[3000000000]", "{}", "7", "[null]", "[[[1]]]"})
    EXPECT_THAT(refused_body(str(R"({"prompt": )", bad, "}")).message,
                HasSubstr("'prompt' must be a string, an array"))
        << bad;
  EXPECT_EQ(refused_body(R"({"max_tokens": 3})").message, "'prompt' is missing");
}

TEST(ApiRequestTest, AConversationHasRolesAndTextsOrPartsOfText) {
  const ChatRequest request = conversation(
      R"({"messages": [{"role": "developer", "content": "Be brief"},
          {"role": "user", "content": [{"type": "text", "text": "Who "}, {"type": "text", "text": "is it?"}]},
          {"role": "assistant", "content": "I", "refusal": null, "tool_calls": [], "annotations": []},
          {"role": "user", "content": "And?"}], "max_completion_tokens": 4, "response_format": {"type": "text"}})");
  ASSERT_THAT(request.messages, SizeIs(4));
  EXPECT_EQ(request.messages[0].role, "system");
  EXPECT_EQ(request.messages[1].content, "Who is it?");
  EXPECT_EQ(request.options.max_tokens, 4);
  EXPECT_EQ(
      conversation(R"({"messages": [{"role": "user", "content": ""}], "max_tokens": 9})").options.max_tokens,
      9);
}

TEST(ApiRequestTest, AConversationCanGiveItsTemplateArguments) {
  const auto arguments = [](const std::string& more) {
    return parse_chat_request(R"({"messages": [{"role": "user", "content": "x"}], )" + more + "}")
        ->template_arguments;
  };
  EXPECT_EQ(arguments(R"("chat_template_kwargs": {"enable_thinking": false})"),
            R"({"enable_thinking":false})");
  EXPECT_EQ(arguments(R"("enable_thinking": true)"), R"({"enable_thinking":true})");
  EXPECT_EQ(arguments(R"("chat_template_kwargs": {})"), "");
  const auto both = parse_chat_request(
      R"({"messages": [{"role": "user", "content": "x"}], "enable_thinking": true,
          "chat_template_kwargs": {"enable_thinking": false}})");
  ASSERT_FALSE(both.has_value());
  EXPECT_THAT(both.error().message, HasSubstr("is in 'chat_template_kwargs', too"));
}

TEST(ApiRequestTest, TheNameOfAParticipantIsAccepted) {
  const ChatRequest request =
      conversation(R"({"messages": [{"role": "user", "name": "Ann", "content": "Tea?"}]})");
  EXPECT_EQ(request.messages.at(0).content, "Tea?");
}

TEST(ApiRequestTest, AConversationCanAskForScores) {
  const auto asked = [](const std::string& fields) {
    return conversation(str(R"({"messages": [{"role": "user", "content": "Tea?"}])", fields, "}")).logprobs;
  };
  EXPECT_EQ(asked(""), std::nullopt);
  EXPECT_EQ(asked(R"(, "logprobs": false, "top_logprobs": 0)"), std::nullopt);
  EXPECT_EQ(asked(R"(, "logprobs": true)"), 0);
  EXPECT_EQ(asked(R"(, "logprobs": true, "top_logprobs": 5)"), 5);
  EXPECT_THAT(refused_chat(R"({"messages": [{"role": "user", "content": "a"}], "top_logprobs": 5})").message,
              HasSubstr("'top_logprobs' needs 'logprobs': true"));
}

TEST(ApiRequestTest, AWholeNumberMayBeWrittenWithAPoint) {
  const CompletionRequest request =
      completion(R"({"prompt": [1.0, 2e0], "max_tokens": 4.0, "n": 1e0, "seed": -3.0, "logprobs": 2.0})");
  EXPECT_EQ(request.options.max_tokens, 4);
  EXPECT_EQ(std::get<Ids>(request.prompts.at(0)), (Ids{1, 2}));
  EXPECT_EQ(request.options.seed, static_cast<std::uint64_t>(-3));
  EXPECT_EQ(request.logprobs, 2);
  EXPECT_THAT(refused(R"("max_tokens": 4.5)").message, HasSubstr("'max_tokens' is 4.5; it must be a whole"));
  EXPECT_THAT(refused(R"("seed": 1e300)").message, HasSubstr("'seed' is 1e+300; it must be a whole"));
}

TEST(ApiRequestTest, PenaltiesAndBiasAreRead) {
  const std::string fields =
      R"("min_p": 0.1, "presence_penalty": -1.5, "frequency_penalty": 2, "repetition_penalty": 1.2,
         "logit_bias": {"0": -100, "271": 0.5})";
  const SamplingOptions sampling = completion(str(R"({"prompt": "a", )", fields, "}")).options.sampling;
  EXPECT_EQ(sampling.min_p, 0.1);
  EXPECT_EQ(sampling.presence_penalty, -1.5);
  EXPECT_EQ(sampling.frequency_penalty, 2);
  EXPECT_EQ(sampling.repetition_penalty, 1.2);
  ASSERT_THAT(sampling.logit_bias, SizeIs(2));
  EXPECT_EQ(sampling.logit_bias[1].id, 271);
  EXPECT_EQ(sampling.logit_bias[1].bias, 0.5);
  EXPECT_EQ(conversation(str(R"({"messages": [{"role": "user", "content": "a"}], )", fields, "}"))
                .options.sampling.repetition_penalty,
            1.2);
  const SamplingOptions none = completion(R"({"prompt": "a", "logit_bias": {}})").options.sampling;
  EXPECT_THAT(none.logit_bias, IsEmpty());
  EXPECT_FALSE(none.penalizes());
}

TEST(ApiRequestTest, PenaltiesAndBiasOutOfRangeAreRefused) {
  EXPECT_EQ(refused(R"("min_p": 1.5)").message, "'min_p' is 1.5; it must be a number from 0 to 1");
  EXPECT_EQ(refused(R"("presence_penalty": -2.1)").message,
            "'presence_penalty' is -2.1; it must be a number from -2 to 2");
  EXPECT_EQ(refused(R"("frequency_penalty": 3)").message,
            "'frequency_penalty' is 3; it must be a number from -2 to 2");
  EXPECT_EQ(refused(R"("repetition_penalty": 0)").message,
            "'repetition_penalty' is 0; it must be above 0 and at most 100");
  EXPECT_EQ(refused(R"("logit_bias": {"5": 101})").message,
            "'logit_bias.5' is 101; it must be a number from -100 to 100");
  for (const char* key : {"-1", "05", "+5", " 5", "5.0", "cat", "", "2147483648"})
    EXPECT_THAT(refused(str(R"("logit_bias": {")", key, R"(": 1})")).message,
                HasSubstr(str("'logit_bias.", key, "' is no id of a token")));
  EXPECT_THAT(refused(R"("logit_bias": [1])").message, HasSubstr("'logit_bias' must be an object"));
  EXPECT_EQ(refused(R"("logit_bias": {"5": 1, "5": 2})").http_status, 400);
  std::string many;
  for (int id = 0; id < 1025; ++id) many += str(id > 0 ? ", \"" : "\"", id, "\": 1");
  EXPECT_EQ(refused(str(R"("logit_bias": {)", many, "}")).message,
            "'logit_bias' has 1025 tokens; at most 1024 are supported");
}

TEST(ApiRequestTest, AnAnswerMayHaveToBeAJsonObject) {
  const auto asks = [](const std::string& format) {
    return completion(str(R"({"prompt": "a", "response_format": )", format, "}")).options.json_object;
  };
  EXPECT_TRUE(asks(R"({"type": "json_object"})"));
  EXPECT_FALSE(asks(R"({"type": "text"})"));
  EXPECT_FALSE(asks("null"));
  EXPECT_TRUE(conversation(R"({"messages": [{"role": "user", "content": "a"}],
                               "response_format": {"type": "json_object"}})")
                  .options.json_object);
  EXPECT_THAT(refused(R"("response_format": {"type": "json_schema", "json_schema": {}})").message,
              HasSubstr("'response_format.type' must be \"text\" or \"json_object\""));
  EXPECT_THAT(refused(R"("response_format": {})").message, HasSubstr("'response_format.type' must be"));
  EXPECT_THAT(refused(R"("response_format": {"type": "text", "strict": true})").message,
              HasSubstr("'response_format.strict' is unknown"));
  EXPECT_THAT(refused(R"("response_format": "json_object")").message, HasSubstr("must be an object"));
}

TEST(ApiRequestTest, MistakesInConversationsNameTheMessage) {
  const auto why = [](const std::string& messages) {
    return refused_chat(str(R"({"messages": )", messages, "}")).message;
  };
  EXPECT_EQ(refused_chat("{}").message, "'messages' is missing");
  EXPECT_THAT(why("[]"), HasSubstr("at least one message"));
  EXPECT_THAT(why("[7]"), HasSubstr("'messages[0]' must be an object"));
  EXPECT_THAT(why(R"([{"content": "a"}])"),
              HasSubstr("'messages[0].role' must be one of developer, system, user"));
  EXPECT_THAT(why(R"([{"role": "user", "content": "a"}, {"role": "tool", "content": "a"}])"),
              HasSubstr("'messages[1].role' must be one of"));
  EXPECT_THAT(why(R"([{"role": "user"}])"), HasSubstr("'messages[0].content' is missing"));
  EXPECT_THAT(why(R"([{"role": "user", "content": 7}])"),
              HasSubstr("'messages[0].content' is 7; it must be a string"));
  EXPECT_THAT(why(R"([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}])"),
              HasSubstr("'messages[0].content[0].type' must be \"text\""));
  EXPECT_THAT(why(R"([{"role": "user", "content": "a", "name": 7}])"),
              HasSubstr("'messages[0].name' is 7; it must be a string"));
  EXPECT_THAT(why(R"([{"role": "assistant", "content": "a", "tool_calls": [{}]}])"),
              HasSubstr("'messages[0].tool_calls' is not supported"));
  EXPECT_THAT(
      refused_chat(R"({"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function"}]})")
          .message,
      HasSubstr("'tools' is not supported here; leave it out, or set it to []"));
}

TEST(ApiRequestTest, ValuesOutOfRangeAreRefusedWithWhatIsAllowed) {
  EXPECT_EQ(refused(R"("temperature": -0.1)").message,
            "'temperature' is -0.1; it must be a number from 0 to 100");
  EXPECT_EQ(refused(R"("temperature": "1")").message,
            "'temperature' is of type string; it must be a number from 0 to 100");
  EXPECT_THAT(refused(R"("top_p": 0)").message, HasSubstr("must be above 0"));
  EXPECT_THAT(refused(R"("top_p": 1.01)").message, HasSubstr("'top_p' is 1.01"));
  EXPECT_EQ(refused(R"("max_tokens": -5)").message,
            "'max_tokens' is -5; it must be a whole number from 1 to 1048576");
  EXPECT_THAT(refused(R"("max_tokens": 0)").message, HasSubstr("from 1 to"));
  EXPECT_EQ(completion(R"({"prompt": "a", "max_tokens": 0, "echo": true})").options.max_tokens, 0);
  EXPECT_THAT(refused(R"("max_tokens": 1.5)").message,
              HasSubstr("'max_tokens' is 1.5; it must be a whole number"));
  EXPECT_THAT(refused(R"("seed": 18446744073709551615)").message,
              HasSubstr("'seed' is 18446744073709551615"));
  EXPECT_THAT(refused(R"("n": 129)").message, HasSubstr("'n' is 129"));
  EXPECT_THAT(refused(R"("logprobs": true)").message,
              HasSubstr("'logprobs' is true; it must be a whole number"));
  EXPECT_THAT(refused(R"("stream": 1)").message, HasSubstr("'stream' is 1; it must be true or false"));
  EXPECT_THAT(refused(R"("model": 1)").message, HasSubstr("'model' is 1; it must be a string"));
  EXPECT_THAT(refused(R"("stop": [""])").message, HasSubstr("'stop' must be a string of 1 to 1024 bytes"));
  EXPECT_THAT(refused(str(R"("stop": ")", std::string(1025, 's'), "\"")).message, HasSubstr("'stop'"));
  EXPECT_THAT(
      refused(R"("stop": ["1","2","3","4","5","6","7","8","9","a","b","c","d","e","f","g","h"])").message,
      HasSubstr("has 17 texts; at most 16"));
  EXPECT_THAT(refused(R"("stream_options": {"include_usage": true})").message,
              HasSubstr("needs 'stream': true"));
  EXPECT_THAT(refused(R"("stream": true, "stream_options": {"x": 1})").message,
              HasSubstr("'stream_options.x' is unknown"));
}

TEST(ApiRequestTest, WhatCannotBeHonouredIsNeverIgnored) {
  EXPECT_THAT(refused(R"("store": true)").message,
              HasSubstr("'store' is not supported here; leave it out, or set it to false"));
  EXPECT_THAT(refused(R"("suffix": "end")").message, HasSubstr("'suffix' is not supported"));
  EXPECT_THAT(refused(R"("best_of": 3)").message, HasSubstr("'best_of' is 3, and 'n' is 1"));
  const ApiError unknown = refused(R"("max_token": 3)");
  EXPECT_EQ(unknown.message, "'max_token' is unknown; did you mean 'max_tokens'?");
  EXPECT_EQ(unknown.param, "max_token");
  EXPECT_EQ(unknown.code, "unknown_parameter");
  EXPECT_EQ(unknown.http_status, 400);
}

TEST(ApiRequestTest, ABodyThatIsNoRequestIsRefusedWithTheReason) {
  EXPECT_THAT(refused_body("").message, HasSubstr("the body is not the JSON of a request"));
  EXPECT_THAT(refused_body("{\"prompt\": \"a").message, HasSubstr("missing closing quote"));
  EXPECT_THAT(refused_body("[1]").message, HasSubstr("JSON of type array; it must be an object"));
  EXPECT_THAT(refused_body(R"({"prompt": "a"} x)").message, HasSubstr("not the JSON"));
  EXPECT_THAT(refused_body(R"({"prompt": "a", "prompt": "b"})").message,
              HasSubstr("'prompt' is there twice"));
  EXPECT_THAT(refused_body(R"({"prompt": NaN})").message, HasSubstr("not the JSON"));
  EXPECT_THAT(refused_body(R"({"prompt": "a", "temperature": 1e999})").message, HasSubstr("number overflow"));
  EXPECT_THAT(refused_body("{\"prompt\": \"\xff\"}").message, HasSubstr("UTF-8"));
  EXPECT_THAT(refused_body(std::string("{\"prompt\": \"a\"}\0{", 17)).message, HasSubstr("a NUL at byte 15"));
  EXPECT_THAT(refused_body(str(R"({"prompt": )", std::string(100000, '['))).message,
              HasSubstr("more than 64 deep"));
  EXPECT_THAT(refused_body(str(R"({"prompt": ")", std::string(5000, 'x'))).message,
              SizeIs(::testing::Lt(500U)))
      << "a message does not repeat the body";
}

TEST(ApiRequestTest, AnErrorIsWrittenAsOpenAisClientsReadIt) {
  const auto json = nlohmann::json::parse(to_json(refused(R"("n": 0)")))["error"];
  EXPECT_EQ(json["type"], "invalid_request_error");
  EXPECT_EQ(json["param"], "n");
  EXPECT_EQ(json["code"], "invalid_value");
  EXPECT_THAT(json["message"].get<std::string>(), HasSubstr("'n' is 0"));
  const auto other = nlohmann::json::parse(to_json({429, "full\xff", {}, {}}))["error"];
  EXPECT_EQ(other["type"], "rate_limit_error");
  EXPECT_EQ(other["param"], nullptr);
  EXPECT_EQ(other["message"], "full\xEF\xBF\xBD");
}

/// Changes some bytes of a text, or copies, moves and removes parts of it.
std::string mutated(std::string text, std::uint64_t seed) {
  const Rng rng(seed, 7);
  std::uint64_t at = 0;
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(rng.below(at++, n)); };
  constexpr std::string_view kBytes = "{}[]\",:0123456789.eE+-\\ntfu \x80\xff\n";
  for (std::size_t changes = 1 + below(4); changes > 0; --changes) {
    const std::size_t begin = below(text.size() + 1), n = std::min(below(12), text.size() - begin);
    switch (below(4)) {
      case 0:
        text.insert(begin, 1, kBytes[below(kBytes.size())]);
        break;
      case 1:
        text.erase(begin, n);
        break;
      case 2:
        text.insert(below(text.size() + 1), text.substr(begin, n));
        break;
      default:
        if (begin < text.size()) text[begin] = kBytes[below(kBytes.size())];
    }
  }
  return text;
}

TEST(ApiRequestTest, AnyChangeOfARequestIsReadOrRefusedWithAMessage) {
  const std::string texts[] = {
      R"({"model": "m", "prompt": ["a", [1, 2]], "max_tokens": 7, "temperature": 0.5, "stop": ["x"], "n": 2,
          "echo": true, "logprobs": 5, "stream": true, "stream_options": {"include_usage": true}, "seed": 1})",
      R"({"model": "m", "messages": [{"role": "system", "content": "a"}, {"role": "user", "content":
          [{"type": "text", "text": "é"}]}], "max_completion_tokens": 3, "top_p": 0.5, "tools": []})"};
  std::size_t read = 0, n_refused = 0;
  for (std::uint64_t seed = 0; seed < 20000; ++seed) {
    const std::string body = mutated(texts[seed % 2], seed);
    const auto one = parse_completion_request(body);
    const auto two = parse_chat_request(body);
    for (const ApiError* error : {one ? nullptr : &one.error(), two ? nullptr : &two.error()}) {
      (error == nullptr ? read : n_refused) += 1;
      if (error == nullptr) continue;
      EXPECT_EQ(error->http_status, 400);
      EXPECT_FALSE(error->message.empty());
      EXPECT_TRUE(nlohmann::json::accept(to_json(*error))) << "seed " << seed;
    }
  }
  EXPECT_GT(read, 100U);
  EXPECT_GT(n_refused, 20000U);
}

}  // namespace
}  // namespace strata
