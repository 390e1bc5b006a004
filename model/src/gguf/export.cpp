#include <strata/model/gguf/export.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include <strata/runtime/str.h>
#include <strata/text/gguf_vocabulary.h>

#include "gguf/architecture.h"
#include <strata/runtime/io/gguf/encoding.h>
#include <strata/runtime/io/gguf/layout.h>
#include "gguf/tensors.h"
#include "hf/folder_files.h"
#include "hf/written_values.h"

namespace strata {
namespace {

using detail::GgufPart;

constexpr std::int64_t kGgufElemsAtOnce = (1 << 20) / 4;  // a thread converts so many elements at a time
constexpr std::int64_t kQuantizationVersion = 2;          // GGML_QNT_VERSION

/// Takes the bytes of a file from front to back.
using ByteSink = std::function<Status(std::span<const std::byte>)>;

/// The contents of an export, before any value is read.
struct GgufPlan {
  std::string header;
  std::vector<GgufPart> parts;
  std::vector<std::string> notes;
};

void note_model(const detail::GgufArchitecture& architecture, const DecoderConfig& config,
                const std::vector<GgufPart>& parts, std::vector<std::string>& notes) {
  if (const std::int64_t context = detail::gguf_context(architecture, config); context < config.positions)
    notes.push_back(str("the context is ", context, " of the model's ", config.positions,
                        " tokens: beyond the sliding window llama.cpp's ", architecture.name,
                        " would see all keys"));
  if (architecture.yarn_unrounded && config.frequencies.scaling == RopeFrequencies::Scaling::yarn)
    notes.push_back(
        str("llama.cpp's ", architecture.name,
            " rounds the frequencies between which YaRN blends, which the model does not (truncate "
            "is false): its angles are slightly others"));
  const auto is_replaced = [](const GgufPart& part) { return part.tensor.format != part.wanted; };
  const auto n = std::count_if(parts.begin(), parts.end(), is_replaced);
  if (n == 0) return;
  const GgufPart& first = *std::find_if(parts.begin(), parts.end(), is_replaced);
  notes.push_back(str(n, " matrices have another format, since ", to_string(first.wanted),
                      " needs rows of a multiple of ", gguf_block(first.wanted).elems,
                      " values: ", first.tensor.name, " has ", first.columns(), " and is ",
                      to_string(first.tensor.format)));
}

Result<GgufPlan> plan_gguf(const DecoderConfig& given, const Tokenizer& tokenizer,
                           const GgufExport& options) {
  const DecoderConfig config = with_derived_sizes(given);
  STRATA_TRY_ASSIGN(const detail::GgufArchitecture architecture, detail::gguf_architecture(config));
  if (options.format == GgufMix::mxfp4_moe && config.experts.n == 0)
    return Status::error(Code::invalid,
                         str(to_string(options.format), " is a format of experts, and the MLPs of ",
                             config.family, " are no mixtures of experts"));
  GgufPlan plan;
  GgufMetadata metadata;
  metadata.add_text("general.architecture", architecture.name);
  metadata.add_text("general.type", "model");
  const std::string name = gguf_model_name(tokenizer, options.name, plan.notes);
  if (!name.empty()) metadata.add_text("general.name", name);
  metadata.add_u32("general.file_type", static_cast<std::int64_t>(options.format));
  metadata.add_u32("general.quantization_version", kQuantizationVersion);
  detail::add_architecture(architecture, config, metadata);
  STRATA_TRY(
      add_vocabulary(tokenizer, config.vocab, {options.end, options.chat_template}, metadata, plan.notes));
  plan.parts = detail::gguf_parts(architecture, config, options.format);
  note_model(architecture, config, plan.parts, plan.notes);
  std::vector<GgufTensor> tensors;
  for (const GgufPart& part : plan.parts) tensors.push_back(part.tensor);
  plan.header = gguf_header(metadata, tensors);
  return plan;
}

/// Some rows of a part, and what is written of them.
struct EncodedRows {
  std::vector<float> values, rounded;
  std::vector<std::byte> bytes;
  Status status;

