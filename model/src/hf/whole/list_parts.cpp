#include <strata/model/hf/other_parts.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include <strata/model/hf/config.h>
#include <strata/model/hf/model_files.h>
#include <strata/runtime/io/digest.h>
#include <strata/runtime/str.h>
#include <strata/text/model_files.h>

#include "hf/folder_files.h"
#include "hf/shard_files.h"
#include "hf/config/text.h"
#include "hf/text_model.h"
#include "hf/whole/copy_parts.h"
#include "hf/whole/other_names.h"

namespace strata {
namespace {

constexpr std::uint64_t kWholeConfigLimit = 16 << 20;

using detail::WholeModel;
using Shards = std::vector<std::unique_ptr<SafetensorsFile>>;

/// What a folder is of, which says the parts of its tensors.
struct FolderModel {
  const WholeModel* whole = nullptr;  ///< null for a text model
  DecoderConfig text;
};

/// Nothing for a GGUF file, which has no other parts.
Result<std::optional<FolderModel>> model_in(Io& io, const std::string& folder) {
  if (is_gguf_file(io, folder)) return std::optional<FolderModel>();
  STRATA_TRY_ASSIGN(const std::string text,
                    detail::read_in_hf_folder(io, folder, "config.json", kWholeConfigLimit));
  STRATA_TRY_ASSIGN(const nlohmann::json root, detail::parse_config_json(text));
  FolderModel model{detail::whole_model_of(root), {}};
  auto config = decoder_from_hf_config(text);
  if (!config.has_value()) return config.status().annotate(folder + "/config.json");
  model.text = *std::move(config);
  return std::optional(std::move(model));
}

OtherParts listed(const std::string& folder, const FolderModel& model, const Shards& shards) {
  OtherParts parts{std::filesystem::absolute(folder).lexically_normal().string()};
  for (const auto& file : shards)
    for (const SafetensorsEntry& entry : file->entries())
      if (detail::is_of_others(entry.name, model.whole, model.text))
        parts.tensors.push_back({entry.name, entry.dtype, entry.shape, entry.bytes});
  std::sort(parts.tensors.begin(), parts.tensors.end(),
            [](const OtherTensor& a, const OtherTensor& b) { return a.name < b.name; });
  return parts;
}

/// A folder's other parts without digests, and its shards; nothing if it has none.
struct OpenedParts {
  bool of_whole = false;  ///< the folder is of a whole model
  OtherParts parts;
  Shards shards;
};
Result<std::optional<OpenedParts>> open_parts(Io& io, const std::string& folder) {
  STRATA_TRY_ASSIGN(const std::optional<FolderModel> model, model_in(io, folder));
  const bool of_whole = model && model->whole != nullptr;
  if (!model || (!of_whole && !detail::may_have_extra_layers(model->text)))
    return std::optional<OpenedParts>();
  STRATA_TRY_ASSIGN(Shards shards, detail::open_shards(io, folder));
  OtherParts parts = listed(folder, *model, shards);
  if (!of_whole && parts.tensors.empty()) return std::optional<OpenedParts>();
  return std::optional(OpenedParts{of_whole, std::move(parts), std::move(shards)});
}

Status add_files(Io& io, OtherParts& parts) {
  STRATA_TRY_ASSIGN(const std::vector<std::string> names, io.list(parts.folder));
  for (const std::string& name : names) {
    if (!detail::is_other_file(name)) continue;
    STRATA_TRY_ASSIGN(const std::string path, file_in_hf_folder(parts.folder, name));
    STRATA_TRY_ASSIGN(const FileDigest of_file, digest_file(io, path));
    parts.files.push_back({name, of_file.bytes, to_hex(of_file.digest)});
  }
  return {};
}

}  // namespace

std::uint64_t OtherParts::tensor_bytes() const noexcept {
  return std::accumulate(tensors.begin(), tensors.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const OtherTensor& tensor) { return sum + tensor.bytes; });
}

Result<std::optional<OtherParts>> other_parts_of(Io& io, const std::string& folder) {
  STRATA_TRY_ASSIGN(std::optional<OpenedParts> opened, open_parts(io, folder));
  if (!opened) return std::optional<OtherParts>();
  return std::optional(std::move(opened->parts));
}

Result<std::optional<OtherParts>> digest_other_parts(Io& io, const std::string& folder) {
  STRATA_TRY_ASSIGN(std::optional<OpenedParts> opened, open_parts(io, folder));
  if (!opened) return std::optional<OtherParts>();
  const auto into = [](std::span<const std::byte>) { return Status::ok(); };
  for (OtherTensor& tensor : opened->parts.tensors) {
    STRATA_TRY_ASSIGN(tensor.digest, detail::stream_tensor(opened->shards, tensor.name, into));
  }
  // A text model's files are those of its tokens, which an export writes.
  if (opened->of_whole) STRATA_TRY(add_files(io, opened->parts));
  return std::optional(std::move(opened->parts));
}

}  // namespace strata
