#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <strata/serve/api_response.h>

namespace strata::detail {

/// The logarithm of a token's probability, and those of the `n_top` most likely tokens; as OpenAI's API does,
/// the token itself is among them in any case, if n_top is not 0. Of equally likely tokens the one with the
/// lower id comes first.
TokenScore score_token(std::span<const float> logits, std::int32_t id, std::size_t n_top);

/// Code points of a text that is valid UTF-8.
std::size_t n_characters(std::string_view text) noexcept;

}  // namespace strata::detail
