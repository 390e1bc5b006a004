#include <strata/text/text_markers.h>

#include <algorithm>

#include <strata/text/model_files.h>
#include <strata/text/tokenizer.h>
#include <strata/runtime/str.h>

#include <strata/runtime/config/json_fields.h>
#include <strata/runtime/config/strict_json.h>

namespace strata {
namespace {

using detail::corrupt;
using detail::field;
using detail::shown;
using nlohmann::json;

constexpr std::uint64_t kLimit = std::uint64_t{16} << 20;

/// Names of the token that ends a text, for tokenizers that come without a word about it.
constexpr std::string_view kKnownEnds[] = {
    Tokenizer::kEndOfText, "</s>",    "<|end_of_text|>", "<eos>", "<|im_end|>",
    "<|eot_id|>",          "<|end|>", "<|eos|>",         "[EOS]"};

std::int32_t special_id(const Tokenizer& tokenizer, std::string_view content) {
  const std::int32_t id = content.empty() ? -1 : tokenizer.added_id(content);
  return tokenizer.is_special(id) ? id : -1;
}

Result<std::int32_t> id_at(const json& root, const char* key) {
  const json& value = field(root, key);
  if (value.is_null()) return -1;
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() >= std::uint64_t{TokenizerSpec::kMaxVocab})
    return corrupt(str(key, " is ", shown(value), ", not a token id below ", TokenizerSpec::kMaxVocab));
  return value.get<std::int32_t>();
}

json id_or_null(std::int32_t id) { return id < 0 ? json() : json(id); }

/// The eos and bos ids of a folder: those of generation_config.json, and where it has none, of config.json,
/// in which older folders have them.
Result<GenerationConfig> load_ids(Io& io, const std::string& folder) {
  STRATA_TRY_ASSIGN(GenerationConfig ids, load_generation_config(io, folder));
  const std::string path = folder + "/config.json";
  if (!ids.eos.empty() || !tokenizer_file_exists(io, path)) return ids;
  STRATA_TRY_ASSIGN(const std::string text, read_tokenizer_file_in(io, folder, "config.json", kLimit));
  auto older = parse_generation_config(text);
  if (!older.has_value()) return older.status().annotate(path);
  ids.eos = older->eos;
  if (!ids.bos) ids.bos = older->bos;
  if (!ids.pad) ids.pad = older->pad;
  return ids;
}

}  // namespace

std::string folder_of_tokenizer(const std::string& tokenizer) {
  const std::size_t slash = tokenizer.rfind('/');
  const std::string name = tokenizer.substr(slash == std::string::npos ? 0 : slash + 1);
  if (!name.ends_with(".json")) return tokenizer;
  if (name != "tokenizer.json") return {};
  return slash == std::string::npos ? "." : tokenizer.substr(0, slash);
}

SpecialWords special_words(const TokenizerConfig& config) {
  SpecialWords words;
  const auto add = [&](const char* name, const std::string& token) {
    if (!token.empty()) words.emplace_back(name, token);
  };
  add("bos_token", config.bos_token);
  add("eos_token", config.eos_token);
  add("pad_token", config.pad_token);
  add("unk_token", config.unk_token);
  return words;
}

bool TextMarkers::is_end(std::int32_t id) const noexcept {
  return std::find(ends.begin(), ends.end(), id) != ends.end();
}

void TextMarkers::add_end(std::int32_t id) {
  if (id >= 0 && !is_end(id)) ends.push_back(id);
}

TextMarkers markers_of(const Tokenizer& tokenizer) {
  TextMarkers markers;
  for (const std::string_view name : kKnownEnds)
    if (markers.end < 0) markers.end = special_id(tokenizer, name);
  const std::vector<std::int32_t>& prefix = tokenizer.spec().prefix;
  if (prefix.size() == 1) markers.bos = prefix.front();
  markers.add_end(markers.end);
  if (markers.end >= 0) markers.words.emplace_back("eos_token", tokenizer.token(markers.end));
  if (markers.bos >= 0) markers.words.emplace_back("bos_token", tokenizer.token(markers.bos));
  return markers;
}

