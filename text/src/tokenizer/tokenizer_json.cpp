#include <strata/text/tokenizer.h>

#include <utility>

#include <nlohmann/json.hpp>

#include <strata/runtime/str.h>

#include <strata/runtime/config/json_fields.h>
#include "tokenizer/pretokenizer.h"
#include "tokenizer/sentencepiece.h"
#include <strata/runtime/config/strict_json.h>
#include "tokenizer/tokenizer_pipeline.h"
#include "tokenizer/tokenizer_vocab.h"

namespace strata {
namespace {

using detail::corrupt;
using detail::field;
using detail::quoted;
using detail::shown;
using nlohmann::json;

Status read_added(const json& root, TokenizerSpec& spec) {
  const json& added = field(root, "added_tokens");
  if (added.is_null()) return {};
  if (!added.is_array()) return corrupt(str("added_tokens is ", shown(added), ", not a list"));
  for (const json& entry : added) {
    STRATA_TRY_ASSIGN(AddedToken token, detail::read_added_token(entry));
    const json& id = field(entry, "id");
    if (!id.is_number_unsigned())
      return corrupt(str("added_tokens has ", shown(entry), ", which lacks a content or an id"));
    if (id.get<std::uint64_t>() >= static_cast<std::uint64_t>(TokenizerSpec::kMaxVocab))
      return corrupt(str("added token ", shown(token.content), " has id ", id.dump(), ", the largest is ",
                         TokenizerSpec::kMaxVocab - 1));
    token.id = id.get<std::int32_t>();
    spec.added.push_back(std::move(token));
  }
  return {};
}

/// Reads the model section, except its tokens and merges.
Status read_model_options(const json& model, TokenizerSpec& spec) {
  if (!model.is_object()) return corrupt("no object 'model'");
  // Files of 2020 omit the type; then the presence of merges decides.
  if (const json& type = field(model, "type"); type != "BPE" && !(type.is_null() && model.contains("merges")))
    return detail::unsupported(str("model.type is ", shown(type), ", only \"BPE\" is supported"));
  STRATA_TRY(detail::refuse_unknown(
      model, "model.",
      {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
       "byte_fallback", "ignore_merges", "vocab", "merges"}));
  STRATA_TRY(
      detail::refuse_set(model, "model.", {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}));
  const json& unk = field(model, "unk_token");
  if (!unk.is_null() && !unk.is_string())
    return corrupt(str("model.unk_token is ", shown(unk), ", not a token"));
  if (unk.is_string()) spec.unk_token = unk.get<std::string>();
  STRATA_TRY_ASSIGN(spec.fuse_unk, detail::flag(model, "model.", "fuse_unk", false));
  STRATA_TRY_ASSIGN(spec.byte_fallback, detail::flag(model, "model.", "byte_fallback", false));
  STRATA_TRY_ASSIGN(spec.ignore_merges, detail::flag(model, "model.", "ignore_merges", false));
  return {};
}

/// Reads merges written as "Ġ t" or, by newer writers, as ["Ġ", "t"].
Status read_merges(const json& merges, const json& vocab, TokenizerSpec& spec) {
  if (!merges.is_array()) return corrupt("no list 'model.merges'");
  std::string left;
  std::string right;
  for (const json& merge : merges) {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    } else if (!merge.is_string() || !detail::split_merge(merge.get_ref<const std::string&>(), left, right)) {
      return corrupt(str("merge ", spec.merges.size(), " is ", shown(merge), ", not two tokens"));
    }
    STRATA_TRY(detail::add_merge(vocab, left, right, spec));
  }
  return {};
}

Result<TokenizerSpec> spec_from(const std::string& text) {
  STRATA_TRY_ASSIGN(const json root, detail::parse_strict_json(text));
  if (!root.is_object()) return corrupt("not a JSON object");
  STRATA_TRY(detail::refuse_unknown(root, "",
                                    {"version", "truncation", "padding", "added_tokens", "normalizer",
                                     "pre_tokenizer", "post_processor", "decoder", "model"}));
  TokenizerSpec spec;
  const json& model = field(root, "model");
  STRATA_TRY(read_model_options(model, spec));
  STRATA_TRY(read_added(root, spec));
  if (detail::is_sentencepiece(root)) spec.split = SplitRule::none;
  const json& vocab = field(model, "vocab");
  STRATA_TRY(detail::read_vocabulary(vocab, spec));
  STRATA_TRY(detail::read_pipeline(root, spec));
  STRATA_TRY(read_merges(field(model, "merges"), vocab, spec));
  return spec;
}

const char* spelled(bool value) { return value ? "true" : "false"; }

std::string added_to_json(const AddedToken& token) {
  return str(R"({"id": )", token.id, R"(, "content": )", quoted(token.content), R"(, "single_word": )",
             spelled(token.single_word), R"(, "lstrip": )", spelled(token.lstrip), R"(, "rstrip": )",
             spelled(token.rstrip), R"(, "normalized": )", spelled(token.normalized), R"(, "special": )",
             spelled(token.special), "}");
}

std::string normalizer_to_json(const TokenizerSpec& spec) {
  if (!spec.normalizer.empty()) return spec.normalizer;
  return spec.nfc ? R"({"type": "NFC"})" : "null";
}

std::string pre_tokenizer_to_json(const TokenizerSpec& spec) {
  if (!spec.pre_tokenizer.empty()) return spec.pre_tokenizer;
  const SplitRule rule = spec.split;
  constexpr std::string_view kToBytes =
      R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": )";
  std::string splits = str(kToBytes, R"(true, "use_regex": true})");
  if (rule == SplitRule::gpt2) return splits;
  if (rule == SplitRule::digits)
    return str(R"({"type": "Sequence", "pretokenizers": [
    {"type": "Digits", "individual_digits": true},
    )",
               splits, "\n  ]}");
  return str(R"({"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"Regex": )",
             quoted(std::string(detail::regex_of(rule))), R"(}, "behavior": "Isolated", "invert": false},
    )",
             kToBytes, R"(false, "use_regex": false}
  ]})");
}

