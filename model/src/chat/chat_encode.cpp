#include <strata/model/chat.h>

#include <utility>

#include <strata/runtime/str.h>

namespace strata {
namespace {

/// Encodes a chat part by part and records which tokens are in the written ranges.
class ChatEncoder {
 public:
  ChatEncoder(const Tokenizer& tokenizer, const ChatText& chat) : tokenizer_(tokenizer), chat_(chat) {
    out_.written.resize(chat.written.size());
  }

  Status marker(ChatRange at) {
    const std::string_view text = std::string_view(chat_.text).substr(at.begin, at.end - at.begin);
    const std::int32_t id = tokenizer_.added_id(text);
    if (id < 0) return Status::error(Code::not_found, str("the tokenizer has no token '", text, "'"));
    put(at.begin, id);
    return {};
  }
  void text(ChatRange at, SpecialTokens special) {
    const TextPosition place = at.begin == 0 ? TextPosition::begin : TextPosition::after_token;
    const std::string_view text = std::string_view(chat_.text).substr(at.begin, at.end - at.begin);
    // The borders of written ranges as offsets in the normalized text, which is what tokens are made of.
    std::vector<ChatRange> borders;  // (offset in the normalized text, offset in the original)
    while (stretch_ < chat_.written.size() && chat_.written[stretch_].end <= at.begin) ++stretch_;
    for (std::size_t m = stretch_; m < chat_.written.size() && chat_.written[m].begin < at.end; ++m)
      for (const std::size_t border : {chat_.written[m].begin, chat_.written[m].end})
        if (border > at.begin && border < at.end)
          borders.push_back({normalized_size(text.substr(0, border - at.begin), place), border});
    std::size_t byte = 0;
    std::size_t original = at.begin;
    std::size_t next = 0;
    for (const std::int32_t id : tokenizer_.encode(text, special, AddSpecialTokens::no, place)) {
      for (; next < borders.size() && borders[next].begin <= byte; ++next) original = borders[next].end;
      put(original, id);
      byte += tokenizer_.token(id).size();
    }
  }
  ChatTokens take() {
    for (; message_ < chat_.written.size(); ++message_)
      if (out_.written[message_].end == 0) out_.written[message_] = {out_.ids.size(), out_.ids.size()};
    out_.loss_mask.resize(out_.ids.size());
    for (std::size_t m = 0; m < out_.written.size(); ++m)
      for (std::size_t i = out_.written[m].begin; i < out_.written[m].end; ++i)
        out_.loss_mask[i] = chat_.loss_mask[m];
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
    for (; message_ < chat_.written.size() && chat_.written[message_].end <= original; ++message_)
      if (out_.written[message_].end == 0) out_.written[message_] = {index, index};
    if (message_ == chat_.written.size() || original < chat_.written[message_].begin) return;
    ChatRange& written = out_.written[message_];
    if (written.end == 0) written.begin = index;
    written.end = index + 1;
  }

  const Tokenizer& tokenizer_;
  const ChatText& chat_;
  ChatTokens out_;
  std::size_t message_ = 0;
  std::size_t stretch_ = 0;  // the first message that does not end before the current part
};

}  // namespace

Result<ChatTokens> encode_chat(const Tokenizer& tokenizer, const ChatText& chat, SpecialTokens special) {
  ChatEncoder encoder(tokenizer, chat);
  std::size_t done = 0;
  for (const ChatRange& marker : chat.markers) {
    if (done < marker.begin) encoder.text({done, marker.begin}, special);
    STRATA_TRY(encoder.marker(marker));
    done = marker.end;
  }
  if (done < chat.text.size()) encoder.text({done, chat.text.size()}, special);
  return encoder.take();
}

}  // namespace strata
