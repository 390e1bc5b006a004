#pragma once

#include <algorithm>
#include <memory>
#include <string>

#include <strata/model/adapter/weight_parts.h>
#include <strata/model/hf/folder.h>
#include <strata/runtime/str.h>

#include "model/hf/quantized_folder.h"
#include "support/experts/tiny_experts.h"
#include "support/temp_dir.h"

namespace strata::test {

inline DecoderConfig small_config_of(std::string_view family) {
  DecoderConfig c = decoder_for_family(family).value();
  c.layers = 2;
  c.hidden = 64;
  c.heads = 4;
  c.kv_heads = family == "gpt2" ? 4 : 2;
  c.ffn = 128;
  c.vocab = 31;
  c.positions = 64;
  set_tiny_experts(c);
  return c;
}

/// Extents that end within a tile of FP8.
inline DecoderConfig quantized_config_of(std::string_view family, kernels::WeightFormat format) {
  using enum kernels::WeightFormat;
  DecoderConfig c = small_config_of(family);
  if (format == mxfp4) c.ffn = 96;
  if (format == int4 && c.experts.n > 0) c.experts.ffn = 32;
  if (format != fp8_block) return c;
  c.hidden = 192;
  c.head_dim = 48;
  c.ffn = 160;
  if (c.experts.n > 0) c.experts.ffn = 136;
  return c;
}

/// Opens what it writes.
class OpenedFolder : public QuantizedFolder {
 public:
  using QuantizedFolder::QuantizedFolder;
  std::unique_ptr<HfFolder> open() { return must(written()); }
  Status error() { return written().status(); }
  std::string error_text() { return std::string(error().message()); }

 private:
  Result<std::unique_ptr<HfFolder>> written() {
    const std::string path = dir_.file(str("model", n_++));
    write(path);
    return HfFolder::open(posix_io(), path);
  }

  const TempDir dir_;
  int n_ = 0;
};

}  // namespace strata::test
