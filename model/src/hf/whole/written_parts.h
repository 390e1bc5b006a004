#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <strata/model/hf/folder.h>

#include "hf/whole/copy_parts.h"

namespace strata::detail {

struct WholeModel;

/// A tensor of other parts as an export has it: the folder's own, or the values of a matrix that is quantized
/// in the folder, rounded to the dtype of the export. The config.json of an export says that nothing is
/// quantized, and the text model is not.
struct WrittenTensor {
  std::string name, dtype;
  std::vector<std::uint64_t> shape;
  std::uint64_t bytes = 0;
  std::vector<const OtherTensor*> of = {};          ///< one, or all those of a matrix
  std::shared_ptr<const StoredMatrix> values = {};  ///< null for the folder's own bytes
  DType rounded = DType::f32;                       ///< else what they are rounded to
};

/// What an export writes of `parts` in `dtype`. Tensors of codes that belong to no matrix are copied. The
/// result refers to both. Errors: those of opening the matrices.
Result<std::vector<WrittenTensor>> written_tensors(const OtherParts& parts, const PartsSource& source,
                                                   DType dtype);

/// What an export copies besides the text model; nothing if the text model is exported alone.
class WrittenParts {
 public:
  /// `options` outlives the object. Errors: those of PartsSource, and `unsupported` for codes of a
  /// quantization that is not read.
  static Result<WrittenParts> open(Io& io, const HfExport& options);

  /// The kind of the whole model; null if the text model is exported alone, or with layers behind it.
  const WholeModel* kind() const noexcept { return kind_; }
  /// The tensors in files of at most options.shard_bytes.
  const std::vector<std::vector<WrittenTensor>>& shards() const noexcept { return shards_; }
  Status write_shard(Io& io, const std::string& path, std::size_t shard) const;
  /// Copies the files that the export does not write itself into the folder, and checks the others.
  Status write_files(Io& io, const std::string& folder) const;
  /// Makes the text model's config say which layers that predict further tokens are written.
  void name_extra_layers(nlohmann::json& config) const;

 private:
  explicit WrittenParts(const HfExport& options) : options_(&options) {}
  Status read_source_config();
  void split(std::vector<WrittenTensor> tensors);

  const HfExport* options_;
  const WholeModel* kind_ = nullptr;
  nlohmann::json text_config_;  // the folder has it that the parts are from
  bool has_extra_layers_ = false;
  std::optional<PartsSource> source_;
  std::vector<std::vector<WrittenTensor>> shards_;
};

/// Reads the tensors of other parts of an export in `dtype` back. Errors: `corrupt` with the tensor; those of
/// PartsSource.
Status check_written_parts(Io& io, const std::string& folder, const OtherParts& parts, DType dtype);

}  // namespace strata::detail
