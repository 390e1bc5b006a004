#include <strata/text/gguf_tokenizer.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <strata/text/tokenizer_spec.h>
#include <strata/runtime/str.h>

#include <strata/runtime/config/json_fields.h>
#include <strata/runtime/utf8.h>
#include "tokenizer/tokenizer_vocab.h"

namespace strata {
namespace {

using detail::add_merge;
using detail::corrupt;
using detail::read_vocabulary;
using detail::shown;
using detail::split_merge;
using detail::unsupported;

using nlohmann::json;

constexpr const char kTokenizerKeys[] = "tokenizer.ggml.";

// Types of tokens (llama_token_type).
enum class TokenType : std::uint8_t { undefined, normal, unknown, control, user_defined, unused, byte };

/// A splitting rule by its name in llama.cpp (llama-vocab.cpp), and what goes with it there.
struct Splitting {
  std::string_view name;
  SplitRule rule;
  bool ignore_merges = false, adds_bos = false, nfc = false;
};
constexpr Splitting kSplittings[] = {
    {"gpt-2", SplitRule::gpt2},
    {"phi-2", SplitRule::gpt2},
    {"olmo", SplitRule::gpt2},
    {"mpt", SplitRule::gpt2},
    {"refact", SplitRule::digits},
    {"starcoder", SplitRule::digits},
    {"smollm", SplitRule::digits},
    {"llama-bpe", SplitRule::cl100k, true, true},
    {"llama3", SplitRule::cl100k, true, true},
    {"llama-v3", SplitRule::cl100k, true, true},
    {"glm4", SplitRule::cl100k, true},
    {"chatglm-bpe", SplitRule::cl100k},
    {"dbrx", SplitRule::cl100k},
    {"smaug-bpe", SplitRule::cl100k},
    {"qwen2", SplitRule::qwen2, false, false, true},
    {"deepseek-r1-qwen", SplitRule::qwen2, false, false, true},
};

template <class T>
Result<const T*> needed(const GgufReader& file, const std::string& name, const char* kind) {
  const T* const value = file.find<T>(kTokenizerKeys + name);
  if (value != nullptr) return value;
  const bool there = file.metadata().contains(kTokenizerKeys + name);
  return corrupt(
      str("the key ", kTokenizerKeys, name, there ? str(" is not ", kind) : std::string(" is missing")));
}

/// The tokens of a file by id, without the ones that only fill up rows of the model.
struct TokenList {
  std::vector<std::string> texts;
  std::vector<TokenType> types;

