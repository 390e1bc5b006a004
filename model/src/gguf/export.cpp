#include <strata/model/gguf/export.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include <strata/runtime/str.h>

#include "gguf/architecture.h"
#include "gguf/encoding.h"
#include "gguf/layout.h"
#include "gguf/tensors.h"
#include "gguf/vocabulary.h"
#include "hf/folder_files.h"
#include "hf/written_values.h"

namespace strata {
namespace {

using detail::GgufPart;

constexpr std::int64_t kGgufElemsAtOnce = (1 << 20) / 4;
constexpr std::int64_t kQuantizationVersion = 2;  // GGML_QNT_VERSION

/// Takes the bytes of a file from front to back.
using ByteSink = std::function<Status(std::span<const std::byte>)>;

/// general.file_type (llama_ftype): the format of most values.
std::int64_t file_type(GgufFormat format) {
  switch (format) {
    case GgufFormat::f32:
      return 0;
    case GgufFormat::f16:
      return 1;
    case GgufFormat::q8_0:
      return 7;
    case GgufFormat::bf16:
      return 32;
  }
  return 0;
}

/// What an export consists of, before any value is read.
struct GgufPlan {
  std::string header;
  std::vector<GgufPart> parts;
  std::vector<std::string> notes;
};

void note_model(const detail::GgufArchitecture& architecture, const DecoderConfig& config,
                const std::vector<GgufPart>& parts, GgufFormat format, std::vector<std::string>& notes) {
  if (const std::int64_t context = detail::gguf_context(architecture, config); context < config.positions)
    notes.push_back(str("the context is ", context, " of the model's ", config.positions,
                        " tokens: beyond the sliding window llama.cpp's ", architecture.name,
                        " would see all keys"));
  const auto is_f16 = [](const GgufPart& part) { return part.tensor.format == GgufFormat::f16; };
  const auto n = format == GgufFormat::q8_0 ? std::count_if(parts.begin(), parts.end(), is_f16) : 0;
  if (n == 0) return;
  const GgufPart& first = *std::find_if(parts.begin(), parts.end(), is_f16);
  notes.push_back(str(n, " matrices are f16, since q8_0 needs rows of a multiple of 32 values; ",
                      first.tensor.name, " has ", first.columns()));
}

Result<GgufPlan> plan_gguf(const DecoderConfig& given, const Tokenizer& tokenizer,
                           const GgufExport& options) {
  const DecoderConfig config = with_derived_sizes(given);
  STRATA_TRY_ASSIGN(const detail::GgufArchitecture architecture, detail::gguf_architecture(config));
  GgufPlan plan;
  detail::GgufMetadata metadata;
  metadata.add_text("general.architecture", architecture.name);
  metadata.add_text("general.type", "model");
  const std::string name = detail::gguf_model_name(tokenizer, options.name, plan.notes);
  if (!name.empty()) metadata.add_text("general.name", name);
  metadata.add_u32("general.file_type", file_type(options.format));
  metadata.add_u32("general.quantization_version", kQuantizationVersion);
  detail::add_architecture(architecture, config, metadata);
  STRATA_TRY(detail::add_vocabulary(tokenizer, config.vocab, options, metadata, plan.notes));
  plan.parts = detail::gguf_parts(architecture, config, options.format);
  note_model(architecture, config, plan.parts, options.format, plan.notes);
  std::vector<detail::GgufTensor> tensors;
  for (const GgufPart& part : plan.parts) tensors.push_back(part.tensor);
  plan.header = detail::gguf_header(metadata, tensors);
  return plan;
}

/// Encodes rows of a part and hands them on.
class PartStream {
 public:
  PartStream(const GgufPart& part, const ByteSink& sink) : part_(part), sink_(sink) {}

  Status send(std::span<const float> param) {
    const std::int64_t step = std::max<std::int64_t>(1, kGgufElemsAtOnce / part_.columns());
    for (std::int64_t row = 0; row < part_.rows(); row += step) {
      const std::int64_t n = std::min(step, part_.rows() - row);
      values_.resize(static_cast<std::size_t>(n * part_.columns()));
      detail::gather_gguf(part_, row, param, values_);
      STRATA_TRY(send_values(row * part_.columns()));
    }
    return pad();
  }
  Status send_whole(std::vector<float> values) {
    values_ = std::move(values);
    STRATA_TRY(send_values(0));
    return pad();
  }

