#pragma once

#include <strata/kernels/attention.h>
#include <strata/kernels/block_quant.h>
#include <strata/kernels/cached_attention.h>
#include <strata/kernels/cast_rows.h>
#include <strata/kernels/cross_entropy.h>
#include <strata/kernels/elementwise.h>
#include <strata/kernels/embedding.h>
#include <strata/kernels/fp8.h>
#include <strata/kernels/layernorm.h>
#include <strata/kernels/linear.h>
#include <strata/kernels/linear_cross_entropy.h>
#include <strata/kernels/optimizer.h>
#include <strata/kernels/rmsnorm.h>
#include <strata/kernels/rope.h>

/// Launches on CUDA, with arguments that were checked. no_cuda.cpp defines the same symbols for builds
/// without CUDA.
namespace strata::kernels::cuda {

Status embedding_forward(Backend& backend, Stream& stream, const EmbeddingForwardArgs& args);
Status embedding_backward(Backend& backend, Stream& stream, const EmbeddingBackwardArgs& args);
Status layernorm_forward(Backend& backend, Stream& stream, const LayernormForwardArgs& args);
Status layernorm_backward(Backend& backend, Stream& stream, const LayernormBackwardArgs& args);
Status linear_forward(Backend& backend, Stream& stream, const LinearForwardArgs& args);
Status linear_backward_input(Backend& backend, Stream& stream, const LinearBackwardInputArgs& args);
Status linear_backward_weight(Backend& backend, Stream& stream, const LinearBackwardWeightArgs& args);
Status linear_backward_bias(Backend& backend, Stream& stream, const LinearBackwardBiasArgs& args);
Status gelu_forward(Backend& backend, Stream& stream, const GeluForwardArgs& args);
Status gelu_backward(Backend& backend, Stream& stream, const GeluBackwardArgs& args);
Status add(Backend& backend, Stream& stream, const AddArgs& args);
Status scale(Backend& backend, Stream& stream, const ScaleArgs& args);
Status softcap(Backend& backend, Stream& stream, const SoftcapArgs& args);
Status fill(Backend& backend, Stream& stream, const FillArgs& args);
Status cross_entropy_forward(Backend& backend, Stream& stream, const CrossEntropyForwardArgs& args);
Status cross_entropy_backward(Backend& backend, Stream& stream, const CrossEntropyBackwardArgs& args);
Status linear_cross_entropy(Backend& backend, Stream& stream, const LinearCrossEntropyArgs& args);
Status linear_cross_entropy_backward(Backend& backend, Stream& stream,
                                     const LinearCrossEntropyBackwardArgs& args);
Status attention_forward(Backend& backend, Stream& stream, const AttentionForwardArgs& args);
Status attention_backward(Backend& backend, Stream& stream, const AttentionBackwardArgs& args);
Status cached_attention(Backend& backend, Stream& stream, const CachedAttentionArgs& args);
Status rmsnorm_forward(Backend& backend, Stream& stream, const RmsnormForwardArgs& args);
Status rmsnorm_backward(Backend& backend, Stream& stream, const RmsnormBackwardArgs& args);
Status qk_norm_forward(Backend& backend, Stream& stream, const QkNormForwardArgs& args);
Status qk_norm_backward(Backend& backend, Stream& stream, const QkNormBackwardArgs& args);
Status positions(Backend& backend, Stream& stream, const PositionsArgs& args);
Status rope_table(Backend& backend, Stream& stream, const RopeTableArgs& args);
Status rope(Backend& backend, Stream& stream, const RopeArgs& args);
Status relu_forward(Backend& backend, Stream& stream, const ReluForwardArgs& args);
Status relu_backward(Backend& backend, Stream& stream, const ReluBackwardArgs& args);
Status swiglu_forward(Backend& backend, Stream& stream, const SwigluForwardArgs& args);
Status swiglu_backward(Backend& backend, Stream& stream, const SwigluBackwardArgs& args);
Status fp8_cast(Backend& backend, Stream& stream, const Fp8CastArgs& args);
Status fp8_gemm(Backend& backend, Stream& stream, const Fp8GemmArgs& args);
Status cast_rows(Backend& backend, Stream& stream, const CastRowsArgs& args);
Status quantize_blocks(Backend& backend, Stream& stream, const BlockQuantArgs& args);
Status dequantize_blocks(Backend& backend, Stream& stream, const BlockQuantArgs& args);
Status update(Backend& backend, Stream& stream, const UpdateArgs& args);
Status lamb_partials(Backend& backend, Stream& stream, const LambPartialsArgs& args);
Status lamb_apply(Backend& backend, Stream& stream, const LambApplyArgs& args);
Status accumulate(Backend& backend, Stream& stream, const AccumulateArgs& args);
Status square_sum_partials(Backend& backend, Stream& stream, const SquareSumPartialsArgs& args);

}  // namespace strata::kernels::cuda
