#include <strata/model/hf/other_parts.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include <strata/model/hf/model_files.h>
#include <strata/runtime/io/digest.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>
#include <strata/text/model_files.h>

#include "hf/folder_files.h"
#include "hf/shard_files.h"
#include "hf/config/text.h"
#include "hf/text_model.h"
#include "hf/whole/copy_parts.h"

namespace strata {
namespace {

constexpr std::uint64_t kWholeConfigLimit = 16 << 20;

using detail::WholeModel;
using Shards = std::vector<std::unique_ptr<SafetensorsFile>>;

/// Null for a text model.
Result<const WholeModel*> kind_of(Io& io, const std::string& folder) {
  if (is_gguf_file(io, folder)) return nullptr;
  STRATA_TRY_ASSIGN(const std::string text,
                    detail::read_in_hf_folder(io, folder, "config.json", kWholeConfigLimit));
  STRATA_TRY_ASSIGN(const nlohmann::json root, detail::parse_config_json(text));
  return detail::whole_model_of(root);
}

OtherParts listed(const std::string& folder, const WholeModel& whole, const Shards& shards) {
  OtherParts parts{std::filesystem::absolute(folder).lexically_normal().string()};
  for (const auto& file : shards)
    for (const SafetensorsEntry& entry : file->entries())
      if (whole.is_of_others(entry.name))
        parts.tensors.push_back({entry.name, entry.dtype, entry.shape, entry.bytes});
  std::sort(parts.tensors.begin(), parts.tensors.end(),
            [](const OtherTensor& a, const OtherTensor& b) { return a.name < b.name; });
  return parts;
}

}  // namespace

std::uint64_t OtherParts::tensor_bytes() const noexcept {
  return std::accumulate(tensors.begin(), tensors.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const OtherTensor& tensor) { return sum + tensor.bytes; });
}

Result<std::optional<OtherParts>> other_parts_of(Io& io, const std::string& folder) {
  STRATA_TRY_ASSIGN(const WholeModel* const whole, kind_of(io, folder));
  if (whole == nullptr) return std::optional<OtherParts>();
  STRATA_TRY_ASSIGN(const Shards shards, detail::open_shards(io, folder));
  return std::optional(listed(folder, *whole, shards));
}

Result<std::optional<OtherParts>> digest_other_parts(Io& io, const std::string& folder) {
  STRATA_TRY_ASSIGN(const WholeModel* const whole, kind_of(io, folder));
  if (whole == nullptr) return std::optional<OtherParts>();
  STRATA_TRY_ASSIGN(const Shards shards, detail::open_shards(io, folder));
  OtherParts parts = listed(folder, *whole, shards);
  const auto into = [](std::span<const std::byte>) { return Status::ok(); };
  for (OtherTensor& tensor : parts.tensors) {
    STRATA_TRY_ASSIGN(tensor.digest, detail::stream_tensor(shards, tensor.name, into));
  }
  STRATA_TRY_ASSIGN(const std::vector<std::string> names, io.list(folder));
  for (const std::string& name : names) {
    if (!detail::is_other_file(name)) continue;
    STRATA_TRY_ASSIGN(const std::string path, file_in_hf_folder(folder, name));
    STRATA_TRY_ASSIGN(const FileDigest of_file, digest_file(io, path));
    parts.files.push_back({name, of_file.bytes, to_hex(of_file.digest)});
  }
  return std::optional(std::move(parts));
}

std::string describe(const OtherParts& parts) {
  std::vector<std::string> beginnings;
  for (const OtherTensor& tensor : parts.tensors) {
    const bool nested = tensor.name.starts_with("model.");
    std::string beginning = tensor.name.substr(0, tensor.name.find('.', nested ? 6 : 0));
    if (beginnings.empty() || beginnings.back() != beginning) beginnings.push_back(std::move(beginning));
  }
  std::string text = str(parts.tensors.size(), parts.tensors.size() == 1 ? " tensor" : " tensors", " (",
                         format_bytes(parts.tensor_bytes()), ")");
  for (std::size_t i = 0; i < beginnings.size(); ++i)
    text += str(i == 0                       ? ", whose names begin with "
                : i + 1 == beginnings.size() ? " and "
                                             : ", ",
                beginnings[i], '.');
  return text;
}

}  // namespace strata
