#include "tokenizer/sentencepiece.h"

#include <fmt/format.h>

#include <strata/runtime/str.h>

#include <strata/runtime/config/json_fields.h>
#include "tokenizer/tokenizer_sections.h"

namespace strata::detail {
namespace {

using nlohmann::json;

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581

/// {"type": "Replace", "pattern": {"String": from}, "content": to}
bool replaces(const json& part, std::string_view from, std::string_view to) {
  const json& pattern = field(part, "pattern");
  return type_of(part) == "Replace" && pattern.is_object() && field(pattern, "String") == from &&
         field(part, "content") == to;
}

bool writes_spaces(const json& part) { return replaces(part, " ", kSpace) || type_of(part) == "Metaspace"; }

Status read_space_normalizer(const json& root, TokenizerSpec& spec) {
  STRATA_TRY_ASSIGN(const auto parts, parts_of(field(root, "normalizer"), "normalizer", "normalizers"));
  bool replaced = false;
  for (const json& part : parts) {
    if (type_of(part) == "Prepend" && field(part, "prepend") == kSpace && !replaced)
      spec.prefix_space = PrefixSpace::always;
    else if (replaces(part, " ", kSpace) && !replaced)
      replaced = true;
    else
      return wrong_kind("normalizer", part, "Prepend and Replace of a space by U+2581");
  }
  return {};
}

Status read_metaspace(const json& part, TokenizerSpec& spec) {
  STRATA_TRY(
      refuse_unknown(part, "pre_tokenizer.",
                     {"type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"}));
  if (field(part, "replacement") != kSpace) return wrong_kind("pre_tokenizer", part, "Metaspace with U+2581");
  STRATA_TRY_ASSIGN(const bool splits, flag(part, "pre_tokenizer.", "split", true));
  if (splits) return unsupported("pre_tokenizer.split = true of a Metaspace is not supported");
  const json& scheme = field(part, "prepend_scheme");
  if (scheme == "first")
    spec.prefix_space = PrefixSpace::first;
  else if (scheme == "always")
    spec.prefix_space = PrefixSpace::if_absent;
  else if (scheme != "never")
    return unsupported(
        str("pre_tokenizer.prepend_scheme is ", shown(scheme), "; first, always and never are known"));
  return {};
}

// Gemma's pre-tokenizer splits at spaces, of which there are none after normalization.
Status read_space_pre_tokenizer(const json& root, TokenizerSpec& spec) {
  STRATA_TRY_ASSIGN(const auto parts,
                    parts_of(field(root, "pre_tokenizer"), "pre_tokenizer", "pretokenizers"));
  for (const json& part : parts) {
    const json& pattern = field(part, "pattern");
    const bool idle = type_of(part) == "Split" && pattern.is_object() && field(pattern, "String") == " " &&
                      !field(root, "normalizer").is_null();
    if (idle) continue;
    if (type_of(part) != "Metaspace" || !field(root, "normalizer").is_null())
      return wrong_kind("pre_tokenizer", part, "Metaspace, or a Split at spaces after a normalizer,");
    STRATA_TRY(read_metaspace(part, spec));
  }
  return {};
}

Status read_space_decoder(const json& root) {
  STRATA_TRY_ASSIGN(const auto parts, parts_of(field(root, "decoder"), "decoder", "decoders"));
  for (const json& part : parts)
    if (!replaces(part, kSpace, " ") && type_of(part) != "ByteFallback" && type_of(part) != "Fuse" &&
        type_of(part) != "Strip" && type_of(part) != "Metaspace")
      return wrong_kind("decoder", part, "Replace, ByteFallback, Fuse, Strip and Metaspace");
  return {};
}

void append_replaced(std::string& out, std::string_view text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t next = std::min(text.find(from, at), text.size());
    out += text.substr(at, next - at);
    if (next == text.size()) return;
    out += to;
    at = next + from.size();
  }
}

}  // namespace

bool is_sentencepiece(const json& root) {
  for (const auto& [section, list] :
       {std::pair{"normalizer", "normalizers"}, {"pre_tokenizer", "pretokenizers"}}) {
    const json& part = field(root, section);
    if (!part.is_object()) continue;
    if (writes_spaces(part)) return true;
    if (const json& parts = field(part, list); parts.is_array())
      for (const json& one : parts)
        if (one.is_object() && writes_spaces(one)) return true;
  }
  return false;
}

Status read_sentencepiece(const json& root, TokenizerSpec& spec) {
  if (spec.byte_tokens.empty() || !spec.byte_fallback)
    return unsupported(
        "model: characters without a token are known only as 256 tokens <0x00> to <0xFF>, with "
        "byte_fallback");
  if (spec.ignore_merges)
    return unsupported("model.ignore_merges = true without a splitting rule is not supported");
  for (const AddedToken& token : spec.added)
    if (token.normalized && key_of_text(token.content) != token.content)
      return unsupported(str("added token ", shown(token.content), " is normalized and has spaces"));
  STRATA_TRY(read_space_normalizer(root, spec));
  STRATA_TRY(read_space_pre_tokenizer(root, spec));
  STRATA_TRY(read_space_decoder(root));
  spec.normalizer = field(root, "normalizer").dump();
  spec.pre_tokenizer = field(root, "pre_tokenizer").dump();
  spec.decoder = field(root, "decoder").dump();
  return {};
}

std::optional<unsigned char> byte_of_token(std::string_view key) noexcept {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  if (key.size() != 6 || !key.starts_with("<0x") || key[5] != '>') return std::nullopt;
  const std::size_t high = kDigits.find(key[3]), low = kDigits.find(key[4]);
  if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
  return static_cast<unsigned char>(16 * high + low);
}

std::optional<std::string> text_of_token(std::string_view key) {
  if (key.find(' ') != std::string_view::npos) return std::nullopt;
  std::string out;
  append_replaced(out, key, kSpace, " ");
  return out;
}

std::string key_of_text(std::string_view text) {
  std::string out;
  append_replaced(out, text, " ", kSpace);
  return out;
}

std::string key_of_byte(unsigned char byte) { return fmt::format("<0x{:02X}>", byte); }

std::string normalize_spaces(std::string_view part, const TokenizerSpec& spec, TextPosition place) {
  const bool has_one = part.starts_with(' ') || part.starts_with(kSpace);
  bool in_front = false;
  switch (spec.prefix_space) {
    case PrefixSpace::none:
      break;
    case PrefixSpace::always:
      in_front = place != TextPosition::inside;
      break;
    case PrefixSpace::if_absent:
      in_front = place != TextPosition::inside && !has_one;
      break;
    case PrefixSpace::first:
      in_front = place == TextPosition::begin && !has_one;
      break;
  }
  std::string out = in_front && !part.empty() ? " " : "";
  append_replaced(out, part, kSpace, " ");
  return out;
}

}  // namespace strata::detail
