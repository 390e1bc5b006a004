#include "hf/stored/stored_matrix.h"

#include <strata/runtime/str.h>

#include "hf/folder_files.h"

namespace strata::detail {
Status wrong_tensor(const std::string& name, const std::string& is, const std::string& must_be) {
  return Status::error(Code::corrupt, str(name, " is ", is, "; it must be ", must_be));
}

Result<StoredTensor> expect_tensor(const std::string& name, std::string_view dtype, std::int64_t elems,
                                   const FindTensor& find, std::vector<std::string>& names) {
  const StoredTensor found = find(name);
  if (found.entry == nullptr) return Status::error(Code::corrupt, str(name, " is missing"));
  names.push_back(name);
  std::uint64_t n = 1;
  for (const std::uint64_t extent : found.entry->shape) n *= extent;
  if (found.entry->dtype == dtype && n == static_cast<std::uint64_t>(elems)) return found;
  return wrong_tensor(name, str(found.entry->dtype, " ", shape_text(found.entry->shape)),
                      str(dtype, " with ", elems, " elements"));
}

Status read_stored(const StoredTensor& tensor, std::int64_t at, std::span<std::byte> into) {
  return tensor.file->read_range(*tensor.entry, static_cast<std::uint64_t>(at), into);
}

}  // namespace strata::detail
