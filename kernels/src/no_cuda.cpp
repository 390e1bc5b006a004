#include <string_view>

#include <strata/kernels/attention.h>
#include <strata/kernels/cublaslt_algorithms.h>
#include <strata/runtime/str.h>

#include "cuda/attention/launches.h"
#include "cuda/elementwise/launches.h"
#include "cuda/embedding/launches.h"
#include "cuda/gemm/launches.h"
#include "cuda/loss/launches.h"
#include "cuda/norm/launches.h"
#include "cuda/quant/launches.h"

// Replaces src/cuda/ in a build without CUDA.
namespace strata::kernels::cuda {
namespace {

Status absent(std::string_view op) {
  return Status::error(Code::unsupported, str(op, ": this build has no CUDA support"));
}

}  // namespace

Status embedding_forward(Backend&, Stream&, const EmbeddingForwardArgs&) {
  return absent("embedding_forward");
}
Status embedding_backward(Backend&, Stream&, const EmbeddingBackwardArgs&) {
  return absent("embedding_backward");
}
Status layernorm_forward(Backend&, Stream&, const LayernormForwardArgs&) {
  return absent("layernorm_forward");
}
Status layernorm_backward(Backend&, Stream&, const LayernormBackwardArgs&) {
  return absent("layernorm_backward");
}
Status linear_backward_bias(Backend&, Stream&, const LinearBackwardBiasArgs&) {
  return absent("linear_backward_bias");
}
Status gelu_forward(Backend&, Stream&, const GeluForwardArgs&) { return absent("gelu_forward"); }
Status gelu_backward(Backend&, Stream&, const GeluBackwardArgs&) { return absent("gelu_backward"); }
Status add(Backend&, Stream&, const AddArgs&) { return absent("add"); }
Status scale(Backend&, Stream&, const ScaleArgs&) { return absent("scale"); }
Status softcap(Backend&, Stream&, const SoftcapArgs&) { return absent("softcap"); }
Status fill(Backend&, Stream&, const FillArgs&) { return absent("fill"); }
Status cross_entropy_forward(Backend&, Stream&, const CrossEntropyForwardArgs&) {
  return absent("cross_entropy_forward");
}
Status cross_entropy_backward(Backend&, Stream&, const CrossEntropyBackwardArgs&) {
  return absent("cross_entropy_backward");
}
Status cached_attention(Backend&, Stream&, const CachedAttentionArgs&) { return absent("cached_attention"); }
Status rmsnorm_forward(Backend&, Stream&, const RmsnormForwardArgs&) { return absent("rmsnorm_forward"); }
Status rmsnorm_backward(Backend&, Stream&, const RmsnormBackwardArgs&) { return absent("rmsnorm_backward"); }
Status qk_norm_forward(Backend&, Stream&, const QkNormForwardArgs&) { return absent("qk_norm_forward"); }
Status qk_norm_backward(Backend&, Stream&, const QkNormBackwardArgs&) { return absent("qk_norm_backward"); }
Status positions(Backend&, Stream&, const PositionsArgs&) { return absent("positions"); }
Status rope_table(Backend&, Stream&, const RopeTableArgs&) { return absent("rope_table"); }
Status rope(Backend&, Stream&, const RopeArgs&) { return absent("rope"); }
Status relu_forward(Backend&, Stream&, const ReluForwardArgs&) { return absent("relu_forward"); }
Status relu_backward(Backend&, Stream&, const ReluBackwardArgs&) { return absent("relu_backward"); }
Status swiglu_forward(Backend&, Stream&, const SwigluForwardArgs&) { return absent("swiglu_forward"); }
Status swiglu_backward(Backend&, Stream&, const SwigluBackwardArgs&) { return absent("swiglu_backward"); }
Status fp8_cast(Backend&, Stream&, const Fp8CastArgs&) { return absent("fp8_cast"); }
Status fp8_gemm(Backend&, Stream&, const Fp8GemmArgs&) { return absent("fp8_gemm"); }
Status cast_rows(Backend&, Stream&, const CastRowsArgs&) { return absent("cast_rows"); }
Status quantize_blocks(Backend&, Stream&, const BlockQuantArgs&) { return absent("quantize_blocks"); }
Status dequantize_blocks(Backend&, Stream&, const BlockQuantArgs&) { return absent("dequantize_blocks"); }
Status linear_forward(Backend&, Stream&, const LinearForwardArgs&) { return absent("linear_forward"); }
Status linear_backward_input(Backend&, Stream&, const LinearBackwardInputArgs&) {
  return absent("linear_backward_input");
}
Status linear_backward_weight(Backend&, Stream&, const LinearBackwardWeightArgs&) {
  return absent("linear_backward_weight");
}
Status linear_cross_entropy(Backend&, Stream&, const LinearCrossEntropyArgs&) {
  return absent("linear_cross_entropy");
}
Status linear_cross_entropy_backward(Backend&, Stream&, const LinearCrossEntropyBackwardArgs&) {
  return absent("linear_cross_entropy_backward");
}
Status attention_forward(Backend&, Stream&, const AttentionForwardArgs&) {
  return absent("attention_forward");
}
Status attention_backward(Backend&, Stream&, const AttentionBackwardArgs&) {
  return absent("attention_backward");
}

}  // namespace strata::kernels::cuda

namespace strata::kernels {

bool cuda_has_wgmma() { return false; }
std::string cublaslt_version() { return "no cuBLASLt"; }
std::string cuda_gemm_algorithms() { return ""; }
Status use_cuda_gemm_algorithms(std::string_view) { return cuda::absent("use_cuda_gemm_algorithms"); }
Result<std::string> cudnn_version() { return cuda::absent("cudnn_version"); }
std::string cuda_attention_plans() { return ""; }
Status use_cuda_attention_plans(std::string_view) { return cuda::absent("use_cuda_attention_plans"); }

}  // namespace strata::kernels
