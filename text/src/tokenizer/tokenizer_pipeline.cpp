#include "tokenizer/tokenizer_pipeline.h"

#include <optional>
#include <string>

#include <strata/runtime/str.h>

#include <strata/runtime/config/json_fields.h>
#include "tokenizer/pretokenizer.h"
#include "tokenizer/sentencepiece.h"
#include "tokenizer/tokenizer_sections.h"

namespace strata::detail {

using nlohmann::json;

namespace {

Status read_normalizer(const json& root, TokenizerSpec& spec) {
  STRATA_TRY_ASSIGN(const auto parts, parts_of(field(root, "normalizer"), "normalizer", "normalizers"));
  for (const json& part : parts) {
    if (type_of(part) != "NFC") return wrong_kind("normalizer", part, "null or NFC");
    STRATA_TRY(refuse_unknown(part, "normalizer.", {"type"}));
    spec.nfc = true;
  }
  return {};
}

/// "Isolated" keeps the text between matches as pre-tokens, while "Removed" with `invert` drops it. With the
/// known expressions there is no text between matches, so both mean the same.
Result<SplitRule> read_split(const json& part) {
  STRATA_TRY(refuse_unknown(part, "pre_tokenizer.Split.", {"type", "pattern", "behavior", "invert"}));
  const json& pattern = field(part, "pattern");
  if (!pattern.is_object() || !field(pattern, "Regex").is_string())
    return unsupported(str("pre_tokenizer.Split.pattern is ", shown(pattern), ", only a Regex is supported"));
  const auto& regex = field(pattern, "Regex").get_ref<const std::string&>();
  const std::optional<SplitRule> rule = rule_of_regex(regex);
  if (!rule)
    return unsupported(str("pre_tokenizer.Split: the expression '", regex.substr(0, 200),
                           "' is none of those of GPT-2, LLaMA-3, GLM-4 and Qwen"));
  STRATA_TRY_ASSIGN(const bool invert, flag(part, "pre_tokenizer.Split.", "invert", false));
  const json& behavior = field(part, "behavior");
  if (behavior != (invert ? "Removed" : "Isolated"))
    return unsupported(str("pre_tokenizer.Split: behavior ", shown(behavior),
                           " with invert = ", invert ? "true" : "false", " is not supported"));
  return *rule;
}

Result<SplitRule> read_digits(const json& part) {
  STRATA_TRY(refuse_unknown(part, "pre_tokenizer.Digits.", {"type", "individual_digits"}));
  STRATA_TRY_ASSIGN(const bool each, flag(part, "pre_tokenizer.Digits.", "individual_digits", false));
  if (each) return SplitRule::digits;
  return unsupported("pre_tokenizer.Digits: individual_digits = false is not supported");
}

Status read_pre_tokenizer(const json& root, TokenizerSpec& spec) {
  const json& whole = field(root, "pre_tokenizer");
  STRATA_TRY_ASSIGN(const auto parts, parts_of(whole, "pre_tokenizer", "pretokenizers"));
  std::optional<SplitRule> rule;
  bool to_bytes = false;
  for (const json& part : parts) {
    if (type_of(part) == "Split" && !rule && !to_bytes) {
      STRATA_TRY_ASSIGN(rule, read_split(part));
      continue;
    }
    if (type_of(part) == "Digits" && !rule && !to_bytes) {
      STRATA_TRY_ASSIGN(rule, read_digits(part));
      continue;
    }
    if (type_of(part) != "ByteLevel" || to_bytes)
      return wrong_kind("pre_tokenizer", part, "ByteLevel, alone or behind one Split or Digits,");
    to_bytes = true;
    STRATA_TRY(
        refuse_unknown(part, "pre_tokenizer.", {"type", "add_prefix_space", "trim_offsets", "use_regex"}));
    STRATA_TRY(refuse_set(part, "pre_tokenizer.", {"add_prefix_space"}));
    STRATA_TRY_ASSIGN(const bool splits, flag(part, "pre_tokenizer.", "use_regex", true));
    if (splits == (rule.has_value() && *rule != SplitRule::digits))
      return unsupported(str("pre_tokenizer.use_regex = ", splits ? "true after" : "false without",
                             " a Split is not supported"));
    if (!rule) rule = SplitRule::gpt2;
  }
  if (!to_bytes) return wrong_kind("pre_tokenizer", whole, "ByteLevel, alone or behind one Split or Digits,");
  spec.split = *rule;
  return {};
}

Status read_decoder(const json& root) {
  STRATA_TRY_ASSIGN(const auto parts, parts_of(field(root, "decoder"), "decoder", "decoders"));
  for (const json& part : parts)
    if (type_of(part) != "ByteLevel") return wrong_kind("decoder", part, "ByteLevel");
  return {};
}

/// Appends the ids of a piece of a template: {"SpecialToken": {"id": "<s>", "type_id": 0}}.
Status take_special(const json& piece, const json& tokens, std::vector<std::int32_t>& out,
                    std::size_t vocab) {
  const json& name = piece.is_object() ? field(piece, "id") : piece;
  if (!name.is_string())
    return corrupt(str("post_processor.single has ", shown(piece), ", which names no token"));
  const auto& key = name.get_ref<const std::string&>();
  const auto token = tokens.is_object() ? tokens.find(key) : tokens.end();
  if (token == tokens.end() || !token->is_object() || !field(*token, "ids").is_array())
    return corrupt(str("post_processor.special_tokens has no ids for ", shown(key)));
  for (const json& id : field(*token, "ids")) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= vocab)
      return corrupt(str("post_processor.special_tokens: ", shown(key), " is ", shown(id),
                         " in a vocabulary of ", vocab));
    out.push_back(id.get<std::int32_t>());
  }
  return {};
}

