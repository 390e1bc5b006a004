#pragma once

#include <cstdint>
#include <string_view>

namespace strata::kernels {

/// The implementation of attention: the host's, or one of those on a GPU, whose results differ by rounding.
enum class AttentionBackend : std::uint8_t {
  host,  ///< what programs are recorded for; a GPU runs it as mma
  mma,   ///< mma.sync
  /// wgmma, executed by warpgroups of four warps: for 16-bit heads of 64 or 128 elements without a soft cap,
  /// if cuda_has_wgmma().
  wgmma,
  /// cuDNN's fused attention, if cudnn_version() finds it: for 16-bit heads of 16 to 128 elements (multiples
  /// of 8) without ALiBi, packed documents, window, soft cap or custom scale. Its backward rounds each query
  /// head's contribution to a key's gradient and stores two bytes per score. It runs in groups of sequences
  /// or of key heads, of 256 MiB or one key head; if that one needs more than 512 MiB, backward uses mma.
  cudnn,
};

/// The name in train.attention_backend: mma, wgmma or cudnn; host, which is none of its choices.
std::string_view to_string(AttentionBackend backend) noexcept;

}  // namespace strata::kernels