std::string vocabulary_to_json(const TokenizerSpec& spec) {
  const std::vector<const AddedToken*> added = detail::added_by_id(spec);
  std::string out = "{";
  const char* between = "\n      ";
  for (std::size_t id = 0; id < spec.tokens.size(); ++id) {
    if (added[id] != nullptr && !added[id]->in_vocab) continue;
    out += str(between, quoted(detail::vocabulary_key(spec, added, id)), ": ", id);
    between = ",\n      ";
  }
  return out + "\n    }";
}

/// Writes "Ġ t" instead of ["Ġ", "t"], which readers before 2024 do not support.
std::string merges_to_json(const TokenizerSpec& spec) {
  std::string out = "[";
  const char* between = "\n      ";
  for (const Merge& merge : spec.merges) {
    out += str(between, quoted(detail::merge_text(spec, merge)));
    between = ",\n      ";
  }
  return out + "\n    ]";
}

}  // namespace

Result<Tokenizer> Tokenizer::from_json(const std::string& text) {
  if (text.size() > detail::kMaxTokenizerFileBytes)
    return Status::error(Code::invalid, str(text.size(), " bytes of JSON; at most ",
                                            detail::kMaxTokenizerFileBytes, " are read"));
  STRATA_TRY_ASSIGN(TokenizerSpec spec, spec_from(text));
  return create(std::move(spec));
}

std::string Tokenizer::note() const {
  std::string keys;
  for (const std::string& key : spec().ignored) keys += str(keys.empty() ? "" : " and ", key);
  if (keys.empty()) return {};
  return str("tokenizer.json keeps ", keys,
             " of an earlier call, which is ignored: no text is cut or padded");
}

Status Tokenizer::save(Io& io, const std::string& path) const {
  return write_text_atomically(io, path, to_json());
}

std::string detail::tokenizer_json(const TokenizerSpec& s) {
  constexpr std::string_view kByteLevel =
      R"({"add_prefix_space":true,"trim_offsets":false,"type":"ByteLevel","use_regex":true})";
  std::string added;
  for (const AddedToken& token : s.added)
    added += str(added.empty() ? "\n    " : ",\n    ", added_to_json(token));
  return str(R"({
  "version": "1.0",
  "truncation": null,
  "padding": null,
  "added_tokens": [)",
             added, R"(
  ],
  "normalizer": )",
             normalizer_to_json(s), R"(,
  "pre_tokenizer": )",
             pre_tokenizer_to_json(s), R"(,
  "post_processor": )",
             !s.post_processor.empty()    ? s.post_processor
             : s.split == SplitRule::none ? "null"
                                          : std::string(kByteLevel),
             R"(,
  "decoder": )",
             s.decoder.empty() ? std::string(kByteLevel) : s.decoder, R"(,
  "model": {
    "type": "BPE", "dropout": null, "unk_token": )",
             s.unk_token.empty() ? "null" : quoted(s.unk_token),
             R"(, "continuing_subword_prefix": null,
    "end_of_word_suffix": null, "fuse_unk": )",
             spelled(s.fuse_unk), R"(, "byte_fallback": )", spelled(s.byte_fallback),
             R"(, "ignore_merges": )", spelled(s.ignore_merges), R"(,
    "vocab": )",
             vocabulary_to_json(s), R"(,
    "merges": )",
             merges_to_json(s), "\n  }\n}\n");
}

std::string Tokenizer::to_json() const { return detail::tokenizer_json(spec()); }

}  // namespace strata