Status read_template(const json& part, TokenizerSpec& spec) {
  STRATA_TRY(refuse_unknown(part, "post_processor.", {"type", "single", "pair", "special_tokens"}));
  const json& single = field(part, "single");
  if (!single.is_array()) return corrupt(str("post_processor.single is ", shown(single), ", not a list"));
  bool text_seen = false;
  for (const json& piece : single) {
    if (!piece.is_object() || piece.size() != 1)
      return corrupt(str("post_processor.single has ", shown(piece), ", which is not a piece of a template"));
    if (piece.contains("SpecialToken")) {
      STRATA_TRY(take_special(piece["SpecialToken"], field(part, "special_tokens"),
                              text_seen ? spec.suffix : spec.prefix, spec.tokens.size()));
      continue;
    }
    const json& sequence = field(piece, "Sequence");
    const bool is_text = sequence.is_object() && field(sequence, "id").is_string() &&
                         field(sequence, "id").get_ref<const std::string&>() == "A";
    if (!is_text || text_seen)
      return corrupt(
          str("post_processor.single has ", shown(piece), ", where the text A is expected exactly once"));
    text_seen = true;
  }
  return text_seen ? Status::ok() : corrupt("post_processor.single does not contain the text");
}

Status read_post_processor(const json& root, TokenizerSpec& spec) {
  const json& whole = field(root, "post_processor");
  STRATA_TRY_ASSIGN(const auto parts, parts_of(whole, "post_processor", "processors"));
  bool seen = false;
  for (const json& part : parts) {
    if (type_of(part) == "ByteLevel") continue;  // trims offsets, but changes no id
    if (type_of(part) != "TemplateProcessing" || seen)
      return wrong_kind("post_processor", part, "ByteLevel and one TemplateProcessing");
    seen = true;
    STRATA_TRY(read_template(part, spec));
  }
  spec.post_processor = whole.dump();
  return {};
}

}  // namespace

Status read_pipeline(const json& root, TokenizerSpec& spec) {
  // The last training call set these two, so they are no property of the tokenizer: transformers resets both
  // for each call.
  for (const char* const key : {"truncation", "padding"})
    if (!field(root, key).is_null()) spec.ignored.emplace_back(key);
  if (spec.split == SplitRule::none) {
    STRATA_TRY(read_sentencepiece(root, spec));
    return read_post_processor(root, spec);
  }
  STRATA_TRY(read_normalizer(root, spec));
  STRATA_TRY(read_pre_tokenizer(root, spec));
  STRATA_TRY(read_decoder(root));
  return read_post_processor(root, spec);
}

}  // namespace strata::detail
