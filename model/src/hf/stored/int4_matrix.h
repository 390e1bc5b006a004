#pragma once

#include "hf/stored/stored_matrix.h"

namespace strata::detail {

/// A matrix of INT4 in groups, as compressed-tensors packs it (`pack-quantized`, symmetric): `weight_packed`
/// I32 [rows, columns / 8], eight values plus 8 in each from its lowest bits on, `weight_scale` in bf16
/// [rows, columns / 32], and `weight_shape` [2].
class Int4Matrix final : public StoredMatrix {
 public:
  static bool is_one(const std::string& weight, const FindTensor& find) {
    return find(weight + "_packed").entry != nullptr;
  }
  static Result<std::unique_ptr<StoredMatrix>> open(const StoredWeight& weight, const FindTensor& find,
                                                    std::vector<std::string>& names);

  Status read(std::int64_t begin, std::span<float> into) const override;
  Status read_bytes(std::int64_t begin, std::span<std::byte> into) const override;

 private:
  using StoredMatrix::StoredMatrix;

  StoredTensor values_, scales_;
};

}  // namespace strata::detail
