#pragma once

#include "hf/stored/stored_matrix.h"

namespace strata::detail {

/// A matrix in tiles of FP8 (DeepSeek-V3, arXiv 2412.19437): `weight` in E4M3 [rows, columns], and
/// `weight_scale_inv` in f32 [rows / 128, columns / 128], rounded up, by which the tiles are multiplied.
class Fp8Matrix final : public StoredMatrix {
 public:
  static bool is_one(const std::string& weight, const FindTensor& find);
  static Result<std::unique_ptr<StoredMatrix>> open(const StoredWeight& weight, const FindTensor& find,
                                                    std::vector<std::string>& names);

  Status read(std::int64_t begin, std::span<float> into) const override;
  Status read_bytes(std::int64_t begin, std::span<std::byte> into) const override;

 private:
  using StoredMatrix::StoredMatrix;
  Status read_in_tiles(std::int64_t begin, std::span<float> into) const;

  StoredTensor values_, scales_;
};

}  // namespace strata::detail
