#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <strata/text/prompts.h>
#include <strata/runtime/io/digest.h>
#include <strata/runtime/io/io.h>
#include <strata/batches/token_data.h>

namespace strata {

/// The prompts that a policy answers. Immutable.
class PromptSet {
 public:
  /// Reads .jsonl files of prompts (read_prompts) or texts of one prompt per line. Prompts of more than
  /// `max_tokens` tokens are left out. Errors: of all files at once, those of reading and encoding, and of
  /// tokens for which a model with `vocab` of them has no row; `invalid` if no prompt is left.
  static Result<PromptSet> read(const std::vector<std::string>& files, const TextCodec& codec,
                                std::int64_t max_tokens, std::int64_t vocab, Io& io);

  std::size_t size() const noexcept { return prompts_.size(); }
  const Prompt& prompt(std::size_t i) const { return prompts_[i]; }
  const PromptTokens& tokens(std::size_t i) const { return tokens_[i]; }
  std::size_t n_left_out() const noexcept { return n_left_out_; }
  Digest digest() const;

 private:
  std::vector<Prompt> prompts_;
  std::vector<PromptTokens> tokens_;
  std::size_t n_left_out_ = 0;
};

}  // namespace strata
