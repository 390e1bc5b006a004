#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <strata/infer/token_constraint.h>
#include <strata/text/json_object_text.h>
#include <strata/text/tokenizer.h>

namespace strata {

/// The tokens of a vocabulary that have a text of their own, in the order of their bytes, so that those which
/// begin alike are tried together. The tokenizer must outlive it.
class SortedTokens {
 public:
  explicit SortedTokens(const Tokenizer& tokenizer);
  struct Token {
    std::int32_t id = 0;
    std::uint32_t n_common = 0;  ///< bytes that it begins with as the one before it
    std::string_view bytes;
  };
  const std::vector<Token>& tokens() const noexcept { return tokens_; }

 private:
  std::vector<Token> tokens_;
};

/// Lets a text become one JSON object, and ends it when the object is closed. Special tokens are never
/// allowed. A mask takes about a step of JsonObjectText for each different beginning of a token.
class JsonObjectConstraint final : public TokenConstraint {
 public:
  explicit JsonObjectConstraint(std::shared_ptr<const SortedTokens> tokens, const Tokenizer& tokenizer)
      : tokens_(std::move(tokens)), tokenizer_(tokenizer) {}
  Status mask(std::span<float> logits) override;
  bool accept(std::int32_t id) override;

 private:
  const std::shared_ptr<const SortedTokens> tokens_;
  const Tokenizer& tokenizer_;
  JsonObjectText text_;
  std::vector<JsonObjectText> steps_;  // after each byte of the token that is tried
  std::vector<bool> allowed_;
};

}  // namespace strata
