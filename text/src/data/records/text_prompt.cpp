#include "data/records/text_prompt.h"

#include <algorithm>
#include <string>

namespace strata::detail {
namespace {

std::string_view without_space(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = std::min(text.find_first_not_of(kSpace), text.size());
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

/// Whether one of the first `n` messages has the text of a prompt, which may be written with its turns.
bool have_text(const Messages& said, std::size_t n, std::string_view prompt) {
  return std::any_of(
      said.begin(), said.begin() + static_cast<std::ptrdiff_t>(n), [&](const ChatMessage& one) {
        const std::string_view text = without_space(one.content);
        return !text.empty() &&
               (prompt.find(text) != std::string_view::npos || text.find(prompt) != std::string_view::npos);
      });
}

}  // namespace

std::size_t common_messages(const Messages& a, const Messages& b) {
  std::size_t n = 0;
  while (n < a.size() && n < b.size() && a[n] == b[n]) ++n;
  return n;
}

void add_text_prompt(std::string_view prompt, Messages& chosen, Messages& rejected) {
  const std::string_view asked = without_space(prompt);
  const std::size_t shared =
      std::min(common_messages(chosen, rejected), std::min(chosen.size(), rejected.size()) - 1);
  if (asked.empty() || have_text(chosen, shared, asked)) return;
  for (Messages* side : {&chosen, &rejected}) {
    const bool has_system = shared > 0 && side->front().role == "system";
    side->insert(side->begin() + (has_system ? 1 : 0), ChatMessage{"user", std::string(prompt)});
  }
}

}  // namespace strata::detail
