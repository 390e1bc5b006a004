#include <strata/model/chat_format.h>

#include <algorithm>

#include <strata/runtime/str.h>

namespace strata {
namespace {

constexpr std::string_view kChatmlStart = "<|im_start|>";
constexpr std::string_view kChatmlEnd = "<|im_end|>";

}  // namespace

const ChatFormat::Turn* ChatFormat::find(std::string_view role) const noexcept {
  const auto found =
      std::find_if(turns.begin(), turns.end(), [&](const Turn& turn) { return turn.role == role; });
  return found == turns.end() ? nullptr : &*found;
}

std::string ChatFormat::roles() const {
  std::string names;
  for (const Turn& turn : turns) names += str(names.empty() ? "" : ", ", turn.role);
  return names;
}

Digest ChatFormat::digest() const {
  Digester digester;
  for (const Turn& turn : turns) {
    for (const std::string* text : {&turn.role, &turn.before, &turn.end, &turn.after})
      digester.update(std::as_bytes(std::span(text->data(), text->size() + 1)));  // its NUL keeps them apart
    digester.update(std::string_view(turn.learnt ? "+" : "-"));
  }
  return digester.digest();
}

ChatFormat ChatFormat::plain() {
  // A line break ends a piece of the splitter, so the text cut at turns has the tokens of the whole text.
  return {"plain",
          {{"system", "System:\n", "\n", "", false},
           {"user", "User:\n", "\n", "", false},
           {"assistant", "Assistant:\n", "\n", "", true}}};
}

ChatFormat ChatFormat::chatml() {
  ChatFormat format{"chatml", {}};
  for (const std::string_view role : {"system", "user", "assistant"})
    format.turns.push_back({std::string(role), str(kChatmlStart, role, "\n"), std::string(kChatmlEnd), "\n",
                            role == "assistant"});
  return format;
}

ChatFormat ChatFormat::of(const Tokenizer& tokenizer) {
  bool start = false, end = false;
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.is_special(id)) continue;
    start = start || tokenizer.token(id) == kChatmlStart;
    end = end || tokenizer.token(id) == kChatmlEnd;
  }
  return start && end ? chatml() : plain();
}

}  // namespace strata
