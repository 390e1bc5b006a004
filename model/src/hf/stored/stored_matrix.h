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

/// A matrix, or those of all experts of a layer, that a model reads.
struct StoredWeight {
  std::string name;                ///< its tensor's in a folder that is not quantized
  kernels::QuantizedMatrix shape;  ///< in any format
  bool rows_in_turn = false;       ///< the rows of its two parts are in turn in a folder
};

/// A matrix that is quantized in a folder: several tensors, whose names begin alike.
class StoredMatrix {
 public:
  virtual ~StoredMatrix() = default;
  StoredMatrix(const StoredMatrix&) = delete;
  StoredMatrix& operator=(const StoredMatrix&) = delete;

  kernels::WeightFormat format() const noexcept { return matrix_.format; }
  /// What read_bytes() reads.
  const kernels::QuantizedMatrix& matrix() const noexcept { return matrix_; }
  /// Reads values [begin, begin + into.size()). Errors: `io_error`.
  virtual Status read(std::int64_t begin, std::span<float> into) const = 0;
  /// Whether read_bytes() has them: some forms of files have scales that the format cannot hold.
  virtual bool has_bytes() const noexcept { return true; }
  /// Reads bytes [begin, begin + into.size()) of the quantized matrix.
  virtual Status read_bytes(std::int64_t begin, std::span<std::byte> into) const = 0;

 protected:
  explicit StoredMatrix(const kernels::QuantizedMatrix& matrix) : matrix_(matrix) {}
  kernels::QuantizedMatrix matrix_;
};

// What the forms share.
Status wrong_tensor(const std::string& name, const std::string& is, const std::string& must_be);
/// A tensor with that dtype and number of elements.
Result<StoredTensor> expect_tensor(const std::string& name, std::string_view dtype, std::int64_t elems,
                                   const FindTensor& find, std::vector<std::string>& names);
/// The same with that shape.
Result<StoredTensor> expect_shape(const std::string& name, std::string_view dtype,
                                  const std::vector<std::int64_t>& shape, const FindTensor& find,
                                  std::vector<std::string>& names);
Status read_stored(const StoredTensor& tensor, std::int64_t at, std::span<std::byte> into);
/// The same of scales of a format that is not double quantized, and of codes of E4M3. Errors also: `corrupt`
/// for one that stands for a value that is not finite, or with which a code does, if the piece has it whole.
Status read_scales(const StoredTensor& tensor, kernels::WeightFormat format, std::int64_t at,
                   std::span<std::byte> into);
Status read_e4m3(const StoredTensor& tensor, std::int64_t at, std::span<std::byte> into);

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
