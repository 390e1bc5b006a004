#include "hf/whole/written_parts.h"

#include <algorithm>

#include <strata/runtime/io/safetensors.h>
#include <strata/runtime/str.h>

#include "hf/config/keys.h"
#include "hf/config/text.h"
#include "hf/text_model.h"
#include "hf/whole/whole_config.h"

namespace strata::detail {
namespace {

bool is_of_codes(std::string_view dtype) {
  return dtype == "U8" || dtype == "I8" || dtype == "I32" || dtype.starts_with("F8_");
}

// The whole model's config.json says how all its parts are quantized, and an export's says that none is.
Status check_not_quantized(const OtherParts& parts, const std::string& source_config) {
  STRATA_TRY_ASSIGN(const nlohmann::json root, parse_config_json(source_config));
  if (!text_config_of(root).contains("quantization_config")) return {};
  const auto bad = std::find_if(parts.tensors.begin(), parts.tensors.end(),
                                [](const OtherTensor& tensor) { return is_of_codes(tensor.dtype); });
  if (bad == parts.tensors.end()) return {};
  return Status::error(Code::unsupported,
                       str(parts.folder, ": ", bad->name, " is ", bad->dtype,
                           ", as quantization_config of the whole model says, but an exported text model is "
                           "not quantized; write the text model alone with --text-only"));
}

}  // namespace

Result<WrittenParts> WrittenParts::open(Io& io, const HfExport& options) {
  WrittenParts written(options);
  if (!options.others) return written;
  const OtherParts& parts = *options.others;
  STRATA_TRY_ASSIGN(written.kind_, kind_of_whole(options.source_config));
  STRATA_TRY(check_not_quantized(parts, options.source_config));
  STRATA_TRY_ASSIGN(written.source_, PartsSource::open(io, parts));
  std::uint64_t bytes = 0;
  for (const OtherTensor& tensor : parts.tensors) {
    if (written.shards_.empty() || bytes + tensor.bytes > options.shard_bytes) {
      written.shards_.emplace_back();
      bytes = 0;
    }
    bytes += tensor.bytes;
    written.shards_.back().push_back(&tensor);
  }
  return written;
}

Status WrittenParts::write_shard(Io& io, const std::string& path, std::size_t shard) const {
  std::vector<TensorSpec> specs;
  for (const OtherTensor* const tensor : shards_[shard])
    specs.push_back({tensor->name, tensor->dtype, tensor->shape});
  STRATA_TRY_ASSIGN(const auto writer,
                    SafetensorsWriter::create(io, path, std::move(specs), {{"format", "pt"}}));
  const auto append = [&](std::span<const std::byte> bytes) { return writer->append(bytes); };
  for (const OtherTensor* const tensor : shards_[shard]) STRATA_TRY(source_->copy_tensor(*tensor, append));
  return writer->finish();
}

Status WrittenParts::write_files(Io& io, const std::string& folder) const {
  if (!source_) return {};
  // A template in a file of its own is that of the run; the older form of the file would be another one.
  const auto is_written = [&](const std::string& name) {
    return name == "config.json" || options_->files.contains(name) ||
           (name == "chat_template.json" && options_->files.contains("chat_template.jinja"));
  };
  for (const OtherFile& file : options_->others->files)
    STRATA_TRY(is_written(file.name) ? source_->check_file(io, file)
                                     : source_->copy_file(io, file, str(folder, "/", file.name)));
  return {};
}

Status check_written_parts(Io& io, const std::string& folder, const OtherParts& parts) {
  STRATA_TRY_ASSIGN(const std::optional<OtherParts> found, digest_other_parts(io, folder));
  if (found && found->tensors == parts.tensors) return {};
  return Status::error(Code::corrupt,
                       str(folder, ": ", found ? describe(*found) : "no tensors",
                           " of other parts, which are not those that were copied: ", describe(parts)));
}

}  // namespace strata::detail
