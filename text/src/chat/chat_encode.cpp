#include <strata/text/chat.h>

#include <algorithm>
#include <utility>

#include <strata/runtime/str.h>

namespace strata {
namespace {

constexpr std::size_t kNone = static_cast<std::size_t>(-1);

/// Where an answer with the token that ends it is, and that token.
struct Turn {
  ChatRange bytes;
  std::int32_t end_id = -1;
  std::size_t end_token = kNone;  // its place among the special tokens
  bool is_learned = true;
};

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

/// Whether what is visible of the token lies before `end`: it may have taken white space behind it.
bool is_before(const FoundToken& token, std::size_t end, std::string_view text) {
  std::size_t seen = token.at.end;
  while (seen > token.at.begin && is_space(text[seen - 1])) --seen;
  return seen <= end;
}

Turn turn_of(const ChatAnswer& answer, std::span<const FoundToken> found, std::string_view text) {
  auto end = std::partition_point(found.begin(), found.end(),
                                  [&](const FoundToken& token) { return token.at.begin < answer.said_end; });
  // The tokens that close calls are the assistant's, too; the last one of the turn ends it.
  while (answer.has_calls && end != found.end() && end + 1 != found.end() &&
         is_before(*(end + 1), answer.end, text))
    ++end;
  // The token at the very end is that of the next turn.
  if (end == found.end() || end->at.begin > answer.end)
    return {{answer.begin, answer.end}, -1, kNone, answer.is_learned};
  return {
      {answer.begin, end->at.end}, end->id, static_cast<std::size_t>(end - found.begin()), answer.is_learned};
}

/// Encodes a chat part by part and records which tokens begin in the turns of the assistant.
class ChatEncoder {
 public:
  ChatEncoder(const Tokenizer& tokenizer, const std::string& text, const std::vector<Turn>& turns)
      : tokenizer_(tokenizer), text_(text), turns_(turns) {
    out_.answers.assign(turns.size(), {kNone, kNone});
  }

  void token(const FoundToken& found) { put(found.at.begin, found.id); }

  void text(ChatRange at, SpecialTokens special) {
    const TextPosition place = at.begin == 0 ? TextPosition::begin : TextPosition::after_token;
    const std::string_view text = std::string_view(text_).substr(at.begin, at.end - at.begin);
    // The borders of turns as offsets in the normalized text, which is what tokens are made of.
    std::vector<std::pair<std::size_t, std::size_t>> borders;  // in the normalized text, in the original
    for (const Turn& turn : turns_)
      for (const std::size_t border : {turn.bytes.begin, turn.bytes.end})
        if (border > at.begin && border < at.end)
          borders.emplace_back(normalized_size(text.substr(0, border - at.begin), place), border);
    std::size_t byte = 0;
    std::size_t original = at.begin;
    std::size_t next = 0;
    for (const std::int32_t id : tokenizer_.encode(text, special, AddSpecialTokens::no, place)) {
      for (; next < borders.size() && borders[next].first <= byte; ++next) original = borders[next].second;
      put(original, id);
      byte += tokenizer_.token(id).size();
    }
  }

  ChatTokens take() {
    for (ChatRange& range : out_.answers)
      if (range.begin == kNone) range = {out_.ids.size(), out_.ids.size()};
    for (const Turn& turn : turns_) out_.ends.push_back(turn.end_id);
    return std::move(out_);
  }

 private:
  std::size_t normalized_size(std::string_view text, TextPosition place) const {
    const bool stays = !tokenizer_.spec().nfc && tokenizer_.spec().split != SplitRule::none;
    return stays ? text.size() : tokenizer_.normalized(text, place).size();
  }
  /// Appends a token that begins at byte `original` of the chat, or later but before the next border.
  void put(std::size_t original, std::int32_t id) {
    const std::size_t index = out_.ids.size();
    out_.ids.push_back(id);
    while (turn_ < turns_.size() && turns_[turn_].bytes.end <= original) ++turn_;
    const bool inside = turn_ < turns_.size() && original >= turns_[turn_].bytes.begin;
    out_.loss_mask.push_back(inside && turns_[turn_].is_learned);
    if (!inside) return;
    ChatRange& answer = out_.answers[turn_];
    if (answer.begin == kNone) answer.begin = index;
    answer.end = index + 1;
  }

  const Tokenizer& tokenizer_;
  const std::string& text_;
  const std::vector<Turn>& turns_;
  ChatTokens out_;
  std::size_t turn_ = 0;  // the first that does not end before the present token
};

/// A built-in template is chosen by name, so its markers may be those of another tokenizer.
Status check_markers(const Tokenizer& tokenizer, const ChatText& chat) {
  for (const std::string& marker : chat.markers)
    for (const ChatRange& range : chat.of_template)
      if (std::string_view(chat.text).substr(range.begin, range.end - range.begin).find(marker) !=
              std::string_view::npos &&
          tokenizer.added_id(marker) < 0)
        return Status::error(Code::not_found, str("the tokenizer has no token '", marker, "'"));
  return {};
}

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\n") == std::string_view::npos; }

}  // namespace

Result<ChatTokens> encode_chat(const Tokenizer& tokenizer, const ChatText& chat, SpecialTokens special) {
  STRATA_TRY(check_markers(tokenizer, chat));
  const std::vector<FoundToken> found = tokenizer.special_tokens_in(chat.text, chat.of_template);
  std::vector<Turn> turns;
  for (const ChatAnswer& answer : chat.answers) turns.push_back(turn_of(answer, found, chat.text));
  ChatEncoder encoder(tokenizer, chat.text, turns);
  std::size_t done = 0;
  for (const FoundToken& token : found) {
    if (done < token.at.begin) encoder.text({done, token.at.begin}, special);
    encoder.token(token);
    done = token.at.end;
  }
  if (done < chat.text.size()) encoder.text({done, chat.text.size()}, special);
  ChatTokens out = encoder.take();
  // Tokens that a template writes at the very end may end the text, too: a second token after the turn's
  // (Phi-3).
  out.is_ended = !turns.empty() && turns.back().end_id >= 0 && !found.empty() &&
                 turns.back().end_token + 2 >= found.size() &&
                 is_blank(std::string_view(chat.text).substr(found.back().at.end));
  return out;
}

std::vector<std::int32_t> answer_ends(const Tokenizer& tokenizer, const ChatTemplate& chat) {
  const std::vector<ChatMessage> probes[] = {{{"user", "q"}, {"assistant", "a"}, {"user", "r"}},
                                             {{"user", "q"}, {"assistant", "a"}}};
  std::vector<std::int32_t> ends;
  for (const auto& probe : probes) {
    const auto text = apply_chat_template(chat, probe);
    if (!text.has_value()) continue;
    const auto tokens = encode_chat(tokenizer, *text);
    if (!tokens.has_value()) continue;
    for (const std::int32_t id : tokens->ends)
      if (id >= 0 && std::find(ends.begin(), ends.end(), id) == ends.end()) ends.push_back(id);
  }
  return ends;
}

}  // namespace strata
