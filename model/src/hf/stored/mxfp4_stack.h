#pragma once

#include "hf/stored/stored_matrix.h"

namespace strata::detail {

/// The matrices of experts in MXFP4, as gpt-oss's releases have them: `NAME_blocks` [experts, rows, columns /
/// 32, 16], two values a byte, and `NAME_scales` [experts, rows, columns / 32]. Rows are those of the
/// outputs, also where the tensor NAME of a release in bf16 is transposed.
class Mxfp4Stack final : public StoredMatrix {
 public:
  static bool is_one(const std::string& weight, const FindTensor& find) {
    return find(weight + "_blocks").entry != nullptr;
  }
  static Result<std::unique_ptr<StoredMatrix>> open(const StoredWeight& weight, const FindTensor& find,
                                                    std::vector<std::string>& names);

  Status read(std::int64_t begin, std::span<float> into) const override;
  Status read_bytes(std::int64_t begin, std::span<std::byte> into) const override;

 private:
  using StoredMatrix::StoredMatrix;
  /// Rows of one part of one matrix.
  struct Rows {
    std::int64_t matrix;
    std::size_t part;
  };
  Status read_rows(const StoredTensor& tensor, std::int64_t row_bytes, const Rows& of, std::int64_t at,
                   std::span<std::byte> into) const;
  Status read_values(const Rows& of, std::int64_t begin, std::span<float> into) const;

  StoredTensor blocks_, scales_;
  bool rows_in_turn_ = false;
};

}  // namespace strata::detail