  std::int32_t size() const noexcept { return static_cast<std::int32_t>(texts.size()); }
  bool is_added(std::size_t id) const {
    return types[id] == TokenType::control || types[id] == TokenType::user_defined ||
           types[id] == TokenType::unknown;
  }
};

Result<TokenList> tokens_of(const GgufReader& file) {
  STRATA_TRY_ASSIGN(const auto* const texts,
                    needed<std::vector<std::string>>(file, "tokens", "a list of texts"));
  TokenList tokens{*texts, std::vector<TokenType>(texts->size(), TokenType::normal)};
  if (file.metadata().contains(str(kTokenizerKeys, "token_type"))) {
    STRATA_TRY_ASSIGN(const auto* const types,
                      needed<std::vector<std::int64_t>>(file, "token_type", "a list of integers"));
    if (types->size() != texts->size())
      return corrupt(str(kTokenizerKeys, "token_type has ", types->size(), " elements, but there are ",
                         texts->size(), " tokens"));
    for (std::size_t id = 0; id < types->size(); ++id) {
      const std::int64_t type = (*types)[id];
      if (type < 0 || type > static_cast<std::int64_t>(TokenType::byte))
        return corrupt(str(kTokenizerKeys, "token_type: token ", id, " has the type ", type));
      tokens.types[id] = static_cast<TokenType>(type);
    }
  }
  while (!tokens.texts.empty() && tokens.types.back() == TokenType::unused &&
         tokens.texts.back() == str("[PAD", tokens.texts.size() - 1, "]")) {
    tokens.texts.pop_back();
    tokens.types.pop_back();
  }
  std::unordered_map<std::string_view, std::size_t> seen;
  for (std::size_t id = 0; id < tokens.texts.size(); ++id)
    if (const auto [at, is_new] = seen.emplace(tokens.texts[id], id); !is_new)
      return corrupt(str(kTokenizerKeys, "tokens: tokens ", at->second, " and ", id, " have the text ",
                         shown(tokens.texts[id])));
  return tokens;
}

/// The id that a key has; -1 if there is none.
Result<std::int32_t> id_of(const GgufReader& file, const std::string& name, std::int32_t n_tokens) {
  const std::string key = str(kTokenizerKeys, name, "_token_id");
  if (!file.metadata().contains(key)) return -1;
  STRATA_TRY_ASSIGN(const auto* const id, needed<std::int64_t>(file, name + "_token_id", "an integer"));
  if (*id >= 0 && *id < n_tokens) return static_cast<std::int32_t>(*id);
  if (*id == 0xffffffff || *id == -1) return -1;  // no token
  return corrupt(str("the key ", key, " is ", *id, ", but there are ", n_tokens, " tokens"));
}

Result<bool> flag_of(const GgufReader& file, const std::string& name, bool otherwise) {
  if (!file.metadata().contains(kTokenizerKeys + name)) return otherwise;
  STRATA_TRY_ASSIGN(const bool* const value, needed<bool>(file, name, "a boolean"));
  return *value;
}

/// Adds the tokens to `spec`, and returns the vocabulary as tokenizer.json has it.
Result<json> take_tokens(const TokenList& tokens, TokenizerSpec& spec) {
  json vocab = json::object();
  for (std::size_t id = 0; id < tokens.texts.size(); ++id) {
    if (tokens.is_added(id))
      spec.added.push_back({.id = static_cast<std::int32_t>(id),
                            .content = tokens.texts[id],
                            .special = tokens.types[id] != TokenType::user_defined});
    else
      vocab[tokens.texts[id]] = id;
  }
  STRATA_TRY(read_vocabulary(vocab, spec));
  return vocab;
}

json special_json(const std::string& token, std::int32_t id) {
  return {{"id", token}, {"ids", json::array({id})}, {"tokens", json::array({token})}};
}

/// The post-processor that adds the tokens around a text, as a template of transformers.
json template_json(const TokenizerSpec& spec) {
  json single = json::array(), special = json::object();
  const auto add = [&](std::int32_t id) {
    const std::string& token = spec.tokens[static_cast<std::size_t>(id)];
    single.push_back({{"SpecialToken", {{"id", token}, {"type_id", 0}}}});
    special[token] = special_json(token, id);
  };
  for (const std::int32_t id : spec.prefix) add(id);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  for (const std::int32_t id : spec.suffix) add(id);
  json pair = single;
  pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", special}};
}

Status take_surroundings(const GgufReader& file, bool adds_bos, TokenizerSpec& spec) {
  const auto n = static_cast<std::int32_t>(spec.tokens.size());
  STRATA_TRY_ASSIGN(const bool begins, flag_of(file, "add_bos_token", adds_bos));
  STRATA_TRY_ASSIGN(const bool ends, flag_of(file, "add_eos_token", false));
  STRATA_TRY_ASSIGN(const std::int32_t bos, id_of(file, "bos", n));
  STRATA_TRY_ASSIGN(const std::int32_t eos, id_of(file, "eos", n));
  if (begins && bos >= 0) spec.prefix = {bos};
  if (ends && eos >= 0) spec.suffix = {eos};
  if (spec.prefix.empty() && spec.suffix.empty()) return {};
  json processor = template_json(spec);
  if (spec.split != SplitRule::none)
    processor = {{"type", "Sequence"},
                 {"processors", json::array({{{"type", "ByteLevel"},
                                              {"add_prefix_space", true},
                                              {"trim_offsets", false},
                                              {"use_regex", true}},
                                             processor})}};
  spec.post_processor = processor.dump();
  return {};
}

Result<TokenizerSpec> byte_level_spec(const GgufReader& file) {
  STRATA_TRY_ASSIGN(const auto* const pre, needed<std::string>(file, "pre", "a text"));
  const auto* const split = std::find_if(std::begin(kSplittings), std::end(kSplittings),
                                         [&](const Splitting& one) { return one.name == *pre; });
  if (split == std::end(kSplittings))
    return unsupported(
        str("the key ", kTokenizerKeys, "pre is ", *pre, ", a splitting rule that is not known"));
  TokenizerSpec spec;
  spec.split = split->rule;
  spec.nfc = split->nfc;
  spec.ignore_merges = split->ignore_merges;
  STRATA_TRY_ASSIGN(const TokenList tokens, tokens_of(file));
  STRATA_TRY_ASSIGN(const json vocab, take_tokens(tokens, spec));
  STRATA_TRY_ASSIGN(const auto* const merges,
                    needed<std::vector<std::string>>(file, "merges", "a list of texts"));
  std::string left, right;
  for (std::size_t i = 0; i < merges->size(); ++i) {
    if (!split_merge((*merges)[i], left, right))
      return corrupt(
          str(kTokenizerKeys, "merges: merge ", i, " is ", shown((*merges)[i]), ", not two tokens"));
    STRATA_TRY(add_merge(vocab, left, right, spec));
  }
  STRATA_TRY(take_surroundings(file, split->adds_bos, spec));
  return spec;
}

/// A merge as transformers orders it: by score, then by the lengths in characters; behind that by the order
/// in which they were found.
struct ScoredMerge {
  double score = 0;
  std::size_t left_length = 0, right_length = 0;
  std::int32_t left = 0, right = 0;
};

std::vector<ScoredMerge> merges_by_score(const TokenList& tokens, const std::vector<double>& scores) {
  std::unordered_map<std::string_view, std::int32_t> ids;
  for (std::size_t id = 0; id < tokens.texts.size(); ++id)
    if (tokens.types[id] == TokenType::normal) ids.emplace(tokens.texts[id], static_cast<std::int32_t>(id));
  std::vector<ScoredMerge> all;
  for (std::size_t id = 0; id < tokens.texts.size(); ++id) {
    if (tokens.types[id] != TokenType::normal) continue;
    const std::string_view text = tokens.texts[id];
    const auto begin = static_cast<std::ptrdiff_t>(all.size());
    std::size_t length = 0, whole = 0;
    for (std::size_t at = 0; at < text.size(); at += code_point_at(text, at).length) ++whole;
    for (std::size_t at = 0; at < text.size(); at += code_point_at(text, at).length, ++length) {
      const auto left = ids.find(text.substr(0, at)), right = ids.find(text.substr(at));
      if (at > 0 && left != ids.end() && right != ids.end())
        all.push_back({scores[id], length, whole - length, left->second, right->second});
    }
    std::sort(all.begin() + begin, all.end(), [](const ScoredMerge& a, const ScoredMerge& b) {
      return std::tie(a.left, a.right) < std::tie(b.left, b.right);
    });
  }
  std::stable_sort(all.begin(), all.end(), [](const ScoredMerge& a, const ScoredMerge& b) {
    return std::tie(a.score, a.left_length, a.right_length) >
           std::tie(b.score, b.left_length, b.right_length);
  });
  return all;
}

void take_space_rules(bool adds_space, TokenizerSpec& spec) {
  const json replace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}};
  const json restore = {{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}};
  json parts = json::array(),
       decoders = json::array({restore, {{"type", "ByteFallback"}}, {{"type", "Fuse"}}});
  if (adds_space) {
    parts.push_back({{"type", "Prepend"}, {"prepend", "\u2581"}});
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  parts.push_back(replace);
  spec.prefix_space = adds_space ? PrefixSpace::always : PrefixSpace::none;
  spec.normalizer = json{{"type", "Sequence"}, {"normalizers", parts}}.dump();
  spec.pre_tokenizer = "null";
  spec.decoder = json{{"type", "Sequence"}, {"decoders", decoders}}.dump();
}

Result<TokenizerSpec> sentencepiece_spec(const GgufReader& file) {
  TokenizerSpec spec;
  spec.split = SplitRule::none;
  spec.byte_fallback = spec.fuse_unk = true;
  STRATA_TRY_ASSIGN(const TokenList tokens, tokens_of(file));
  STRATA_TRY(take_tokens(tokens, spec).status());
  if (spec.byte_tokens.empty())
    return unsupported(str(kTokenizerKeys,
                           "tokens has not all of <0x00> to <0xFF>, which a character without a token "
                           "becomes"));
  STRATA_TRY_ASSIGN(const auto* const scores,
                    needed<std::vector<double>>(file, "scores", "a list of numbers"));
  if (scores->size() < tokens.texts.size())
    return corrupt(str(kTokenizerKeys, "scores has ", scores->size(), " elements, but there are ",
                       tokens.texts.size(), " tokens"));
  const std::vector<ScoredMerge> merges = merges_by_score(tokens, *scores);
  if (merges.size() > detail::kMaxMerges)
    return Status::error(Code::invalid,
                         str(merges.size(), " merges, at most ", detail::kMaxMerges, " are read"));
  for (const ScoredMerge& merge : merges) spec.merges.push_back({merge.left, merge.right, 0});
  STRATA_TRY_ASSIGN(const std::int32_t unknown, id_of(file, "unknown", tokens.size()));
  if (unknown >= 0) spec.unk_token = tokens.texts[static_cast<std::size_t>(unknown)];
  STRATA_TRY_ASSIGN(const bool adds_space, flag_of(file, "add_space_prefix", true));
  take_space_rules(adds_space, spec);
  STRATA_TRY(take_surroundings(file, true, spec));
  return spec;
}

/// Ids of tokens that begin, end and pad a text.
struct Markers {
  std::int32_t bos = -1, eos = -1, pad = -1, unknown = -1;
  std::vector<std::int32_t> ends;
};
Result<Markers> markers_from(const GgufReader& file) {
  STRATA_TRY_ASSIGN(const TokenList tokens, tokens_of(file));
  Markers markers;
  STRATA_TRY_ASSIGN(markers.bos, id_of(file, "bos", tokens.size()));
  STRATA_TRY_ASSIGN(markers.eos, id_of(file, "eos", tokens.size()));
  STRATA_TRY_ASSIGN(markers.pad, id_of(file, "padding", tokens.size()));
  STRATA_TRY_ASSIGN(markers.unknown, id_of(file, "unknown", tokens.size()));
  for (const char* name : {"eos", "eot", "eom"}) {
    STRATA_TRY_ASSIGN(const std::int32_t id, id_of(file, name, tokens.size()));
    if (id >= 0 && std::find(markers.ends.begin(), markers.ends.end(), id) == markers.ends.end())
      markers.ends.push_back(id);
  }
  return markers;
}

}  // namespace

