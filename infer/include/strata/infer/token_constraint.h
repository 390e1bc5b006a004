#pragma once

#include <cstdint>
#include <span>

#include <strata/runtime/status.h>

namespace strata {

/// Says which tokens may come next in one text. Used by the thread that drives the text's batcher.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  /// Sets the logits of tokens that may not come next to -infinity. `logits`: as many as the vocabulary has
  /// tokens. Errors: `invalid` if none may.
  virtual Status mask(std::span<float> logits) = 0;
  /// A token that may come next was sampled. Returns whether the text is complete with it.
  virtual bool accept(std::int32_t id) = 0;
};

}  // namespace strata