  void resize(GgufFormat format, std::int64_t n) {
    values.resize(static_cast<std::size_t>(n));
    rounded.resize(values.size());
    bytes.resize(gguf_bytes(format, values.size()));
  }
  /// The values become bytes. `begin` is the number of the first value in the tensor.
  Status encode(const GgufTensor& tensor, std::int64_t begin) {
    const std::string_view format = to_string(tensor.format);
    STRATA_TRY(detail::check_written(tensor.name, begin, values, values, format));
    STRATA_TRY(encode_gguf(values, tensor.format, bytes));
    STRATA_TRY(decode_gguf(bytes, tensor.format, rounded));
    return detail::check_written(tensor.name, begin, values, rounded, format);
  }
};

/// Encodes rows of a part, as many at once as there are threads, and hands them on in order.
class PartStream {
 public:
  PartStream(const GgufPart& part, ThreadPool* pool, const ByteSink& sink)
      : part_(part), pool_(pool), sink_(sink) {}

  Status send(std::span<const float> param) {
    const std::int64_t step = std::max<std::int64_t>(1, kGgufElemsAtOnce / part_.columns());
    const std::int64_t n_steps = (part_.rows() + step - 1) / step;
    const std::int64_t at_once = std::min<std::int64_t>(n_steps, pool_ == nullptr ? 1 : pool_->threads());
    std::vector<EncodedRows> rows(static_cast<std::size_t>(at_once));
    for (std::int64_t first = 0; first < n_steps; first += at_once) {
      const std::int64_t n = std::min(at_once, n_steps - first);
      for (std::int64_t i = 0; i < n; ++i)
        rows[static_cast<std::size_t>(i)].resize(
            part_.tensor.format, std::min(step, part_.rows() - (first + i) * step) * part_.columns());
      const auto encode = [&](std::int64_t i) {
        EncodedRows& of = rows[static_cast<std::size_t>(i)];
        const std::int64_t row = (first + i) * step;
        detail::gather_gguf(part_, row, param, of.values);
        of.status = of.encode(part_.tensor, row * part_.columns());
      };
      if (n > 1)
        pool_->parallel_for(n, encode);
      else
        encode(0);
      for (std::int64_t i = 0; i < n; ++i) STRATA_TRY(hand_on(rows[static_cast<std::size_t>(i)]));
    }
    return pad();
  }
  Status send_whole(std::vector<float> values) {
    EncodedRows rows;
    rows.resize(part_.tensor.format, std::ssize(values));
    rows.values = std::move(values);
    rows.status = rows.encode(part_.tensor, 0);
    STRATA_TRY(hand_on(rows));
    return pad();
  }

 private:
  Status hand_on(const EncodedRows& rows) {
    STRATA_TRY(rows.status);
    return sink_(rows.bytes);
  }
  Status pad() { return sink_(std::vector<std::byte>(gguf_padding(part_.tensor.bytes()))); }

  const GgufPart& part_;
  ThreadPool* const pool_;
  const ByteSink& sink_;
};

Status send_file(const GgufPlan& plan, const DecoderConfig& config, const ParamSource& source,
                 ThreadPool* pool, const ByteSink& sink) {
  STRATA_TRY(sink(std::as_bytes(std::span(plan.header))));
  detail::ParamCache params(config, source);
  for (const GgufPart& part : plan.parts) {
    PartStream stream(part, pool, sink);
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
  for (const GgufPart& part : plan.parts) bytes += part.tensor.bytes() + gguf_padding(part.tensor.bytes());
  return bytes;
}

Status write_draft(Io& io, const std::string& draft, const GgufPlan& plan, const DecoderConfig& config,
                   const ParamSource& source, ThreadPool* pool) {
  const std::string folder = std::filesystem::path(draft).parent_path().string();
  if (!folder.empty()) STRATA_TRY(io.make_dirs(folder));
  STRATA_TRY_ASSIGN(const auto file, io.open(draft, OpenMode::create));
  STRATA_TRY(file->allocate(file_bytes(plan)).annotate(draft));
  std::uint64_t at = 0;
  const ByteSink append = [&](std::span<const std::byte> bytes) -> Status {
    at += bytes.size();
    return write_all(*file, at - bytes.size(), bytes);
  };
  STRATA_TRY(send_file(plan, config, source, pool, append));
  return file->sync();
}

}  // namespace

Result<std::vector<std::string>> export_gguf(Io& io, const std::string& path, const DecoderConfig& config,
                                             const Tokenizer& tokenizer, const ParamSource& source,
                                             const GgufExport& options) {
  STRATA_TRY_ASSIGN(GgufPlan plan, plan_gguf(config, tokenizer, options));
  STRATA_TRY(detail::write_whole(io, path, [&](const std::string& draft) {
    return write_draft(io, draft, plan, config, source, options.pool);
  }));
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
  return send_file(plan, config, source, options.pool, [&](std::span<const std::byte> bytes) -> Status {
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
