#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
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

/// A matrix [rows, columns] that bitsandbytes has quantized: NF4 with blocks of 64 and f32 scales, or with
/// scales in 8 bits, or 8 bits with a scale for each row (LLM.int8; Dettmers et al. 2022, arXiv 2208.07339).
/// It is stored as several tensors, whose names begin with that of the matrix.
class BnbMatrix {
 public:
  /// Finds a tensor of the folder; its entry is null if there is none.
  using Find = std::function<StoredTensor(const std::string& name)>;

  /// Whether a tensor `weight` of this dtype (as in the file) is the values of such a matrix.
  static bool is_one(std::string_view dtype) noexcept { return dtype == "U8" || dtype == "I8"; }
  /// The matrix whose values are the tensor `weight`. `names` gets the names of all its tensors. Errors:
  /// `unsupported` for another quantization, `corrupt` for tensors that do not belong together; by name, with
  /// both numbers.
  static Result<BnbMatrix> open(const std::string& weight, std::int64_t rows, std::int64_t columns,
                                const Find& find, std::vector<std::string>& names);

  kernels::WeightFormat format() const noexcept { return matrix_.format; }
  /// Reads values [begin, begin + into.size()). Errors: `io_error`.
  Status read(std::int64_t begin, std::span<float> into) const;
  /// Whether read_bytes() has the scales: those of a row are those of its blocks.
  bool has_bytes() const noexcept;
  /// Reads bytes [begin, begin + into.size()) of the matrix as kernels::QuantizedMatrix with one part has
  /// them.
  Status read_bytes(std::int64_t begin, std::span<std::byte> into) const;

 private:
  Status open_nf4(const std::string& weight, const Find& find, std::vector<std::string>& names);
  Status open_int8(const std::string& weight, const Find& find, std::vector<std::string>& names);
  Status read_rows(std::int64_t begin, std::span<float> into) const;
  Status read_scales(std::int64_t first_block, std::span<float> into) const;

  kernels::QuantizedMatrix matrix_;
  StoredTensor values_, scales_, group_scales_;
  std::vector<float> map_;  // the values of 8-bit scales
  float mean_ = 0;
};

}  // namespace strata::detail
