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

/// Quantizes a matrix piece by piece: of a part, the values' bytes come first and then the scales, which are
/// kept until then. If the pieces come in order, each value is read once.
class MatrixQuantizer {
 public:
  /// Reads values [first, first + into.size()) of the matrix.
  using ReadValues = std::function<Status(std::int64_t first, std::span<float> into)>;

  MatrixQuantizer(const kernels::QuantizedMatrix& matrix, ThreadPool& pool) : matrix_(matrix), pool_(pool) {}
  const kernels::QuantizedMatrix& matrix() const noexcept { return matrix_; }
  /// Writes bytes [first, first + into.size()) of the quantized matrix. Errors: those of `read`.
  Status read_bytes(std::int64_t first, std::span<std::byte> into, const ReadValues& read);

 private:
  Status quantize(std::size_t part, std::int64_t first_block, std::int64_t end_block, const ReadValues& read);
  Status finish_scales(std::size_t part, const ReadValues& read);

  const kernels::QuantizedMatrix matrix_;
  ThreadPool& pool_;
  std::size_t part_ = kernels::QuantizedMatrix::kMaxParts;  // the one of scales_
  std::int64_t quantized_ = 0;  // its blocks whose scales are known, from the first
  std::vector<float> scales_;
  std::vector<std::byte> sections_;  // the bytes behind its values, when all scales are known
  std::vector<float> values_;        // the values of some blocks
  std::vector<std::uint8_t> codes_;  // the codes of the same blocks
};

}  // namespace strata::detail
