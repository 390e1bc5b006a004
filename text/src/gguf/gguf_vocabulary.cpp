#include <strata/text/gguf_vocabulary.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <strata/text/model_rows.h>
#include <strata/runtime/str.h>

#include "gguf/sentencepiece_scores.h"
#include "tokenizer/tokenizer_vocab.h"

namespace strata {
namespace {

using detail::added_by_id;
using detail::merge_text;
using detail::SentencePieceScores;
using detail::vocabulary_key;

// Types of tokens (llama_token_type).
constexpr std::int32_t kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6;

/// The name by which llama.cpp knows a splitting rule. Its rules of LLaMA-3 and GLM-4 have the same
/// expression and differ in ignore_merges. Empty: there is none.
std::string_view pre_tokenizer_name(const TokenizerSpec& spec) {
  switch (spec.split) {
    case SplitRule::gpt2:
      return spec.ignore_merges ? "" : "gpt-2";
    case SplitRule::digits:
      return spec.ignore_merges ? "" : "refact";
    case SplitRule::cl100k:
      return spec.ignore_merges ? "llama-bpe" : "chatglm-bpe";
    case SplitRule::qwen2:
      return spec.ignore_merges ? "" : "qwen2";
    case SplitRule::none:
      return "default";
  }
  return "";
}

/// Texts and types of all tokens.
struct GgufTokens {
  std::vector<std::string> texts;
  std::vector<std::int32_t> types;
};

GgufTokens gguf_tokens(const Tokenizer& tokenizer, std::int64_t vocab) {
  const TokenizerSpec& spec = tokenizer.spec();
  const std::vector<const AddedToken*> added = added_by_id(spec);
  const std::set<std::int32_t> bytes(spec.byte_tokens.begin(), spec.byte_tokens.end());
  GgufTokens tokens;
  // llama.cpp has a row for each token, so those without one in the model are left out.
  const std::size_t n = std::min(spec.tokens.size(), static_cast<std::size_t>(vocab));
  for (std::size_t id = 0; id < n; ++id) {
    tokens.texts.push_back(vocabulary_key(spec, added, id));
    const bool is_byte = spec.split == SplitRule::none && bytes.contains(static_cast<std::int32_t>(id));
    const bool is_unknown = spec.split == SplitRule::none && !spec.unk_token.empty() &&
                            added[id] != nullptr && added[id]->content == spec.unk_token;
    tokens.types.push_back(is_unknown             ? kUnknown
                           : added[id] == nullptr ? (is_byte ? kByte : kNormal)
                           : added[id]->special   ? kControl
                                                  : kUserDefined);
  }
  for (auto id = static_cast<std::int64_t>(spec.tokens.size()); id < vocab; ++id) {
    tokens.texts.push_back(str("[PAD", id, "]"));
    tokens.types.push_back(kUnused);
  }
  return tokens;
}

/// llama.cpp finds tokens by their text and ends the program if two are equal.
Status check_texts(const std::vector<std::string>& texts) {
  std::set<std::string_view> seen;
  for (std::size_t id = 0; id < texts.size(); ++id)
    if (!seen.insert(texts[id]).second)
      return Status::error(Code::unsupported,
                           str("token ", id, " and an earlier one have the text '", texts[id],
                               "', and llama.cpp distinguishes tokens by it: export as --format hf"));
  return {};
}

/// The tokens that begin, end and pad a text; -1: none.
struct SpecialIds {
  std::int32_t bos = -1, eos = -1, pad = -1;
};
SpecialIds special_ids(const Tokenizer& tokenizer, const GgufTexts& given) {
  const TextMarkers& markers = tokenizer.markers();
  const std::int32_t bos = markers.bos >= 0 ? markers.bos : markers_of(tokenizer).end;
  return {bos, given.end >= 0 ? given.end : markers.end, markers.pad};
}

/// Writes the tokens that llama.cpp adds around a text: it knows only BOS and EOS.
void add_surroundings(const TokenizerSpec& spec, SpecialIds ids, GgufMetadata& metadata,
                      std::vector<std::string>& notes) {
  const bool begins = spec.prefix.size() == 1, ends = spec.suffix.size() == 1 && spec.suffix[0] == ids.eos;
  if (begins) ids.bos = spec.prefix[0];
  if ((!begins && !spec.prefix.empty()) || (!ends && !spec.suffix.empty()))
    notes.push_back(str("the tokenizer adds ", spec.prefix.size(), " tokens before a text and ",
                        spec.suffix.size(), " behind it; llama.cpp adds only a BOS and an EOS by itself"));
  if (ids.eos < 0)
    notes.push_back(str("no token is known to end a text, so llama.cpp ends it with token ",
                        spec.split == SplitRule::none ? 2 : 11));
  for (const auto& [key, id] : {std::pair{"bos", ids.bos}, {"eos", ids.eos}, {"padding", ids.pad}})
    if (id >= 0) metadata.add_u32(str("tokenizer.ggml.", key, "_token_id"), id);
  metadata.add_bool("tokenizer.ggml.add_bos_token", begins);
  metadata.add_bool("tokenizer.ggml.add_eos_token", ends);
}

using MergePairs = std::set<std::pair<std::int32_t, std::int32_t>>;

/// Whether every two tokens whose texts together are a token's are merged.
bool are_all_merges(const TokenizerSpec& spec, const MergePairs& pairs) {
  const std::vector<const AddedToken*> added = added_by_id(spec);
  const std::set<std::int32_t> bytes(spec.byte_tokens.begin(), spec.byte_tokens.end());
  std::unordered_map<std::string_view, std::int32_t> ids;
  for (std::size_t id = 0; id < spec.tokens.size(); ++id)
    if (added[id] == nullptr && !bytes.contains(static_cast<std::int32_t>(id)))
      ids.emplace(spec.tokens[id], static_cast<std::int32_t>(id));
  for (const auto& [text, id] : ids)
    for (std::size_t at = 1; at < text.size(); ++at) {
      const auto left = ids.find(text.substr(0, at)), right = ids.find(text.substr(at));
      if (left != ids.end() && right != ids.end() && !pairs.contains({left->second, right->second}))
        return false;
    }
  return true;
}

void add_sentencepiece(const Tokenizer& tokenizer, std::int64_t vocab, GgufMetadata& metadata,
                       std::vector<std::string>& notes) {
  const TokenizerSpec& spec = tokenizer.spec();
  SentencePieceScores found = detail::sentencepiece_scores(spec);
  found.scores.resize(static_cast<std::size_t>(vocab), -static_cast<float>(spec.merges.size()));  // padding
  metadata.add_f32s("tokenizer.ggml.scores", found.scores);
  metadata.add_bool("tokenizer.ggml.add_space_prefix", spec.prefix_space != PrefixSpace::none);
  if (const std::int32_t id = spec.unk_token.empty() ? -1 : tokenizer.added_id(spec.unk_token); id >= 0)
    metadata.add_u32("tokenizer.ggml.unknown_token_id", id);
  if (!found.exact)
    notes.push_back(
        "the merges are not ordered as SentencePiece's are: llama.cpp may split some texts into other "
        "tokens");
  if (spec.prefix_space == PrefixSpace::first || spec.prefix_space == PrefixSpace::if_absent)
    notes.push_back(
        "llama.cpp adds a space before a text and behind each special token, the tokenizer not everywhere");
}

/// Whether it is Phi-3's tokenizer, whose rules llama.cpp has.
bool is_phi3(const Tokenizer& tokenizer) {
  bool strips = false;
  for (const AddedToken& token : tokenizer.spec().added) strips = strips || token.rstrip;
  for (const std::string_view token : {"<unk>", "<s>", "</s>", "<|endoftext|>"})
    if (tokenizer.added_id(token) < 0) return false;
  return strips;
}

/// Settings that llama.cpp has no key for.
void note_differences(const Tokenizer& tokenizer, std::vector<std::string>& notes) {
  const TokenizerSpec& spec = tokenizer.spec();
  if (spec.nfc) notes.push_back("llama.cpp does not normalize text to NFC, as the tokenizer does");
  const auto strips = [](const AddedToken& token) {
    return token.lstrip || token.rstrip || token.single_word;
  };
  const auto n = std::count_if(spec.added.begin(), spec.added.end(), strips);
  if (n > 0 && !is_phi3(tokenizer))
    notes.push_back(str(n, " added tokens, such as ",
                        std::find_if(spec.added.begin(), spec.added.end(), strips)->content,
                        ", take white space beside them or need a word boundary, which llama.cpp ignores"));
}

}  // namespace

std::string gguf_model_name(const Tokenizer& tokenizer, const std::string& name,
                            std::vector<std::string>& notes) {
  std::string lower = name;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 'a' - 'A' : c); });
  const bool is_named = lower.find("phi3") != std::string::npos || lower.find("phi-3") != std::string::npos;
  if (is_named == is_phi3(tokenizer)) return name;
  if (!is_named) return name + " (Phi-3)";
  notes.push_back(
      str("the file has no general.name, since llama.cpp expects Phi-3's tokenizer in a model named ", name));
  return {};
}