Result<std::string> tokenizer_from_gguf(const GgufReader& file) {
  STRATA_TRY_ASSIGN(const auto* const model, needed<std::string>(file, "model", "a text"));
  if (*model != "gpt2" && *model != "llama")
    return unsupported(str("the key ", kTokenizerKeys, "model is ", *model, "; gpt2 and llama are read"));
  STRATA_TRY_ASSIGN(const TokenizerSpec spec,
                    *model == "gpt2" ? byte_level_spec(file) : sentencepiece_spec(file));
  return detail::tokenizer_json(spec);
}

Result<std::string> tokenizer_config_from_gguf(const GgufReader& file) {
  STRATA_TRY_ASSIGN(const Markers markers, markers_from(file));
  STRATA_TRY_ASSIGN(const TokenList tokens, tokens_of(file));
  json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}};
  for (const auto& [name, id] : {std::pair{"bos_token", markers.bos},
                                 {"eos_token", markers.eos},
                                 {"pad_token", markers.pad},
                                 {"unk_token", markers.unknown}})
    if (id >= 0) config[name] = tokens.texts[static_cast<std::size_t>(id)];
  if (const auto* const chat = file.find<std::string>("tokenizer.chat_template"))
    config["chat_template"] = *chat;
  return config.dump(2) + "\n";
}

Result<std::string> generation_config_from_gguf(const GgufReader& file) {
  STRATA_TRY_ASSIGN(const Markers markers, markers_from(file));
  json config = json::object();
  if (markers.bos >= 0) config["bos_token_id"] = markers.bos;
  if (markers.pad >= 0) config["pad_token_id"] = markers.pad;
  if (markers.ends.size() == 1) config["eos_token_id"] = markers.ends.front();
  if (markers.ends.size() > 1) config["eos_token_id"] = markers.ends;
  return config.dump(2) + "\n";
}

}  // namespace strata
