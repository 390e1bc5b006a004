#pragma once

#include <span>
#include <string_view>

namespace strata::detail {

/// A built-in chat template.
struct ChatFormat {
  std::string_view name;
  std::string_view jinja;
  std::string_view markers;  ///< the special tokens that it writes, separated by spaces
};

/// All of them, each once; the first is plain.
std::span<const ChatFormat> chat_formats() noexcept;

}  // namespace strata::detail
