#include "tokenizer/tokenizer_vocab.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include <strata/runtime/str.h>

#include "text/byte_alphabet.h"
#include <strata/runtime/config/json_fields.h>
#include "tokenizer/sentencepiece.h"

namespace strata::detail {

using nlohmann::json;

namespace {

/// If ids are not dense, one of them is used twice or is past the end.
Status place(std::vector<std::string>& tokens, const std::string& key, std::string bytes, std::uint64_t id) {
  if (id >= tokens.size())
    return corrupt(str("token ", shown(key), " has id ", id, " among ", tokens.size(), " tokens"));
  if (bytes.empty()) return corrupt(str("token ", id, " is empty"));
  if (!tokens[id].empty()) return corrupt(str("id ", id, " is given twice, the second time to ", shown(key)));
  tokens[id] = std::move(bytes);
  return {};
}

Result<std::string> bytes_of(const std::string& key, SplitRule split) {
  if (split == SplitRule::none) {
    if (const auto byte = byte_of_token(key)) return std::string(1, static_cast<char>(*byte));
    if (std::optional<std::string> text = text_of_token(key)) return *std::move(text);
    return unsupported(str("token ", shown(key), " has a space, which normalized text never contains"));
  }
  if (std::optional<std::string> bytes = alphabet_to_bytes(key)) return *std::move(bytes);
  return corrupt(str("token ", shown(key), " has a character that represents no byte"));
}

Status check_added_entry(const std::string& key, const json& id, const AddedToken& token, SplitRule split) {
  if (static_cast<std::uint64_t>(token.id) != id.get<std::uint64_t>())
    return corrupt(str("token ", shown(key), " is ", id.dump(), " in the vocabulary and ", token.id,
                       " among the added"));
  // Merges of the text would give one token and the search for added tokens the other.
  if (const auto bytes = alphabet_to_bytes(key); split != SplitRule::none && bytes && *bytes != token.content)
    return unsupported(str("added token ", shown(key), " has other bytes in the vocabulary"));
  return {};
}

}  // namespace

Result<AddedToken> read_added_token(const json& token) {
  if (!token.is_object() || !field(token, "content").is_string())
    return corrupt(str("an added token is ", shown(token), ", which lacks a content or an id"));
  AddedToken out;
  out.content = token["content"].get<std::string>();
  const std::string where = str("added token ", shown(out.content), ": ");
  if (out.content.empty()) return corrupt("an added token is empty");
  STRATA_TRY(refuse_unknown(
      token, where, {"id", "content", "special", "lstrip", "rstrip", "single_word", "normalized", "__type"}));
  STRATA_TRY_ASSIGN(out.special, flag(token, where, "special", false));
  STRATA_TRY_ASSIGN(out.lstrip, flag(token, where, "lstrip", false));
  STRATA_TRY_ASSIGN(out.rstrip, flag(token, where, "rstrip", false));
  STRATA_TRY_ASSIGN(out.single_word, flag(token, where, "single_word", false));
  STRATA_TRY_ASSIGN(out.normalized, flag(token, where, "normalized", !out.special));
  return out;
}

Status read_vocabulary(const json& vocab, TokenizerSpec& spec) {
  if (!vocab.is_object()) return corrupt("no object 'model.vocab'");
  std::unordered_map<std::string_view, AddedToken*> added;
  std::size_t n = vocab.size();
  for (AddedToken& token : spec.added) {
    if (!added.emplace(token.content, &token).second)
      return corrupt(str("added token ", shown(token.content), " twice"));
    n += vocab.contains(token.content) ? 0 : 1;
  }
  if (n > static_cast<std::size_t>(TokenizerSpec::kMaxVocab))
    return Status::error(Code::invalid, str(n, " tokens, at most ", TokenizerSpec::kMaxVocab, " are read"));
  spec.tokens.resize(n);
  std::vector<std::int32_t> byte_tokens(256, -1);
  for (const auto& [key, id] : vocab.items()) {
    if (!id.is_number_unsigned()) return corrupt(str("token ", shown(key), " has the id ", shown(id)));
    if (const auto same = added.find(key); same != added.end()) {
      STRATA_TRY(check_added_entry(key, id, *same->second, spec.split));
      same->second->in_vocab = true;
      continue;
    }
    STRATA_TRY_ASSIGN(std::string bytes, bytes_of(key, spec.split));
    STRATA_TRY(place(spec.tokens, key, std::move(bytes), id.get<std::uint64_t>()));
    if (const auto byte = byte_of_token(key); byte && spec.split == SplitRule::none)
      byte_tokens[*byte] = id.get<std::int32_t>();
  }
  if (std::find(byte_tokens.begin(), byte_tokens.end(), -1) == byte_tokens.end())
    spec.byte_tokens = std::move(byte_tokens);
  for (const AddedToken& token : spec.added)
    STRATA_TRY(place(spec.tokens, token.content, token.content, static_cast<std::uint64_t>(token.id)));
  return {};
}

Status add_merge(const json& vocab, const std::string& left, const std::string& right, TokenizerSpec& spec) {
  if (spec.merges.size() == kMaxMerges)
    return Status::error(Code::invalid, str("more than ", kMaxMerges, " merges, which is the maximum"));
  const auto left_id = vocab.find(left);
  const auto right_id = vocab.find(right);
  if (left_id == vocab.end() || right_id == vocab.end())
    return corrupt(str("merge ", spec.merges.size(), " refers to ",
                       shown(left_id == vocab.end() ? left : right), ", which is not in the vocabulary"));
  spec.merges.push_back({left_id->get<std::int32_t>(), right_id->get<std::int32_t>(), 0});
  return {};
}

bool split_merge(std::string_view text, std::string& left, std::string& right) {
  const std::size_t space = text.find(' ');
  if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) return false;
  left = text.substr(0, space);
  right = text.substr(space + 1);
  return true;
}

std::string merge_text(const TokenizerSpec& spec, const Merge& merge) {
  const auto key = [&](std::int32_t id) {
    const std::string& token = spec.tokens[static_cast<std::size_t>(id)];
    return spec.split == SplitRule::none ? key_of_text(token) : bytes_to_alphabet(token);
  };
  return str(key(merge.left), " ", key(merge.right));
}

std::string quoted(const std::string& text) {
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

std::vector<const AddedToken*> added_by_id(const TokenizerSpec& spec) {
  std::vector<const AddedToken*> out(spec.tokens.size(), nullptr);
  for (const AddedToken& token : spec.added) out[static_cast<std::size_t>(token.id)] = &token;
  return out;
}

std::string vocabulary_key(const TokenizerSpec& spec, const std::vector<const AddedToken*>& added,
                           std::size_t id) {
  if (added[id] != nullptr) return added[id]->content;
  const std::string& token = spec.tokens[id];
  if (spec.split != SplitRule::none) return bytes_to_alphabet(token);
  const auto first = static_cast<unsigned char>(token[0]);
  const bool is_byte = token.size() == 1 && spec.byte_tokens[first] == static_cast<std::int32_t>(id);
  return is_byte ? key_of_byte(first) : key_of_text(token);
}

}  // namespace strata::detail
