#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <strata/text/tokenizer.h>

namespace strata {

/// A token of an answer, or of the prompt before it, with its logarithm of probability.
struct TokenScore {
  std::int32_t id = 0;
  std::optional<double> logprob;                     ///< nullopt: nothing came before it
  std::vector<std::pair<std::int32_t, double>> top;  ///< the most likely tokens, in descending order
  std::size_t offset = 0;                            ///< characters of the text before it
};

/// One answer, or a piece of it.
struct ApiChoice {
  std::size_t index = 0;
  std::string text;
  std::vector<TokenScore> scores;
  std::string finish_reason;  ///< "stop" or "length"; empty: it goes on
};

struct ApiUsage {
  std::size_t prompt_tokens = 0, completion_tokens = 0;
};

/// Writes the answers to one request, whole or as events of a stream (server-sent events), as OpenAI's API
/// does: "text_completion", or "chat.completion" and "chat.completion.chunk".
class ResponseWriter {
 public:
  struct Head {
    bool is_chat = false;
    std::string id;
    std::int64_t created = 0;  ///< Unix time
    std::string model;
    bool with_scores = false;  ///< "logprobs" is an object
    std::size_t n_top = 0;     ///< chats: so many of the most likely tokens with it
  };
  ResponseWriter(Head head, const Tokenizer& tokenizer) : head_(std::move(head)), tokenizer_(tokenizer) {}

  /// The body of a whole response. `choices`: whole ones.
  std::string whole(const std::vector<ApiChoice>& choices, const ApiUsage& usage) const;
  /// The event that begins an answer: who speaks. Empty for completions, which have none.
  std::string begin_event(std::size_t choice) const;
  std::string event(const ApiChoice& choice) const;
  /// The event with the numbers of tokens, after all others.
  std::string usage_event(const ApiUsage& usage) const;

 private:
  const Head head_;
  const Tokenizer& tokenizer_;
};

/// An event of a stream that tells an error.
std::string error_event(const std::string& error_json);
inline constexpr const char* kLastEvent = "data: [DONE]\n\n";

/// {"object": "list", "data": [{"id", "object": "model", "created", "owned_by"}, ...]}
std::string models_json(const std::vector<std::string>& names, std::int64_t created);
std::string model_json(const std::string& name, std::int64_t created);

/// The text of a token; if it is no text by itself, "bytes:\xE2\x80", so that different tokens stay
/// different.
std::string token_text(const Tokenizer& tokenizer, std::int32_t id);

}  // namespace strata
