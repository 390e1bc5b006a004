#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/kernels/quantized_matrix.h>
#include <strata/model/decoder_config.h>
#include <strata/model/hf/other_parts.h>
#include <strata/model/hf/tensors.h>
#include <strata/runtime/dtype.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/io/safetensors.h>
#include <strata/runtime/status.h>

namespace strata {

namespace detail {
class StoredMatrix;
struct WholeModel;
class GgufModel;
}  // namespace detail

/// A Hugging Face folder, or a GGUF file that says the same: config.json, and model.safetensors or its shards
/// with model.safetensors.index.json. open() guarantees that the files contain every tensor of the model
/// exactly once, with its shape and a readable dtype, and no other tensor. Matrices of blocks may be
/// quantized by bitsandbytes (NF4 and 8 bits), or in tiles of FP8; read as f32 they are dequantized.
/// Immutable; read() from one thread at a time.
///
/// A folder of a whole model (one that also reads images, or has an index) stands for its text model; tensors
/// of other parts are left alone, and of layers that predict further tokens (other_parts.h).
///
/// A head that config.json ties to the token embedding is read as transformers reads it: the files may have
/// the embedding, the head alone, which is then both, or both; if these differ, the head is not tied.
class HfFolder {
 public:
  /// Reports all problems of tensors at once, by name. Follows symlinks within the folder and, in a snapshot
  /// of the hub's cache, into its blobs. Errors: `not_found`, `corrupt`, `invalid` (a shard name that is no
  /// plain file name, a symlink to elsewhere), `unsupported`, those of explain_hf_folder().
  static Result<std::unique_ptr<HfFolder>> open(Io& io, const std::string& path);
  /// The config() of a folder whose tensors need not be complete. Errors: those of config.json.
  static Result<DecoderConfig> config_of(Io& io, const std::string& path);
  /// One safetensors file with tensors of `config`'s model under their names there, such as its moments. It
  /// may lack some: reading those is `not_found`.
  static Result<std::unique_ptr<HfFolder>> open_tensors(Io& io, const std::string& file,
                                                        const DecoderConfig& config);
  ~HfFolder();

  const std::string& path() const noexcept { return path_; }
  /// The configuration of the model. The head is tied only if the files do not contradict config.json.
  const DecoderConfig& config() const noexcept { return config_; }
  /// The text of config.json.
  const std::string& config_text() const noexcept { return config_text_; }
  /// Whether there is every tensor of a parameter of record_decoder(config()).
  bool has(std::string_view param) const noexcept;
  /// Whether the model has a parameter of that name.
  bool has_param(std::string_view param) const noexcept;
  /// The format in which the blocks' matrices can be held as they are in the files; `full` if one of them is
  /// not quantized, or if they differ.
  kernels::WeightFormat quantized_to() const noexcept { return quantized_to_; }
  /// Reads bytes [offset, offset + into.size()) of a quantized parameter as they are in the file and returns
  /// true, or returns false if the file does not have it as `matrix` says. Errors: `io_error`.
  Result<bool> read_quantized(std::string_view param, const kernels::QuantizedMatrix& matrix,
                              std::int64_t offset, std::span<std::byte> into) const;
  /// Whether every tensor is of `dtype`.
  bool is_all(DType dtype) const noexcept;
  /// Reads a parameter of record_decoder(config()) as f32, through a buffer of at most 1 MiB. Errors:
  /// `not_found`, `invalid` for a wrong size, `io_error`, and `corrupt`, also for a NaN or an infinity, with
  /// its tensor and element.
  Status read(std::string_view param, std::span<float> into) const;
  /// Reads elements [offset, offset + into.size()) of a parameter. A parameter with another layout in the
  /// file than in the model (HfTensor::Layout) is held entirely in f32 until its last part is read.
  Status read_part(std::string_view param, std::int64_t offset, std::span<float> into) const;

