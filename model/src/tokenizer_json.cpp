#include <strata/model/tokenizer.h>

#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

#include "byte_alphabet.h"
#include "strict_json.h"

namespace strata {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxFileBytes = 64 * kMiB;  // the largest published ones are near 33 MB
constexpr std::size_t kMaxMerges = std::size_t{1} << 21;

Status corrupt(std::string message) { return Status::error(Code::corrupt, std::move(message)); }
std::string shown(const std::string& text) { return str("'", text.substr(0, 80), "'"); }

/// Null when absent; the format's writers leave optional fields out or null alike.
const json& field(const json& object, const char* key) {
  static const json none;
  const auto at = object.find(key);
  return at == object.end() ? none : *at;
}
bool is_set(const json& value) {
  return !value.is_null() && value != json(false) && value != json("") && value != json(0.0);
}

Status refuse_set(const json& object, std::string_view where, std::initializer_list<const char*> keys) {
  for (const char* key : keys)
    if (is_set(field(object, key)))
      return Status::error(Code::unsupported, str(where, key, " = ", field(object, key).dump().substr(0, 80),
                                                  " is not supported"));
  return {};
}

Status check_kind(const json& root) {
  const json& model = field(root, "model");
  if (!model.is_object()) return corrupt("no object 'model'");
  if (field(model, "type") != "BPE")
    return Status::error(Code::unsupported, str("model.type is ", field(model, "type").dump().substr(0, 80),
                                                ", only \"BPE\" is supported"));
  STRATA_TRY(refuse_set(
      model, "model.",
      {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges"}));
  STRATA_TRY(refuse_set(root, "", {"normalizer", "truncation", "padding"}));
  const json& splitter = field(root, "pre_tokenizer");
  if (!splitter.is_object() || field(splitter, "type") != "ByteLevel")
    return Status::error(Code::unsupported, str("pre_tokenizer is ", splitter.dump().substr(0, 80),
                                                ", only ByteLevel is supported"));
  STRATA_TRY(refuse_set(splitter, "pre_tokenizer.", {"add_prefix_space"}));
  if (field(splitter, "use_regex") == json(false))
    return Status::error(Code::unsupported, "pre_tokenizer.use_regex = false is not supported");
  const json& after = field(root, "post_processor");
  if (!after.is_null() && (!after.is_object() || field(after, "type") != "ByteLevel"))
    return Status::error(Code::unsupported, str("post_processor is ", after.dump().substr(0, 80),
                                                ", only ByteLevel is supported"));
  return {};
}

struct Special {
  std::string content;
  std::uint64_t id;
};
Result<std::vector<Special>> read_added(const json& root) {
  std::vector<Special> out;
  const json& added = field(root, "added_tokens");
  if (added.is_null()) return out;
  if (!added.is_array()) return corrupt("added_tokens is not a list");
  for (const json& token : added) {
    if (!token.is_object() || !field(token, "content").is_string() ||
        !field(token, "id").is_number_unsigned())
      return corrupt(
          str("added_tokens has ", token.dump().substr(0, 80), ", which lacks a content or an id"));
    Special special{token["content"].get<std::string>(), token["id"].get<std::uint64_t>()};
    const std::string where = str("added token ", shown(special.content), ": ");
    if (field(token, "special") != json(true))
      return Status::error(Code::unsupported, where + "one that is not special is not supported");
    STRATA_TRY(refuse_set(token, where, {"single_word", "lstrip", "rstrip"}));
    out.push_back(std::move(special));
  }
  return out;
}

/// Puts a token at its id; ids that are not dense leave one taken twice or past the end.
Status place(std::vector<std::string>& tokens, const std::string& key, std::string bytes, std::uint64_t id) {
  if (id >= tokens.size())
    return corrupt(str("token ", shown(key), " has id ", id, " among ", tokens.size(), " tokens"));
  if (bytes.empty()) return corrupt(str("token ", id, " is empty"));
  if (!tokens[id].empty()) return corrupt(str("id ", id, " is given twice, the second time to ", shown(key)));
  tokens[id] = std::move(bytes);
  return {};
}

struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<std::int32_t> special;
};
Result<Vocabulary> read_vocabulary(const json& vocab, const std::vector<Special>& added) {
  if (!vocab.is_object()) return corrupt("no object 'model.vocab'");
  std::unordered_map<std::string_view, std::uint64_t> special_ids;
  std::size_t n = vocab.size();
  for (const Special& token : added) {
    if (!special_ids.emplace(token.content, token.id).second)
      return corrupt(str("added token ", shown(token.content), " twice"));
    n += vocab.contains(token.content) ? 0 : 1;
  }
  if (n > static_cast<std::size_t>(Tokenizer::kMaxVocab))
    return Status::error(Code::invalid, str(n, " tokens, at most ", Tokenizer::kMaxVocab, " are read"));
  Vocabulary out;
  out.tokens.resize(n);
  for (const auto& [key, id] : vocab.items()) {
    if (!id.is_number_unsigned())
      return corrupt(str("token ", shown(key), " has the id ", id.dump().substr(0, 80)));
    if (const auto special = special_ids.find(key); special != special_ids.end()) {
      if (special->second != id)
        return corrupt(str("token ", shown(key), " is ", id.dump(), " in the vocabulary and ",
                           special->second, " among the added"));
      continue;
    }
    std::optional<std::string> bytes = detail::alphabet_to_bytes(key);
    if (!bytes) return corrupt(str("token ", shown(key), " has a character that stands for no byte"));
    STRATA_TRY(place(out.tokens, key, std::move(*bytes), id.get<std::uint64_t>()));
  }
  for (const Special& token : added) {
    STRATA_TRY(place(out.tokens, token.content, token.content, token.id));
    out.special.push_back(static_cast<std::int32_t>(token.id));
  }
  return out;
}

/// "Ġ t", or ["Ġ", "t"] as newer writers have it.
std::optional<std::pair<std::string, std::string>> halves(const json& merge) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
    return std::pair(merge[0].get<std::string>(), merge[1].get<std::string>());
  if (!merge.is_string()) return std::nullopt;
  const auto& text = merge.get_ref<const std::string&>();
  const std::size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) return std::nullopt;
  return std::pair(text.substr(0, space), text.substr(space + 1));
}

Result<std::vector<Merge>> read_merges(const json& merges, const json& vocab) {
  if (!merges.is_array()) return corrupt("no list 'model.merges'");
  if (merges.size() > kMaxMerges)
    return Status::error(Code::invalid, str(merges.size(), " merges, at most ", kMaxMerges, " are read"));
  std::vector<Merge> out;
  out.reserve(merges.size());
  for (const json& merge : merges) {
    const auto pair = halves(merge);
    if (!pair)
      return corrupt(str("merge ", out.size(), " is ", merge.dump().substr(0, 80), ", not two tokens"));
    const auto left = vocab.find(pair->first);
    const auto right = vocab.find(pair->second);
    if (left == vocab.end() || right == vocab.end())
      return corrupt(str("merge ", out.size(), " refers to ",
                         shown(left == vocab.end() ? pair->first : pair->second),
                         ", which is not in the vocabulary"));
    out.push_back({left->get<std::int32_t>(), right->get<std::int32_t>(), 0});
  }
  return out;
}

Result<Tokenizer> tokenizer_from(const std::string& text) {
  STRATA_TRY_ASSIGN(const json root, detail::parse_strict_json(text));
  if (!root.is_object()) return corrupt("not a JSON object");
  STRATA_TRY(check_kind(root));
  STRATA_TRY_ASSIGN(const std::vector<Special> added, read_added(root));
  const json& model = root["model"];
  STRATA_TRY_ASSIGN(Vocabulary vocabulary, read_vocabulary(field(model, "vocab"), added));
  STRATA_TRY_ASSIGN(std::vector<Merge> merges, read_merges(field(model, "merges"), model["vocab"]));
  return Tokenizer::create(std::move(vocabulary.tokens), std::move(merges), std::move(vocabulary.special));
}

std::string quoted(const std::string& text) {
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

Result<Tokenizer> Tokenizer::from_json(const std::string& text) {
  if (text.size() > kMaxFileBytes)
    return Status::error(Code::invalid,
                         str(text.size(), " bytes of JSON, at most ", kMaxFileBytes, " are read"));
  try {
    return tokenizer_from(text);
  } catch (const std::bad_alloc&) {
    return Status::error(Code::out_of_memory,
                         str("no memory for a tokenizer of ", text.size(), " bytes of JSON"));
  } catch (const json::exception& e) {
    return Status::error(Code::internal, str("reading a tokenizer: ", e.what()));
  }
}

Result<Tokenizer> Tokenizer::load(Io& io, const std::string& path) {
  STRATA_TRY_ASSIGN(const std::string text, read_text(io, path, kMaxFileBytes));
  Result<Tokenizer> loaded = from_json(text);
  if (!loaded) return std::move(loaded).error().annotate(path);
  return loaded;
}

Status Tokenizer::save(Io& io, const std::string& path) const {
  return write_text_atomically(io, path, to_json());
}

std::string Tokenizer::to_json() const {
  std::string out = R"({
  "version": "1.0",
  "truncation": null,
  "padding": null,
  "added_tokens": [)";
  const char* between = "\n    ";
  for (const std::int32_t id : special_) {
    out += str(
        between, R"({"id": )", id, R"(, "content": )", quoted(token(id)),
        R"(, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true})");
    between = ",\n    ";
  }
  out += R"(
  ],
  "normalizer": null,
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
  "post_processor": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true},
  "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
  "model": {
    "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
    "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
    "vocab": {)";
  between = "\n      ";
  for (std::int32_t id = 0; id < vocab_size(); ++id) {
    out += str(between, quoted(is_special(id) ? token(id) : detail::bytes_to_alphabet(token(id))), ": ", id);
    between = ",\n      ";
  }
  out += "\n    },\n    \"merges\": [";
  between = "\n      ";
  for (const Merge& merge : merges_) {
    out += str(between, quoted(str(detail::bytes_to_alphabet(token(merge.left)), " ",
                                   detail::bytes_to_alphabet(token(merge.right)))));
    between = ",\n      ";
  }
  out += "\n    ]\n  }\n}\n";
  return out;
}

}  // namespace strata
