#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <strata/text/chat.h>
#include <strata/model/sampling.h>
#include <strata/serve/api_error.h>

namespace strata {

/// The options that requests for texts and for answers in a conversation have in common. What a request
/// leaves out has OpenAI's defaults.
struct AnswerOptions {
  std::optional<std::string> model;        ///< nullopt: the request names none
  std::optional<std::int64_t> max_tokens;  ///< nullopt: the endpoint's default
  /// OpenAI's fields, and "top_k", "min_p" and "repetition_penalty" as extensions.
  SamplingOptions sampling;
  std::optional<std::uint64_t> seed;  ///< nullopt: another one for each request
  std::vector<std::string> stop;      ///< texts that end an answer and are not part of it
  std::int64_t n = 1;                 ///< answers to each prompt
  bool json_object = false;           ///< "response_format": each answer is one JSON object
  bool stream = false;
  bool include_usage = false;  ///< a stream ends with the numbers of tokens
};

/// A prompt of /v1/completions: a text, or tokens.
using PromptInput = std::variant<std::string, std::vector<std::int32_t>>;

struct CompletionRequest {
  AnswerOptions options;
  std::vector<PromptInput> prompts;
  bool echo = false;  ///< the text begins with the prompt
  /// Asks for that of each token, and those of so many of the most likely ones.
  std::optional<std::int64_t> logprobs;
};

struct ChatRequest {
  AnswerOptions options;
  std::vector<ChatMessage> messages;  ///< parts of a content are joined
  std::string template_arguments;     ///< a JSON object; empty: none
  /// Asks for that of each token, and those of so many of the most likely ones.
  std::optional<std::int64_t> logprobs;
};

inline constexpr std::int64_t kMaxAnswers = 128;       ///< `n`
inline constexpr std::int64_t kMaxTopLogprobs = 20;    ///< `logprobs`, `top_logprobs`
inline constexpr std::size_t kMaxStops = 16;           ///< texts in `stop`
inline constexpr std::size_t kMaxStopBytes = 1024;     ///< bytes of each of them
inline constexpr std::size_t kMaxBiasedTokens = 1024;  ///< ids in `logit_bias`
inline constexpr std::int64_t kMaxTokensAsked = 1 << 20;

/// Parse the body of POST /v1/completions and /v1/chat/completions. A field that is null counts as absent.
/// Fields that cannot be honoured are accepted with the value that changes nothing; any others are errors, as
/// are fields of the wrong type or out of range, fields that are there twice, JSON nested more than 64 deep,
/// and what is not UTF-8. Errors have the status 400.
ApiResult<CompletionRequest> parse_completion_request(std::string_view body);
ApiResult<ChatRequest> parse_chat_request(std::string_view body);

}  // namespace strata
