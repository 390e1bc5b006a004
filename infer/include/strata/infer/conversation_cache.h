#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <strata/engine/engine.h>
#include <strata/infer/batcher.h>

namespace strata {

/// Remembers which tokens of a conversation the first slot of an engine has, so that its next prompt computes
/// only what follows the tokens that both begin with. Used by one thread.
class ConversationCache {
 public:
  /// `virtual_tokens`: of an adapter, before those of the conversation. The engine outlives the object.
  ConversationCache(const Engine& engine, std::int32_t virtual_tokens)
      : engine_(engine), virtual_tokens_(virtual_tokens) {}

  /// Begins with a prompt, which has at least one token. Returns how many of its leading tokens the slot can
  /// go on from (GenerationRequest::cached): fewer than it has.
  std::int32_t begin(std::span<const std::int32_t> prompt);
  /// A token was sampled, so the one before it is in the slot.
  void sampled(std::int32_t id);
  /// The text ended. If a stop token was sampled, the last token of the text is in the slot, too.
  void ended(FinishReason reason);
  /// The slot was lost in an error.
  void forget() noexcept;

 private:
  const Engine& engine_;
  const std::int32_t virtual_tokens_;
  std::vector<std::int32_t> tokens_;
  std::int32_t last_ = -1;  // sampled, and not in the slot yet
};

}  // namespace strata
