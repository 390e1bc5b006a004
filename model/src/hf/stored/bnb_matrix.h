#pragma once

#include "hf/stored/stored_matrix.h"

namespace strata::detail {

/// A matrix that bitsandbytes has quantized: NF4 with blocks of 64 and f32 scales, or with scales in 8 bits,
/// or 8 bits with a scale for each row (LLM.int8; Dettmers et al. 2022, arXiv 2208.07339).
class BnbMatrix final : public StoredMatrix {
 public:
  static bool is_one(const std::string& weight, const FindTensor& find);
  static Result<std::unique_ptr<StoredMatrix>> open(const StoredWeight& weight, const FindTensor& find,
                                                    std::vector<std::string>& names);

  Status read(std::int64_t begin, std::span<float> into) const override;
  /// Whether the scales are those of blocks: those of a row are those of its blocks.
  bool has_bytes() const noexcept override;
  Status read_bytes(std::int64_t begin, std::span<std::byte> into) const override;

 private:
  using StoredMatrix::StoredMatrix;
  Status open_nf4(const std::string& weight, const FindTensor& find, std::vector<std::string>& names);
  Status open_int8(const std::string& weight, const FindTensor& find, std::vector<std::string>& names);
  Status read_rows(std::int64_t begin, std::span<float> into) const;
  Status read_scales(std::int64_t first_block, std::span<float> into) const;

  StoredTensor values_, scales_, group_scales_;
  std::vector<float> map_;  // the values of 8-bit scales
  float mean_ = 0;
};

}  // namespace strata::detail