 private:
  struct TensorLocation {
    const SafetensorsFile* file = nullptr;
    const SafetensorsEntry* entry = nullptr;
    DType dtype = DType::f32;
    const detail::StoredMatrix* quantized = nullptr;  // then the entry is that of its values
    std::string_view name = {};                       // in the file
  };
  HfFolder();
  Status open_files(Io& io);
  Status open_gguf(Io& io);
  void settle_stacked_experts();
  Status settle_tied_head();
  Result<bool> are_equal(const TensorLocation& one, const TensorLocation& other) const;
  TensorLocation location_of(std::string_view name) const;
  Status locate_tensors(bool must_be_complete);
  std::set<std::string, std::less<>> open_quantized(const std::function<void(std::string)>& problem);
  bool has_bare_names() const;
  Status read_block(const TensorLocation& location, std::int64_t begin, std::span<float> into) const;
  Status check_finite(std::string_view tensor, std::int64_t begin, std::span<const float> into) const;
  Result<std::int64_t> elements_of(std::string_view param) const;
  Status read_rows(std::string_view param, std::int64_t offset, std::span<float> into) const;

  std::string path_;
  DecoderConfig config_;
  std::string config_text_;
  const detail::WholeModel* whole_ = nullptr;  // null if there is nothing but a text model
  std::vector<HfTensor> tensors_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::unique_ptr<detail::GgufModel> gguf_;                       // instead of files
  std::map<std::string, TensorLocation, std::less<>> locations_;  // keyed by the tensor's name in the file
  std::map<std::string, std::unique_ptr<detail::StoredMatrix>, std::less<>> quantized_;  // the same
  kernels::WeightFormat quantized_to_ = kernels::WeightFormat::full;
  mutable std::string rearranged_name_;  // the parameter that read_part() holds
  mutable std::vector<float> rearranged_;
};

/// The tokens that begin, end and pad a text, in a config.json.
struct HfTokenIds {
  std::int32_t bos = -1, pad = -1;  ///< -1: as source_config has it
  std::vector<std::int32_t> eos;    ///< empty: likewise
};

struct HfExport {
  DType dtype = DType::f32;  ///< f32, bf16 or f16
  std::uint64_t shard_bytes =
      5'000'000'000;               ///< maximum bytes of tensors per file; a larger tensor gets its own file
  std::string source_config = {};  ///< config.json of the folder the model came from; see hf_config_json()
  HfTokenIds token_ids = {};
  std::map<std::string, std::string> files = {};  ///< further text files to write (tokenizer.json ...)
  /// What `source_config`'s folder has besides this text model, with digests. If that is a whole model, so is
  /// what is written. Its files are copied but for those in `files`. Nothing: a folder of the text model
  /// alone.
  std::optional<OtherParts> others = {};
};
/// Writes a parameter of the model to `into` as f32.
using ParamSource = std::function<Status(std::string_view param, std::span<float> into)>;

/// Writes a folder that HfFolder and other programs can read: to a temporary folder next to `path`, with
/// every file synced, which is then renamed. `path` must not exist. Holds one parameter and 2 MiB at a time.
/// Errors: `invalid`, `no_space`, `io_error`, those of `source`; `diverged` for a NaN or an infinity and
/// `invalid` for a value out of the range of `dtype`, with the tensor. If other parts are copied, also
/// `not_found` or `corrupt` if their folder is gone, or has others than the record, with both digests; and
/// `unsupported` if they are quantized otherwise than in tiles of FP8 and INT4, of which the values are
/// written.
Status export_hf(Io& io, const std::string& path, const DecoderConfig& config, const ParamSource& source,
                 const HfExport& options);
/// Writes those parameters of the model for which `wanted` is true to one safetensors file, in f32, under the
/// names that they have in a folder. Errors: those of export_hf().
Status export_hf_tensors(Io& io, const std::string& file, const DecoderConfig& config,
                         const std::function<bool(std::string_view param)>& wanted,
                         const ParamSource& source);
/// Reads the folder back and compares every element with `source`, rounded as in the export, and the digests
/// of other parts with `others`. Errors: `corrupt` with the tensor.
Status check_hf_export(Io& io, const std::string& path, const ParamSource& source, DType dtype,
                       const std::optional<OtherParts>& others = {});

}  // namespace strata
