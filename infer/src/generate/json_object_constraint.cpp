#include <strata/infer/json_object_constraint.h>

#include <algorithm>
#include <limits>

#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>

namespace strata {

SortedTokens::SortedTokens(const Tokenizer& tokenizer) {
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    if (!tokenizer.is_special(id) && !tokenizer.token(id).empty())
      tokens_.push_back({id, 0, tokenizer.token(id)});
  std::sort(tokens_.begin(), tokens_.end(), [](const Token& a, const Token& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.id < b.id;
  });
  for (std::size_t i = 1; i < tokens_.size(); ++i) {
    const std::string_view before = tokens_[i - 1].bytes, bytes = tokens_[i].bytes;
    const auto n = static_cast<std::ptrdiff_t>(std::min(before.size(), bytes.size()));
    tokens_[i].n_common = static_cast<std::uint32_t>(
        std::mismatch(before.begin(), before.begin() + n, bytes.begin()).first - before.begin());
  }
}

Status JsonObjectConstraint::mask(std::span<float> logits) {
  allowed_.assign(logits.size(), false);
  steps_.clear();
  bool is_any = false, has_failed = false;  // the byte after those of steps_ was refused
  for (const auto& [id, n_common, bytes] : tokens_->tokens()) {
    if (has_failed && n_common > steps_.size()) continue;
    steps_.resize(std::min<std::size_t>(steps_.size(), n_common));
    has_failed = false;
    while (!has_failed && steps_.size() < bytes.size()) {
      JsonObjectText next = steps_.empty() ? text_ : steps_.back();
      has_failed = !next.push(static_cast<unsigned char>(bytes[steps_.size()]));
      if (!has_failed) steps_.push_back(next);
    }
    const auto at = static_cast<std::size_t>(id);
    if (has_failed || at >= logits.size()) continue;
    allowed_[at] = true;
    is_any = is_any || logits[at] != -std::numeric_limits<float>::infinity();  // the sampler names a NaN
  }
  if (!is_any)
    return Status::error(Code::invalid,
                         str("none of the ", tokens_->tokens().size(),
                             " tokens that the vocabulary has texts for can continue a JSON object here"));
  for (std::size_t at = 0; at < logits.size(); ++at)
    if (!allowed_[at]) logits[at] = -std::numeric_limits<float>::infinity();
  return {};
}

bool JsonObjectConstraint::accept(std::int32_t id) {
  for (const char byte : tokenizer_.token(id))
    STRATA_ASSERT(text_.push(static_cast<unsigned char>(byte)), "a token that was not allowed", id);
  return text_.is_complete();
}

}  // namespace strata
