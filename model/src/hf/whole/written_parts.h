#pragma once

#include <optional>
#include <string>
#include <vector>

#include <strata/model/hf/folder.h>

#include "hf/whole/copy_parts.h"

namespace strata::detail {

struct WholeModel;

/// What an export copies besides the text model; nothing if the text model is exported alone.
class WrittenParts {
 public:
  /// `options` outlives the object. Errors: those of PartsSource, and `unsupported` for quantized tensors.
  static Result<WrittenParts> open(Io& io, const HfExport& options);

  /// The kind of the whole model; null if the text model is exported alone.
  const WholeModel* kind() const noexcept { return kind_; }
  /// The tensors in files of at most options.shard_bytes.
  const std::vector<std::vector<const OtherTensor*>>& shards() const noexcept { return shards_; }
  Status write_shard(Io& io, const std::string& path, std::size_t shard) const;
  /// Copies the files that the export does not write itself into the folder, and checks the others.
  Status write_files(Io& io, const std::string& folder) const;

 private:
  explicit WrittenParts(const HfExport& options) : options_(&options) {}

  const HfExport* options_;
  const WholeModel* kind_ = nullptr;
  std::optional<PartsSource> source_;
  std::vector<std::vector<const OtherTensor*>> shards_;
};

/// Reads the tensors of other parts of an export back. Errors: `corrupt` with the tensor.
Status check_written_parts(Io& io, const std::string& folder, const OtherParts& parts);

}  // namespace strata::detail
