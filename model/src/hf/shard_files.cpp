#include "hf/shard_files.h"

#include <set>

#include <strata/model/hf/explain_folder.h>
#include <strata/runtime/config/strict_json.h>
#include <strata/runtime/str.h>
#include <strata/text/model_files.h>

#include "folder_files.h"

namespace strata::detail {
namespace {

constexpr std::uint64_t kIndexLimit = 256 << 20;
constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

/// The shards listed in an index file.
Result<std::set<std::string>> shards_of(const std::string& text) {
  STRATA_TRY_ASSIGN(const nlohmann::json root, parse_strict_json(text));
  const auto map = root.find("weight_map");
  if (!root.is_object() || map == root.end() || !map->is_object() || map->empty())
    return Status::error(Code::corrupt, "it has no weight_map with tensors");
  std::set<std::string> files;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string())
      return Status::error(Code::corrupt, str("weight_map.", tensor, " is not a file name"));
    const std::string name = file.get<std::string>();
    if (!is_plain_name(name))
      return Status::error(
          Code::invalid, str("weight_map.", tensor, " is '", name, "', which is not a file of this folder"));
    files.insert(name);
  }
  return files;
}

}  // namespace

Result<std::vector<std::unique_ptr<SafetensorsFile>>> open_shards(Io& io, const std::string& folder) {
  std::set<std::string> names = {kSingle};
  const bool has_single = io.exists(folder + "/" + kSingle);
  if (const std::string index = folder + "/" + kIndex; !has_single && io.exists(index)) {
    STRATA_TRY_ASSIGN(const std::string text, read_in_hf_folder(io, folder, kIndex, kIndexLimit));
    auto shards = shards_of(text);
    if (!shards.has_value()) return shards.status().annotate(index);
    names = *std::move(shards);
  } else if (!has_single) {
    STRATA_TRY(explain_hf_folder(io, folder));
  }
  std::vector<std::unique_ptr<SafetensorsFile>> files;
  for (const std::string& name : names) {
    STRATA_TRY_ASSIGN(const std::string where, file_in_hf_folder(folder, name));
    STRATA_TRY_ASSIGN(std::unique_ptr<SafetensorsFile> file,
                      SafetensorsFile::open(io, where, OpenMode::read_no_follow));
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace strata::detail
