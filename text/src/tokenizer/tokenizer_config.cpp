#include <strata/text/tokenizer_config.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include <nlohmann/json.hpp>

#include <strata/text/model_files.h>
#include <strata/text/tokenizer_spec.h>
#include <strata/runtime/str.h>

#include <strata/runtime/config/json_fields.h>
#include <strata/runtime/config/strict_json.h>
#include "tokenizer/tokenizer_vocab.h"

namespace strata {
namespace {

using detail::corrupt;
using detail::field;
using detail::shown;
using nlohmann::json;

constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{16} << 20;

Status take_string(const json& root, const char* key, std::string& out) {
  const json& value = field(root, key);
  if (value.is_null()) return {};
  if (!value.is_string()) return corrupt(str(key, " is ", shown(value), ", not a string"));
  out = value.get<std::string>();
  return {};
}

/// Reads "<s>", or {"content": "<s>", ...}, which is how an AddedToken is written.
Status take_token(const json& root, const char* key, std::string& out) {
  const json& value = field(root, key);
  if (value.is_null()) return {};
  const json& content = value.is_object() ? field(value, "content") : value;
  if (!content.is_string()) return corrupt(str(key, " is ", shown(value), ", not a token"));
  out = content.get<std::string>();
  return {};
}

/// Reads one string, or a list of {"name": ..., "template": ...}.
Status take_chat_template(const json& root, std::string& out) {
  const json& value = field(root, "chat_template");
  if (!value.is_array()) return take_string(root, "chat_template", out);
  std::string names;
  for (const json& entry : value) {
    if (!entry.is_object() || !field(entry, "name").is_string() || !field(entry, "template").is_string())
      return corrupt(str("chat_template has ", shown(entry), ", which lacks a name or a template"));
    names += str(names.empty() ? "" : ", ", field(entry, "name").get<std::string>().substr(0, 40));
    if (field(entry, "name") == "default") out = field(entry, "template").get<std::string>();
  }
  // transformers refuses such a folder's conversations, too; without a template they would be written as
  // plain.
  if (out.empty() && !names.empty())
    out = str("{{ raise_exception(",
              json(str("the folder has the chat templates ", names, ", and none is the default")).dump(),
              ") }}");
  return {};
}

Status take_added(const json& root, std::vector<AddedToken>& out) {
  const json& decoder = field(root, "added_tokens_decoder");
  if (decoder.is_null()) return {};
  if (!decoder.is_object())
    return corrupt(str("added_tokens_decoder is ", shown(decoder), ", not an object"));
  for (const auto& [key, value] : decoder.items()) {
    STRATA_TRY_ASSIGN(AddedToken token, detail::read_added_token(value));
    const char* const end = key.data() + key.size();
    const auto parsed = std::from_chars(key.data(), end, token.id);
    if (parsed.ec != std::errc() || parsed.ptr != end || token.id < 0 || token.id >= TokenizerSpec::kMaxVocab)
      return corrupt(
          str("added_tokens_decoder: ", shown(key), " is not a token id below ", TokenizerSpec::kMaxVocab));
    out.push_back(std::move(token));
  }
  std::sort(out.begin(), out.end(), [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  return {};
}

Result<std::int32_t> id_of(const json& value, const char* key) {
  if (!value.is_number_unsigned() ||
      value.get<std::uint64_t>() >= static_cast<std::uint64_t>(TokenizerSpec::kMaxVocab))
    return corrupt(str(key, " is ", shown(value), ", not a token id below ", TokenizerSpec::kMaxVocab));
  return value.get<std::int32_t>();
}
Status take_id(const json& root, const char* key, std::optional<std::int32_t>& out) {
  if (field(root, key).is_null()) return {};
  STRATA_TRY_ASSIGN(out, id_of(field(root, key), key));
  return {};
}

Result<json> parse_object(const std::string& text) {
  STRATA_TRY_ASSIGN(json root, detail::parse_strict_json(text));
  if (!root.is_object()) return corrupt("not a JSON object");
  return root;
}

Status take_named_tokens(const json& root, TokenizerConfig& out) {
  STRATA_TRY(take_token(root, "bos_token", out.bos_token));
  STRATA_TRY(take_token(root, "eos_token", out.eos_token));
  STRATA_TRY(take_token(root, "pad_token", out.pad_token));
  return take_token(root, "unk_token", out.unk_token);
}

/// Older folders name their tokens in a file of its own. As in transformers it takes precedence, unless
/// tokenizer_config.json has an added_tokens_decoder.
Status take_special_tokens_map(Io& io, const std::string& folder, TokenizerConfig& out) {
  const std::string path = folder + "/special_tokens_map.json";
  if (!out.added.empty() || !tokenizer_file_exists(io, path)) return {};
  STRATA_TRY_ASSIGN(const std::string text,
                    read_tokenizer_file_in(io, folder, "special_tokens_map.json", kMaxConfigBytes));
  const Result<json> root = parse_object(text);
  if (!root.has_value()) return root.status().annotate(path);
  return take_named_tokens(*root, out).annotate(path);
}

}  // namespace

Result<TokenizerConfig> parse_tokenizer_config(const std::string& text) {
  STRATA_TRY_ASSIGN(const json root, parse_object(text));
  TokenizerConfig out;
  STRATA_TRY(take_string(root, "tokenizer_class", out.tokenizer_class));
  STRATA_TRY(take_named_tokens(root, out));
  STRATA_TRY(take_chat_template(root, out.chat_template));
  STRATA_TRY_ASSIGN(out.add_bos_token, detail::flag(root, "", "add_bos_token", false));
  STRATA_TRY_ASSIGN(out.add_prefix_space, detail::flag(root, "", "add_prefix_space", false));
  STRATA_TRY(take_added(root, out.added));
  return out;
}

Result<GenerationConfig> parse_generation_config(const std::string& text) {
  STRATA_TRY_ASSIGN(const json root, parse_object(text));
  GenerationConfig out;
  STRATA_TRY(take_id(root, "bos_token_id", out.bos));
  STRATA_TRY(take_id(root, "pad_token_id", out.pad));
  const json& eos = field(root, "eos_token_id");
  if (eos.is_null()) return out;
  for (const json& id : eos.is_array() ? eos.get<std::vector<json>>() : std::vector<json>{eos}) {
    STRATA_TRY_ASSIGN(const std::int32_t end, id_of(id, "eos_token_id"));
    out.eos.push_back(end);
  }
  return out;
}

std::string with_chat_template(const std::string& text, const std::string& jinja) {
  auto config = detail::parse_strict_json(text);
  if (!config.has_value() || !config->is_object() || !config->contains("chat_template")) return text;
  (*config)["chat_template"] = jinja;
  return config->dump(2) + "\n";
}

Result<TokenizerConfig> load_tokenizer_config(Io& io, const std::string& folder) {
  TokenizerConfig out;
  if (const std::string path = folder + "/tokenizer_config.json"; tokenizer_file_exists(io, path)) {
    STRATA_TRY_ASSIGN(const std::string text,
                      read_tokenizer_file_in(io, folder, "tokenizer_config.json", kMaxConfigBytes));
    auto parsed = parse_tokenizer_config(text);
    if (!parsed) return std::move(parsed).error().annotate(path);
    out = std::move(*parsed);
  }
  STRATA_TRY(take_special_tokens_map(io, folder, out));
  if (const std::string path = folder + "/chat_template.jinja"; tokenizer_file_exists(io, path)) {
    STRATA_TRY_ASSIGN(out.chat_template,
                      read_tokenizer_file_in(io, folder, "chat_template.jinja", kMaxConfigBytes));
  }
  return out;
}

Result<GenerationConfig> load_generation_config(Io& io, const std::string& folder) {
  const std::string path = folder + "/generation_config.json";
  if (!tokenizer_file_exists(io, path)) return GenerationConfig{};
  STRATA_TRY_ASSIGN(const std::string text,
                    read_tokenizer_file_in(io, folder, "generation_config.json", kMaxConfigBytes));
  auto parsed = parse_generation_config(text);
  if (!parsed) return std::move(parsed).error().annotate(path);
  return parsed;
}

}  // namespace strata
