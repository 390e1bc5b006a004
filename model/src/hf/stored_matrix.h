#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/kernels/quantized_matrix.h>
#include <strata/runtime/io/safetensors.h>
#include <strata/runtime/status.h>

namespace strata::detail {

/// A tensor of a folder.
struct StoredTensor {
  const SafetensorsFile* file = nullptr;
  const SafetensorsEntry* entry = nullptr;
};
/// Finds a tensor of the folder; its entry is null if there is none.
using FindTensor = std::function<StoredTensor(const std::string& name)>;

/// A matrix [rows, columns] that is quantized in a folder: several tensors, whose names begin alike.
class StoredMatrix {
 public:
  virtual ~StoredMatrix() = default;
  StoredMatrix(const StoredMatrix&) = delete;
  StoredMatrix& operator=(const StoredMatrix&) = delete;

  kernels::WeightFormat format() const noexcept { return matrix_.format; }
  /// Reads values [begin, begin + into.size()). Errors: `io_error`.
  virtual Status read(std::int64_t begin, std::span<float> into) const = 0;
  /// Whether read_bytes() has them: some forms of files have scales that the format cannot hold.
  virtual bool has_bytes() const noexcept { return true; }
  /// Reads bytes [begin, begin + into.size()) of the matrix as kernels::QuantizedMatrix with one part has
  /// them.
  virtual Status read_bytes(std::int64_t begin, std::span<std::byte> into) const = 0;

 protected:
  explicit StoredMatrix(const kernels::QuantizedMatrix& matrix) : matrix_(matrix) {}
  kernels::QuantizedMatrix matrix_;
};

/// A way of storing quantized matrices in folders.
struct StoredForm {
  std::string_view method;  ///< quantization_config.quant_method
  /// Whether a tensor of this dtype (as in the file) is the values of such a matrix.
  bool (*is_one)(std::string_view dtype) noexcept;
  /// The matrix whose values are the tensor `weight`. `names` gets the names of all its tensors. Errors:
  /// `unsupported` for another quantization, `corrupt` for tensors that do not belong together; by name, with
  /// both numbers.
  Result<std::unique_ptr<StoredMatrix>> (*open)(const std::string& weight, std::int64_t rows,
                                                std::int64_t columns, const FindTensor& find,
                                                std::vector<std::string>& names);
};
std::span<const StoredForm> stored_forms() noexcept;
/// The form whose values have this dtype; null if there is none.
const StoredForm* stored_form_of(std::string_view dtype) noexcept;

// What the forms share.
Status wrong_tensor(const std::string& name, const std::string& is, const std::string& must_be);
/// A tensor with that dtype and number of elements.
Result<StoredTensor> expect_tensor(const std::string& name, std::string_view dtype, std::int64_t elems,
                                   const FindTensor& find, std::vector<std::string>& names);
Status read_stored(const StoredTensor& tensor, std::int64_t at, std::span<std::byte> into);

/// Copies what bytes [at, at + n) of a section have in common with [begin, begin + into.size()), which
/// `read(offset, span)` reads.
template <class Read>
Status copy_section(std::int64_t at, std::int64_t n, std::int64_t begin, std::span<std::byte> into,
                    const Read& read) {
  const std::int64_t from = std::max(at, begin), to = std::min(at + n, begin + std::ssize(into));
  if (from >= to) return {};
  return read(from - at,
              into.subspan(static_cast<std::size_t>(from - begin), static_cast<std::size_t>(to - from)));
}

}  // namespace strata::detail