TextMarkers markers_of(const Tokenizer& tokenizer, const TokenizerConfig& config,
                       const GenerationConfig& generation) {
  TextMarkers markers;
  const auto known = [&](std::int32_t id) { return id >= 0 && id < tokenizer.vocab_size() ? id : -1; };
  const auto take = [&](std::int32_t& into, const std::string& name, std::int32_t id) {
    into = name.empty() ? -1 : tokenizer.added_id(name);
    if (into < 0) into = known(id);
  };
  take(markers.end, config.eos_token, generation.eos.empty() ? -1 : generation.eos.front());
  take(markers.bos, config.bos_token, generation.bos.value_or(-1));
  take(markers.pad, config.pad_token, generation.pad.value_or(-1));
  const TextMarkers bare = markers_of(tokenizer);
  if (markers.end < 0) markers.end = bare.end;
  if (markers.bos < 0) markers.bos = bare.bos;
  markers.add_end(markers.end);
  for (const std::int32_t id : generation.eos) markers.add_end(id);
  markers.words = special_words(config);
  const auto fill = [&](const char* name, std::int32_t id) {
    const auto same = [&](const auto& word) { return word.first == name; };
    if (id >= 0 && std::none_of(markers.words.begin(), markers.words.end(), same))
      markers.words.emplace_back(name, tokenizer.token(id));
  };
  fill("bos_token", markers.bos);
  fill("eos_token", markers.end);
  return markers;
}

Result<TextMarkers> load_text_markers(Io& io, const std::string& folder, const Tokenizer& tokenizer) {
  if (const std::string path = str(folder, "/", kTextMarkersFile); io.exists(path)) {
    STRATA_TRY_ASSIGN(const std::string text, read_text(io, path, kLimit));
    auto markers = parse_text_markers(text);
    if (!markers.has_value()) return markers.status().annotate(path);
    for (const std::int32_t id : {markers->bos, markers->end, markers->pad, markers->turn_end})
      if (id >= tokenizer.vocab_size())
        return corrupt(
            str(path, ": token ", id, " is not one of the ", tokenizer.vocab_size(), " of the tokenizer"));
    return markers;
  }
  if (io.exists(str(folder, "/", kRunConfigFile))) {
    TextMarkers before = markers_of(tokenizer);
    before.encloses = false;
    before.bos = -1;
    before.end = special_id(tokenizer, Tokenizer::kEndOfText);
    before.ends.clear();
    before.add_end(before.end);
    STRATA_TRY_ASSIGN(const TokenizerConfig config, load_tokenizer_config(io, folder + "/base"));
    if (const SpecialWords words = special_words(config); !words.empty()) before.words = words;
    return before;
  }
  STRATA_TRY_ASSIGN(const TokenizerConfig config, load_tokenizer_config(io, folder));
  STRATA_TRY_ASSIGN(const GenerationConfig ids, load_ids(io, folder));
  return markers_of(tokenizer, config, ids);
}

std::string text_markers_json(const TextMarkers& markers) {
  json words = json::object();
  for (const auto& [name, token] : markers.words) words[name] = token;
  const json root = {{"encloses", markers.encloses},
                     {"bos", id_or_null(markers.bos)},
                     {"end", id_or_null(markers.end)},
                     {"pad", id_or_null(markers.pad)},
                     {"ends", markers.ends},
                     {"turn_end", id_or_null(markers.turn_end)},
                     {"words", words}};
  return root.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

Result<TextMarkers> parse_text_markers(const std::string& text) {
  STRATA_TRY_ASSIGN(const json root, detail::parse_strict_json(text));
  if (!root.is_object()) return corrupt("not a JSON object");
  TextMarkers markers;
  STRATA_TRY_ASSIGN(markers.encloses, detail::flag(root, "", "encloses", true));
  STRATA_TRY_ASSIGN(markers.bos, id_at(root, "bos"));
  STRATA_TRY_ASSIGN(markers.end, id_at(root, "end"));
  STRATA_TRY_ASSIGN(markers.pad, id_at(root, "pad"));
  STRATA_TRY_ASSIGN(markers.turn_end, id_at(root, "turn_end"));
  const json ends = {{"eos_token_id", field(root, "ends")}};
  STRATA_TRY_ASSIGN(const GenerationConfig ids, parse_generation_config(ends.dump()));
  markers.ends = ids.eos;
  if (const json& words = field(root, "words"); words.is_object())
    for (const auto& [name, token] : words.items()) {
      if (!token.is_string()) return corrupt(str("words: ", name, " is ", shown(token), ", not a string"));
      markers.words.emplace_back(name, token.get<std::string>());
    }
  return markers;
}

std::string describe(const TextMarkers& markers, const Tokenizer& tokenizer) {
  std::string before;
  if (markers.encloses)
    for (const std::int32_t id : tokenizer.spec().prefix) before += tokenizer.token(id);
  const std::string begins = before.empty() ? std::string() : str("begins with ", before);
  if (markers.end < 0)
    return str("each document ", begins.empty() ? "has no token before it" : begins, ", and none ends it");
  return str("each document ", begins, begins.empty() ? "" : " and ", "ends with ",
             tokenizer.token(markers.end));
}

}  // namespace strata
