#include <strata/infer/conversation_cache.h>

#include <algorithm>

namespace strata {

// The last token of the prompt is computed in any case, since its logits are wanted.
std::int32_t ConversationCache::begin(std::span<const std::int32_t> prompt) {
  const auto last = prompt.end() - 1;
  const auto same = std::mismatch(tokens_.begin(), tokens_.end(), prompt.begin(), last).second;
  const auto common = static_cast<std::int32_t>(same - prompt.begin());
  const std::int32_t from = engine_.continues_from(0, virtual_tokens_ + common);
  tokens_.assign(prompt.begin(), prompt.end());
  last_ = -1;
  return std::max(0, from - virtual_tokens_);
}

void ConversationCache::sampled(std::int32_t id) {
  if (last_ >= 0) tokens_.push_back(last_);
  last_ = id;
}

void ConversationCache::ended(FinishReason reason) {
  if (reason == FinishReason::end_of_text && last_ >= 0) tokens_.push_back(last_);
  last_ = -1;
}

void ConversationCache::forget() noexcept {
  tokens_.clear();
  last_ = -1;
}

}  // namespace strata
