#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <strata/model/decoder.h>
#include <strata/model/hf/tensors.h>
#include <strata/runtime/dtype.h>
#include <strata/runtime/io.h>
#include <strata/runtime/safetensors.h>
#include <strata/runtime/status.h>

namespace strata {

/// A Hugging Face folder: config.json, and model.safetensors or its shards with model.safetensors.index.json.
/// An open one proves that every tensor of the model is there once with its shape and a dtype that can be
/// read, and no other. Immutable; read() from one thread at a time.
class HfFolder {
 public:
  /// All problems of the tensors at once, by name. Symlinks are followed within the folder and, in a snapshot
  /// of the hub's cache, into its blobs. Errors: `not_found`, `corrupt`, `invalid` (a shard's name that is no
  /// plain file name, a symlink to elsewhere), `unsupported`, those of explain_hf_folder().
  static Result<std::unique_ptr<HfFolder>> open(Io& io, const std::string& path);
  ~HfFolder();

  const std::string& path() const noexcept { return path_; }
  const DecoderConfig& config() const noexcept { return config_; }
  /// config.json as it is.
  const std::string& config_text() const noexcept { return config_text_; }
  /// Whether every tensor is of `dtype`.
  bool is_all(DType dtype) const noexcept;
  /// Fills a parameter of record_decoder(config()), in f32, through a buffer of at most 1 MiB. Where the file
  /// holds a tied head too, it must have the token table's bits. Errors: `not_found`, `invalid` for a wrong
  /// size, `io_error`, `corrupt`, also for a NaN or an infinity, naming its tensor and element.
  Status read(std::string_view param, std::span<float> into) const;
  /// The same for elements [offset, offset + into.size()) of it. A parameter whose tensors lie otherwise in
  /// the file than in the model (HfTensor::Layout) is kept whole in f32 until its last part was read.
  Status read_part(std::string_view param, std::int64_t offset, std::span<float> into) const;

 private:
  struct TensorLocation {
    const SafetensorsFile* file = nullptr;
    const SafetensorsEntry* entry = nullptr;
    DType dtype = DType::f32;
  };
  HfFolder() = default;
  Status open_files(Io& io);
  Status locate_tensors();
  bool has_bare_names() const;
  Status read_block(const TensorLocation& location, std::int64_t begin, std::span<float> into) const;
  Status check_tied_head(std::int64_t offset, std::span<const float> tokens) const;
  Result<std::int64_t> elements_of(std::string_view param) const;
  Status read_rows(std::string_view param, std::int64_t offset, std::span<float> into) const;

  std::string path_;
  DecoderConfig config_;
  std::string config_text_;
  std::vector<HfTensor> tensors_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, TensorLocation, std::less<>> locations_;  // by the file's name of a tensor
  mutable std::string rearranged_name_;                           // of the parameter that read_part() keeps
  mutable std::vector<float> rearranged_;
};

/// Why a folder that is no model for strata is none, and what to do about it: a PEFT adapter, weights that
/// PyTorch pickled, GGUF. Ok where it is none of these. Errors: `unsupported`.
Status explain_hf_folder(Io& io, const std::string& path);

struct HfExport {
  DType dtype = DType::f32;  ///< f32, bf16 or f16
  std::uint64_t shard_bytes =
      5'000'000'000;               ///< at most so many bytes of tensors a file, one tensor at least
  std::string source_config = {};  ///< config.json of the folder the model came from; see hf_config_json()
  std::int32_t end_of_text = -1;   ///< its bos and eos token where not negative, whatever source_config says
  std::map<std::string, std::string> files = {};  ///< texts written beside (tokenizer.json ...)
};
/// Gives a parameter of the model in f32.
using ParamSource = std::function<Status(std::string_view param, std::span<float> into)>;

/// Writes a folder that HfFolder and others read: beside `path` first, every file synced, then renamed.
/// `path` may not exist. Holds one parameter and 2 MiB at a time. Errors: `invalid`, `no_space`, `io_error`,
/// those of `source`; for a NaN, an infinity or a value past `dtype`, naming its tensor: `diverged`,
/// `invalid`.
Status export_hf(Io& io, const std::string& path, const DecoderConfig& config, const ParamSource& source,
                 const HfExport& options);
/// Reads the folder back and compares every element with `source`, rounded as exported. Errors: `corrupt`,
/// naming the tensor.
Status check_hf_export(Io& io, const std::string& path, const ParamSource& source, DType dtype);

}  // namespace strata
