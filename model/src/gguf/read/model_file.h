// A GGUF file as a Hugging Face folder: the same text files and parameters.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/model/decoder_config.h>
#include <strata/model/hf/tensors.h>
#include <strata/runtime/dtype.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/status.h>

#include <strata/runtime/io/gguf/reader.h>
#include "family/family.h"
#include "gguf/tensors.h"

namespace strata::detail {

/// The model of a file. Immutable; read() from one thread at a time.
class GgufModel {
 public:
  /// Checks that the file has every tensor of the model once, with its shape, and no other. Errors: those of
  /// GgufReader::open() and config_from_gguf(); `corrupt` for tensors, all problems at once.
  static Result<std::unique_ptr<GgufModel>> open(Io& io, const std::string& path);

  const DecoderConfig& config() const noexcept { return config_; }
  /// config.json.
  const std::string& config_text() const noexcept { return config_text_; }
  /// The tensors, with our order of rows.
  const std::vector<HfTensor>& tensors() const noexcept { return tensors_; }
  /// The dtype whose values the tensor has; f32 if it is quantized.
  DType dtype(std::string_view tensor) const;
  /// Reads elements [begin, begin + into.size()) of a tensor. Errors: those of GgufReader::read().
  Status read(std::string_view tensor, std::int64_t begin, std::span<float> into) const;

 private:
  GgufModel() = default;
  Status locate_tensors(const GgufArchitecture& architecture);
  void add_runs(const GgufPart& part);
  const GgufEntry& entry_of(std::string_view tensor) const;

  std::unique_ptr<GgufReader> file_;
  DecoderConfig config_;
  std::string config_text_;
  std::vector<HfTensor> tensors_;
  /// Rows of a tensor of the file that come after each other in their parameter.
  struct Run {
    GgufPart part;
    std::int64_t first = 0;  ///< its first element in the tensor
  };
  std::map<std::string, Run, std::less<>> runs_;  // keyed by name in tensors_
};

}  // namespace strata::detail
