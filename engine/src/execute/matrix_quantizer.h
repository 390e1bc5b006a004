#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <strata/kernels/quantized_matrix.h>
#include <strata/runtime/status.h>
#include <strata/runtime/threads/thread_pool.h>

namespace strata::detail {

/// Quantizes matrices piece by piece: of a part, the values' bytes come first and then the scales, which are
/// kept until then. If the pieces come in order, each value is read once.
class MatrixQuantizer {
 public:
  /// Reads values [first, first + into.size()) of all matrices.
  using ReadValues = std::function<Status(std::int64_t first, std::span<float> into)>;

  MatrixQuantizer(const kernels::QuantizedMatrix& matrix, ThreadPool& pool) : matrix_(matrix), pool_(pool) {}
  const kernels::QuantizedMatrix& matrix() const noexcept { return matrix_; }
  /// Writes bytes [first, first + into.size()) of the quantized matrices. Errors: those of `read`.
  Status read_bytes(std::int64_t first, std::span<std::byte> into, const ReadValues& read);

 private:
  /// A part of one of the matrices.
  struct Part {
    std::int64_t matrix = 0;
    std::size_t index = kernels::QuantizedMatrix::kMaxParts;
    friend bool operator==(const Part&, const Part&) = default;
  };
  Status read_part(const Part& at, std::int64_t first, std::span<std::byte> into, const ReadValues& read);
  Status quantize(const Part& at, std::int64_t first_unit, std::int64_t end_unit, const ReadValues& read);
  Status finish_scales(const Part& at, const ReadValues& read);

  const kernels::QuantizedMatrix matrix_;
  ThreadPool& pool_;
  Part part_;                   // the one of scales_
  std::int64_t quantized_ = 0;  // its units whose scales are known, from the first
  std::vector<float> scales_;
  std::vector<std::byte> sections_;  // the bytes behind its values, when all scales are known
  std::vector<float> values_;        // the values of some units
  std::vector<std::uint8_t> codes_;  // the codes of the same units
};

}  // namespace strata::detail