 private:
  Status send_values(std::int64_t begin) {
    const detail::GgufTensor& tensor = part_.tensor;
    const std::string_view format = to_string(tensor.format);
    STRATA_TRY(detail::check_written(tensor.name, begin, values_, values_, format));
    bytes_.resize(detail::gguf_bytes(tensor.format, values_.size()));
    STRATA_TRY(detail::encode_gguf(values_, tensor.format, bytes_));
    rounded_.resize(values_.size());
    STRATA_TRY(detail::decode_gguf(bytes_, tensor.format, rounded_));
    STRATA_TRY(detail::check_written(tensor.name, begin, values_, rounded_, format));
    return sink_(bytes_);
  }
  Status pad() { return sink_(std::vector<std::byte>(detail::gguf_padding(part_.tensor.bytes()))); }

  const GgufPart& part_;
  const ByteSink& sink_;
  std::vector<float> values_, rounded_;
  std::vector<std::byte> bytes_;
};

Status send_file(const GgufPlan& plan, const DecoderConfig& config, const ParamSource& source,
                 const ByteSink& sink) {
  STRATA_TRY(sink(std::as_bytes(std::span(plan.header))));
  detail::ParamCache params(config, source);
  for (const GgufPart& part : plan.parts) {
    PartStream stream(part, sink);
    if (part.param.empty()) {
      STRATA_TRY(stream.send_whole(detail::llama3_factors(config.frequencies, 2 * part.rows())));
      continue;
    }
    STRATA_TRY_ASSIGN(const std::span<const float> param, params.get(part.param));
    STRATA_TRY(stream.send(param));
  }
  return {};
}

std::uint64_t file_bytes(const GgufPlan& plan) {
  std::uint64_t bytes = plan.header.size();
  for (const GgufPart& part : plan.parts)
    bytes += part.tensor.bytes() + detail::gguf_padding(part.tensor.bytes());
  return bytes;
}

Status write_draft(Io& io, const std::string& draft, const GgufPlan& plan, const DecoderConfig& config,
                   const ParamSource& source) {
  const std::string folder = std::filesystem::path(draft).parent_path().string();
  if (!folder.empty()) STRATA_TRY(io.make_dirs(folder));
  STRATA_TRY_ASSIGN(const auto file, io.open(draft, OpenMode::create));
  STRATA_TRY(file->allocate(file_bytes(plan)).annotate(draft));
  std::uint64_t at = 0;
  const ByteSink append = [&](std::span<const std::byte> bytes) -> Status {
    at += bytes.size();
    return write_all(*file, at - bytes.size(), bytes);
  };
  STRATA_TRY(send_file(plan, config, source, append));
  return file->sync();
}

}  // namespace

Result<std::vector<std::string>> export_gguf(Io& io, const std::string& path, const DecoderConfig& config,
                                             const Tokenizer& tokenizer, const ParamSource& source,
                                             const GgufExport& options) {
  STRATA_TRY_ASSIGN(GgufPlan plan, plan_gguf(config, tokenizer, options));
  STRATA_TRY(detail::write_whole(
      io, path, [&](const std::string& draft) { return write_draft(io, draft, plan, config, source); }));
  return std::move(plan.notes);
}

Status check_gguf_export(Io& io, const std::string& path, const DecoderConfig& config,
                         const Tokenizer& tokenizer, const ParamSource& source, const GgufExport& options) {
  STRATA_TRY_ASSIGN(const GgufPlan plan, plan_gguf(config, tokenizer, options));
  STRATA_TRY_ASSIGN(const auto file, io.open(path, OpenMode::read));
  STRATA_TRY_ASSIGN(const std::uint64_t size, file->size());
  if (size != file_bytes(plan))
    return Status::error(Code::corrupt,
                         str(path, " has ", size, " bytes; the export has ", file_bytes(plan)));
  std::vector<std::byte> found;
  std::uint64_t at = 0;
  return send_file(plan, config, source, [&](std::span<const std::byte> bytes) -> Status {
    found.resize(bytes.size());
    STRATA_TRY(read_exact(*file, at, found));
    const auto differs = std::mismatch(bytes.begin(), bytes.end(), found.begin()).first;
    if (differs != bytes.end())
      return Status::error(Code::corrupt,
                           str(path, ": byte ", at + static_cast<std::uint64_t>(differs - bytes.begin()),
                               " has another value when it is read back"));
    at += bytes.size();
    return {};
  });
}

}  // namespace strata
