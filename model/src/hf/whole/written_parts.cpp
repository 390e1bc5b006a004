#include "hf/whole/written_parts.h"

#include <algorithm>
#include <map>

#include <strata/model/hf/config.h>
#include <strata/runtime/io/digest.h>
#include <strata/runtime/io/safetensors.h>
#include <strata/runtime/str.h>

#include "hf/config/text.h"
#include "hf/text_model.h"
#include "hf/whole/other_names.h"

namespace strata::detail {
namespace {

bool is_of_codes(std::string_view dtype) {
  return dtype == "U8" || dtype == "I8" || dtype == "I32" || dtype.starts_with("F8_");
}

// The folder's config.json says how all its parts are quantized, and an export's says that none is.
Status check_not_quantized(const OtherParts& parts, const std::vector<WrittenTensor>& tensors) {
  const auto bad = std::find_if(tensors.begin(), tensors.end(), [](const WrittenTensor& tensor) {
    return tensor.values == nullptr && is_of_codes(tensor.dtype);
  });
  if (bad == tensors.end()) return {};
  return Status::error(Code::unsupported,
                       str(parts.folder, ": ", bad->name, " is ", bad->dtype,
                           " of a quantization that is read in matrices of the text model alone, and an "
                           "export is not quantized; write the text model alone with --text-only"));
}

Status write_values(const WrittenTensor& tensor, const PartsSource& source, const ByteSink& into) {
  if (tensor.values == nullptr) return source.copy_tensor(*tensor.of.front(), into);
  for (const OtherTensor* const part : tensor.of) STRATA_TRY(source.check_tensor_bytes(*part));
  const kernels::QuantizedMatrix& matrix = tensor.values->matrix();
  const auto elements = [&](std::int64_t at, std::span<float> some) { return tensor.values->read(at, some); };
  return write_rounded(tensor.name, matrix.rows() * matrix.columns, tensor.rounded, elements, into);
}

}  // namespace

Result<WrittenParts> WrittenParts::open(Io& io, const HfExport& options) {
  WrittenParts written(options);
  if (!options.others) return written;
  const OtherParts& parts = *options.others;
  STRATA_TRY(written.read_source_config());
  STRATA_TRY_ASSIGN(written.source_, PartsSource::open(io, parts));
  STRATA_TRY_ASSIGN(std::vector<WrittenTensor> tensors,
                    written_tensors(parts, *written.source_, options.dtype));
  if (written.text_config_.contains("quantization_config")) STRATA_TRY(check_not_quantized(parts, tensors));
  written.split(std::move(tensors));
  return written;
}

Status WrittenParts::read_source_config() {
  STRATA_TRY_ASSIGN(const nlohmann::json root, parse_config_json(options_->source_config));
  STRATA_TRY_ASSIGN(const DecoderConfig text, decoder_from_hf_config(options_->source_config));
  kind_ = whole_model_of(root);
  text_config_ = text_config_of(root);
  const std::vector<OtherTensor>& tensors = options_->others->tensors;
  has_extra_layers_ = std::any_of(tensors.begin(), tensors.end(), [&](const OtherTensor& tensor) {
    return is_of_extra_layer(kind_ != nullptr ? kind_->in_text_model(tensor.name) : tensor.name, text);
  });
  return {};
}

void WrittenParts::split(std::vector<WrittenTensor> tensors) {
  std::uint64_t bytes = 0;
  for (WrittenTensor& tensor : tensors) {
    if (shards_.empty() || bytes + tensor.bytes > options_->shard_bytes) {
      shards_.emplace_back();
      bytes = 0;
    }
    bytes += tensor.bytes;
    shards_.back().push_back(std::move(tensor));
  }
}

Status WrittenParts::write_shard(Io& io, const std::string& path, std::size_t shard) const {
  std::vector<TensorSpec> specs;
  for (const WrittenTensor& tensor : shards_[shard])
    specs.push_back({tensor.name, tensor.dtype, tensor.shape});
  STRATA_TRY_ASSIGN(const auto writer,
                    SafetensorsWriter::create(io, path, std::move(specs), {{"format", "pt"}}));
  const auto append = [&](std::span<const std::byte> bytes) { return writer->append(bytes); };
  for (const WrittenTensor& tensor : shards_[shard]) STRATA_TRY(write_values(tensor, *source_, append));
  return writer->finish();
}

void WrittenParts::name_extra_layers(nlohmann::json& config) const {
  set_extra_layers(config, has_extra_layers_ ? &text_config_ : nullptr);
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

namespace {

Result<std::string> digest_as_written(const WrittenTensor& tensor, const PartsSource& source) {
  if (tensor.values == nullptr) return tensor.of.front()->digest;
  Digester digester;
  const auto add = [&](std::span<const std::byte> bytes) { return digester.update(bytes), Status::ok(); };
  STRATA_TRY(write_values(tensor, source, add));
  return to_hex(digester.digest());
}

}  // namespace

Status check_written_parts(Io& io, const std::string& folder, const OtherParts& parts, DType dtype) {
  STRATA_TRY_ASSIGN(const PartsSource source, PartsSource::open(io, parts));
  STRATA_TRY_ASSIGN(const std::vector<WrittenTensor> tensors, written_tensors(parts, source, dtype));
  STRATA_TRY_ASSIGN(const std::optional<OtherParts> found, digest_other_parts(io, folder));
  std::map<std::string, std::string> digests;
  if (found)
    for (const OtherTensor& tensor : found->tensors) digests[tensor.name] = tensor.digest;
  for (const WrittenTensor& tensor : tensors) {
    STRATA_TRY_ASSIGN(const std::string want, digest_as_written(tensor, source));
    if (const std::string& is = digests[tensor.name]; is != want)
      return Status::error(Code::corrupt, str(folder, ": ", tensor.name, " has the digest ", is,
                                              ", and was written with ", want));
  }
  if (digests.size() == tensors.size()) return {};
  return Status::error(Code::corrupt, str(folder, " has ", digests.size(), " tensors of other parts, and ",
                                          tensors.size(), " were written"));
}

}  // namespace strata::detail
