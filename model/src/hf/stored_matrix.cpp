#include "hf/stored_matrix.h"

#include <algorithm>
#include <array>

#include <strata/runtime/str.h>

#include "folder_files.h"
#include "hf/bnb_matrix.h"
#include "hf/fp8_matrix.h"

namespace strata::detail {
namespace {

constexpr std::array kForms = {
    StoredForm{"bitsandbytes", &BnbMatrix::is_one, &BnbMatrix::open},
    StoredForm{"fp8", &Fp8Matrix::is_one, &Fp8Matrix::open},
};

}  // namespace

std::span<const StoredForm> stored_forms() noexcept { return kForms; }

const StoredForm* stored_form_of(std::string_view dtype) noexcept {
  const auto found =
      std::find_if(kForms.begin(), kForms.end(), [&](const StoredForm& form) { return form.is_one(dtype); });
  return found == kForms.end() ? nullptr : &*found;
}

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
