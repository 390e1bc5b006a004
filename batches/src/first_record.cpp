#include <strata/batches/first_record.h>

#include <algorithm>
#include <span>
#include <utility>

#include <strata/text/prompts.h>
#include <strata/text/text_check.h>
#include <strata/text/token_cache.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

constexpr std::uint64_t kShownBytes = 4096;  // how much of a text is shown

Result<ShownRecord::Part> part_of(const Tokenizer& tokenizer, std::string name, DocumentTokens tokens) {
  ShownRecord::Part part{std::move(name), std::move(tokens.ids), std::move(tokens.loss_mask), {}};
  const std::span ids(part.ids);
  for (std::size_t begin = 0, end = 0; begin < ids.size(); begin = end) {
    while (end < ids.size() && part.loss_mask[end] == part.loss_mask[begin]) ++end;
    STRATA_TRY_ASSIGN(std::string text, tokenizer.decode(ids.subspan(begin, end - begin)));
    part.runs.push_back({part.loss_mask[begin], std::move(text)});
  }
  return part;
}

Result<ShownRecord> first_text(Io& io, const Tokenizer& tokenizer, const std::string& file) {
  STRATA_TRY_ASSIGN(const bool is_packed, TokenCache::is_cache(io, file));
  if (is_packed)
    return Status::error(Code::invalid,
                         str(file, " is a packed file: inspect it by itself, with its tokenizer"));
  STRATA_TRY_ASSIGN(std::string text, read_source_beginning(io, file, kShownBytes + 1));
  STRATA_TRY(TextCheck(file).add(text));
  ShownRecord shown;
  shown.form = "a text, which is one document";
  shown.is_cut = text.size() > kShownBytes;
  if (shown.is_cut) text.resize(tokenizer.last_safe_cut(std::string_view(text).substr(0, kShownBytes)));
  Document document;
  document.segments.push_back({std::move(text)});
  STRATA_TRY_ASSIGN(DocumentTokens tokens, encode_document(tokenizer, document));
  if (shown.is_cut && tokenizer.markers().end >= 0) {
    tokens.ids.pop_back();
    tokens.loss_mask.pop_back();
  }
  STRATA_TRY_ASSIGN(ShownRecord::Part part, part_of(tokenizer, "", std::move(tokens)));
  shown.parts.push_back(std::move(part));
  return shown;
}

Result<ShownRecord> first_prompt(Io& io, const TextCodec& codec, const std::string& file) {
  STRATA_TRY_ASSIGN(const std::vector<Prompt> prompts, read_prompts(io, file, [](std::string_view) {}));
  const ChatTemplate chat = codec.chat.chat.has_value() ? *codec.chat.chat : ChatTemplate();
  const Prompt& prompt = prompts.front();
  if (!prompt.messages.empty() && !codec.chat.chat.has_value()) return codec.chat.chat.status();
  STRATA_TRY_ASSIGN(PromptTokens tokens, encode_prompt(codec.tokenizer, prompt, chat, {}));
  const std::size_t n = tokens.ids.size();
  STRATA_TRY_ASSIGN(ShownRecord::Part part,
                    part_of(codec.tokenizer, "prompt", {std::move(tokens.ids), std::vector<bool>(n, false)}));
  return ShownRecord{str("prompts", prompt.messages.empty() ? "" : str(" read as chats (", chat.name(), ")")),
                     false,
                     {std::move(part)}};
}

}  // namespace

std::uint64_t ShownRecord::Part::n_trained() const noexcept {
  return static_cast<std::uint64_t>(std::count(loss_mask.begin(), loss_mask.end(), true));
}

Result<ShownRecord> first_record(Io& io, const TextCodec& codec, const std::string& file, bool as_prompt,
                                 RecordUse use) {
  STRATA_TRY(check_source_name(file));
  if (as_prompt) return first_prompt(io, codec, file);
  if (!has_records(file)) return first_text(io, codec.tokenizer, file);
  STRATA_TRY_ASSIGN(const FirstRecord first, read_first_record(io, file, codec.chat.chat, use));
  ShownRecord shown;
  shown.form = first.stats.described(codec.chat.chat, false);
  for (std::size_t i = 0; i < first.documents.size(); ++i) {
    STRATA_TRY_ASSIGN(DocumentTokens tokens, encode_document(codec.tokenizer, first.documents[i]));
    const char* const name = !first.stats.are_pairs ? "" : i == 0 ? "chosen" : "rejected";
    STRATA_TRY_ASSIGN(ShownRecord::Part part, part_of(codec.tokenizer, name, std::move(tokens)));
    shown.parts.push_back(std::move(part));
  }
  return shown;
}

std::string shown_token(const Tokenizer& tokenizer, std::int32_t id) {
  std::string text = tokenizer.decode(std::span(&id, 1)).value_or(std::string("?"));
  for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 2)
    text.replace(at, 1, "\\n");
  return str("'", text, "' (", id, ")");
}

}  // namespace strata
