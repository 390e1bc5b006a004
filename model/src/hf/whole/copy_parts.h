// Copies what a folder has besides its text model, and checks that it is what a record says.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <strata/model/hf/other_parts.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/io/safetensors.h>

#include "hf/stored/stored_matrix.h"
#include "hf/written_values.h"

namespace strata::detail {

/// Whether a file of a whole model's folder belongs to no text model: configurations of processors, chat
/// templates, code and licenses, but no weights, and not what describes the tokens. config.json is one, since
/// it describes all parts.
bool is_other_file(std::string_view name);

/// Gives the bytes of a tensor to `into`, at most 1 MiB at a time, and returns their digest. Errors:
/// `not_found` if no file has it; those of reading and of `into`.
Result<std::string> stream_tensor(const std::vector<std::unique_ptr<SafetensorsFile>>& shards,
                                  const std::string& name, const ByteSink& into);

/// The folder that a record is of, opened to copy from.
class PartsSource {
 public:
  /// `parts` outlives the object. Errors: `not_found` for a folder, tensor or file that is gone, `invalid`
  /// for a tensor with another dtype or shape.
  static Result<PartsSource> open(Io& io, const OtherParts& parts);

  /// Errors: `corrupt` for other bytes than the record's, with both digests; those of `into`.
  Status copy_tensor(const OtherTensor& tensor, const ByteSink& into) const;
  /// Reads a tensor of which other values are written than its bytes. Errors: as for copy_tensor().
  Status check_tensor_bytes(const OtherTensor& tensor) const;
  StoredTensor find(const std::string& name) const;
  /// Writes a new file. Errors: as for copy_tensor().
  Status copy_file(Io& io, const OtherFile& file, const std::string& path) const;
  /// Errors: `corrupt` if the file is another one.
  Status check_file(Io& io, const OtherFile& file) const;

 private:
  explicit PartsSource(const OtherParts& parts) : parts_(&parts) {}
  Status check_tensor(const OtherTensor& tensor) const;
  Status check_digest(std::string_view what, const std::string& found, const std::string& recorded) const;

  const OtherParts* parts_;
  std::vector<std::unique_ptr<SafetensorsFile>> shards_;
};

}  // namespace strata::detail
