#include "export/export_texts.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include <strata/model/hf/model_files.h>
#include <strata/text/tokenizer_config.h>
#include <strata/runtime/str.h>
#include <strata/config/run_layout.h>

namespace strata::detail {
namespace {

using nlohmann::ordered_json;

constexpr const char kGeneration[] = "generation_config.json", kTokenizer[] = "tokenizer_config.json",
                     kSpecial[] = "special_tokens_map.json";

/// The ends of a text, the one that was learned first.
std::vector<std::int32_t> ends_of(const TextMarkers& markers) {
  std::vector<std::int32_t> ends;
  if (markers.learned_end() >= 0) ends.push_back(markers.learned_end());
  for (const std::int32_t id : markers.ends)
    if (std::find(ends.begin(), ends.end(), id) == ends.end()) ends.push_back(id);
  return ends;
}

ordered_json one_or_all(const std::vector<std::int32_t>& ids) {
  return ids.size() == 1 ? ordered_json(ids.front()) : ordered_json(ids);
}

/// Sets keys of the object in `text`, which is empty or JSON, or left as it is if it is something else.
void set_keys(std::string& text, const ordered_json& keys) {
  ordered_json root = text.empty() ? ordered_json::object() : ordered_json::parse(text, nullptr, false);
  if (!root.is_object()) return;
  root.update(keys);
  text = root.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

ordered_json names_of(const Tokenizer& tokenizer, std::int32_t eos, int seq) {
  const TextMarkers& markers = tokenizer.markers();
  ordered_json keys = {{"tokenizer_class", "PreTrainedTokenizerFast"}};
  if (markers.before_nothing() >= 0) keys["bos_token"] = tokenizer.token(markers.before_nothing());
  keys["eos_token"] = tokenizer.token(eos);
  if (markers.pad >= 0) keys["pad_token"] = tokenizer.token(markers.pad);
  keys["model_max_length"] = seq;
  return keys;
}

}  // namespace

Result<std::map<std::string, std::string>> texts_of_folder(const Tokenizer& tokenizer,
                                                           const std::string& folder, Io& io) {
  std::map<std::string, std::string> files = {{"tokenizer.json", tokenizer.to_json()}};
  for (const std::string_view name :
       {std::string_view("tokenizer.json"), std::string_view(kChatTemplateFile), std::string_view(kTokenizer),
        std::string_view(kGeneration), std::string_view(kSpecial)})
    if (const std::string path = str(folder, "/", name); model_file_exists(io, path)) {
      STRATA_TRY_ASSIGN(files[std::string(name)], read_model_file(io, path, kExportTextLimit));
    }
  return files;
}

Result<std::map<std::string, std::string>> texts_beside(const Tokenizer& tokenizer, int seq,
                                                        const std::string& run, Io& io) {
  std::map<std::string, std::string> files = {{"tokenizer.json", tokenizer.to_json()}};
  const auto take = [&](const std::string& folder, const char* name) -> Status {
    if (!io.exists(folder + "/" + name)) return {};
    STRATA_TRY_ASSIGN(files[name], read_text(io, folder + "/" + name, kExportTextLimit));
    return {};
  };
  STRATA_TRY(take(run, kChatTemplateFile));
  for (const char* name : kBaseFiles)
    if (std::string_view(name) != "config.json") STRATA_TRY(take(run + "/base", name));
  if (const auto config = files.find(kTokenizer); config != files.end() && files.contains(kChatTemplateFile))
    config->second = with_chat_template(config->second, files[kChatTemplateFile]);
  const TextMarkers& markers = tokenizer.markers();
  if (markers.learned_end() < 0) return files;
  if (const bool is_new = !files.contains(kGeneration); is_new || markers.turn_end >= 0) {
    ordered_json ids = {{"eos_token_id", one_or_all(ends_of(markers))}};
    if (is_new && markers.before_nothing() >= 0) ids["bos_token_id"] = markers.before_nothing();
    set_keys(files[kGeneration], ids);
  }
  // A template that prints eos_token besides the end of a turn (Phi-3) would write other texts with another
  // one; programs then stop by generation_config.json.
  const auto chat = files.find(kChatTemplateFile);
  const bool is_printed = chat != files.end() && chat->second.find("eos_token") != std::string::npos;
  const std::int32_t eos = is_printed && markers.end >= 0 ? markers.end : markers.learned_end();
  const ordered_json end = {{"eos_token", tokenizer.token(eos)}};
  if (!files.contains(kTokenizer))
    set_keys(files[kTokenizer], names_of(tokenizer, eos, seq));
  else if (markers.turn_end >= 0)
    set_keys(files[kTokenizer], end);
  if (const auto map = files.find(kSpecial); map != files.end() && markers.turn_end >= 0)
    set_keys(map->second, end);
  return files;
}

HfTokenIds token_ids_of(const TextMarkers& markers, bool is_based, bool scores) {
  HfTokenIds ids;
  if (is_based && markers.turn_end < 0) return ids;
  ids.eos = ends_of(markers);
  if (is_based) return ids;
  ids.bos = markers.before_nothing();
  if (scores) ids.pad = markers.end;
  return ids;
}

}  // namespace strata::detail