namespace detail {

SentencePieceScores sentencepiece_scores(const TokenizerSpec& spec) {
  SentencePieceScores out;
  std::vector<std::int64_t> order(spec.tokens.size(), -1);  // the first merge with this result, indexed by id
  MergePairs pairs;
  std::int64_t n_results = 0;
  for (const Merge& merge : spec.merges) {
    std::int64_t& place = order[static_cast<std::size_t>(merge.result)];
    if (place < 0) place = n_results++;
    out.exact = out.exact && place == n_results - 1;
    pairs.emplace(merge.left, merge.right);
  }
  out.exact = out.exact && are_all_merges(spec, pairs);
  for (const std::int64_t place : order)
    out.scores.push_back(-static_cast<float>(place < 0 ? n_results : place));
  return out;
}

}  // namespace detail

Status add_vocabulary(const Tokenizer& tokenizer, std::int64_t vocab, const GgufTexts& given,
                      GgufMetadata& metadata, std::vector<std::string>& notes) {
  const TokenizerSpec& spec = tokenizer.spec();
  STRATA_TRY(check_tokenizer_rows(tokenizer, vocab));
  if (tokenizer.vocab_size() > vocab)
    notes.push_back(
        str("the tokenizer's added tokens from ", vocab, " on are left out: the model has no rows for them"));
  const std::string_view pre = pre_tokenizer_name(spec);
  if (pre.empty())
    return Status::error(Code::unsupported,
                         "llama.cpp has no tokenizer with ignore_merges and this splitting rule: export as "
                         "--format hf");
  const GgufTokens tokens = gguf_tokens(tokenizer, vocab);
  STRATA_TRY(check_texts(tokens.texts));
  const bool by_bytes = spec.split != SplitRule::none;
  metadata.add_text("tokenizer.ggml.model", by_bytes ? "gpt2" : "llama");
  metadata.add_text("tokenizer.ggml.pre", pre);
  metadata.add_texts("tokenizer.ggml.tokens", tokens.texts);
  metadata.add_i32s("tokenizer.ggml.token_type", tokens.types);
  if (by_bytes) {
    std::vector<std::string> merges;
    for (const Merge& merge : spec.merges) merges.push_back(merge_text(spec, merge));
    metadata.add_texts("tokenizer.ggml.merges", merges);
  } else {
    add_sentencepiece(tokenizer, vocab, metadata, notes);
  }
  SpecialIds ids = special_ids(tokenizer, given);
  for (std::int32_t* const id : {&ids.bos, &ids.eos, &ids.pad})
    if (*id >= vocab) *id = -1;
  add_surroundings(spec, ids, metadata, notes);
  if (!given.chat_template.empty()) metadata.add_text("tokenizer.chat_template", given.chat_template);
  note_differences(tokenizer, notes);
  return {};
}

}  // namespace strata
