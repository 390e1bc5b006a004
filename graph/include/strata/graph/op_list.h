#pragma once

#include <cstddef>
#include <cstdint>

#include <strata/graph/attrs.h>

// The list of ops and the type of the attributes (op_attrs.h) that each of them has. What an op does is
// defined in src/ops. Headers that only pass programs around do not include this one, so that a new op
// rebuilds no more than those who tell ops apart.

namespace strata {

/// Every op, with the type of its attributes. The moves come last, in the order in which a value makes them.
// clang-format off
#define STRATA_GRAPH_OPS(X)                                    \
  X(embedding, EmbeddingAttrs)                                 \
  X(embedding_backward, EmbeddingAttrs)                        \
  X(layernorm, LayernormAttrs)                                 \
  X(layernorm_backward, LayernormAttrs)                        \
  X(add_layernorm, LayernormAttrs)                             \
  X(linear, LinearAttrs)                                       \
  X(linear_backward_input, LinearAttrs)                        \
  X(linear_backward_weight, LinearAttrs)                       \
  X(linear_backward_bias, NoAttrs)                             \
  X(linear_quantized, LinearQuantizedAttrs)                    \
  X(linear_quantized_backward_input, LinearQuantizedAttrs)     \
  X(lora_up, LoraAttrs)                                        \
  X(lora_up_backward_input, LoraAttrs)                         \
  X(lora_up_backward_weight, LoraAttrs)                        \
  X(dora_norm, DoraNormAttrs)                                  \
  X(scale_columns, LoraAttrs)                                  \
  X(scale_columns_backward_weight, LoraAttrs)                  \
  X(find_basis, BasisAttrs)                                    \
  X(gradient_outside, BasisAttrs)                              \
  X(splice_rows, VirtualRowsAttrs)                             \
  X(splice_rows_backward, VirtualRowsAttrs)                    \
  X(drop_rows, VirtualRowsAttrs)                               \
  X(replace_rows, NoAttrs)                                     \
  X(lora_rows, LoraRowsAttrs)                                  \
  X(gelu, NoAttrs)                                             \
  X(gelu_backward, NoAttrs)                                    \
  X(relu, NoAttrs)                                             \
  X(relu_backward, NoAttrs)                                    \
  X(relu2, NoAttrs)                                            \
  X(relu2_backward, NoAttrs)                                   \
  X(scale, ScaleAttrs)                                         \
  X(scale_by, NoAttrs)                                         \
  X(scale_parts, ScalePartsAttrs)                              \
  X(dropout, DropoutAttrs)                                     \
  X(softcap, SoftcapAttrs)                                     \
  X(swiglu, SwigluAttrs)                                       \
  X(swiglu_backward, SwigluAttrs)                              \
  X(latent_qkv, LatentHeadsAttrs)                              \
  X(latent_qkv_backward, LatentHeadsAttrs)                     \
  X(trim_heads, LatentHeadsAttrs)                              \
  X(untrim_heads, LatentHeadsAttrs)                            \
  X(multiply, NoAttrs)                                         \
  X(sigmoid_gate, NoAttrs)                                     \
  X(sigmoid_gate_backward, NoAttrs)                            \
  X(silu_gate, NoAttrs)                                        \
  X(silu_gate_backward, NoAttrs)                               \
  X(divide_columns, DividedColumnsAttrs)                       \
  X(unite_columns, DividedColumnsAttrs)                        \
  X(rmsnorm, RmsnormAttrs)                                     \
  X(rmsnorm_backward, RmsnormAttrs)                            \
  X(add_rmsnorm, RmsnormAttrs)                                 \
  X(qk_norm, QkNormAttrs)                                      \
  X(qk_norm_backward, QkNormAttrs)                             \
  X(positions, PositionsAttrs)                                 \
  X(rope_table, RopeTableAttrs)                                \
  X(rope, RopeAttrs)                                           \
  X(attention, AttentionAttrs)                                 \
  X(attention_backward, AttentionAttrs)                        \
  X(attention_backward_sinks, AttentionAttrs)                  \
  X(unpack_qkv, AttentionAttrs)                                \
  X(pack_qkv, AttentionAttrs)                                  \
  X(part_attention, AttentionAttrs)                            \
  X(part_attention_backward, AttentionAttrs)                   \
  X(ring_attention_begin, AttentionAttrs)                      \
  X(ring_attention_step, AttentionAttrs)                       \
  X(ring_attention_end, AttentionAttrs)                        \
  X(attention_delta, AttentionAttrs)                           \
  X(ring_attention_backward, AttentionAttrs)                   \
  X(add, NoAttrs)                                              \
  X(cross_entropy, NoAttrs)                                    \
  X(cross_entropy_backward, NoAttrs)                           \
  X(linear_cross_entropy, LinearCrossEntropyAttrs)             \
  X(linear_cross_entropy_backward, LinearCrossEntropyAttrs)    \
  X(linear_log_sum_exp, LinearCrossEntropyAttrs)               \
  X(merge_losses, MergeLossesAttrs)                            \
  X(linear_cross_entropy_part_backward, LinearCrossEntropyAttrs)\
  X(linear_log_probs, LinearLogProbsAttrs)                     \
  X(linear_log_probs_backward, LinearLogProbsAttrs)            \
  X(row_scores, NoAttrs)                                       \
  X(row_scores_backward, NoAttrs)                              \
  X(segment_sum, SegmentSumAttrs)                              \
  X(segment_sum_backward, SegmentSumAttrs)                     \
  X(policy_loss, PolicyLossAttrs)                              \
  X(policy_loss_backward, PolicyLossAttrs)                     \
  X(value_loss, ValueLossAttrs)                                \
  X(value_loss_backward, ValueLossAttrs)                       \
  X(pair_loss, PairLossAttrs)                                  \
  X(pair_loss_backward, PairLossAttrs)                         \
  X(router_top_k, RouterAttrs)                                 \
  X(router_top_k_backward, RouterAttrs)                        \
  X(router_sums, RouterSumsAttrs)                              \
  X(router_sums_backward, RouterSumsAttrs)                     \
  X(router_losses, RouterLossAttrs)                            \
  X(router_losses_backward, RouterLossAttrs)                   \
  X(route_rows, RouteRowsAttrs)                                \
  X(gather_rows, ChoiceAttrs)                                  \
  X(sum_rows, ChoiceAttrs)                                     \
  X(expert_linear, ExpertBlockAttrs)                           \
  X(expert_linear_backward_input, ExpertBlockAttrs)            \
  X(expert_linear_backward_weight, ExpertBlockAttrs)           \
  X(expert_linear_backward_bias, ExpertBlockAttrs)             \
  X(expert_linear_quantized, ExpertLinearQuantizedAttrs)       \
  X(expert_linear_quantized_backward_input, ExpertLinearQuantizedAttrs)\
  X(expert_gate, ExpertGateAttrs)                              \
  X(expert_gate_backward, ExpertGateAttrs)                     \
  X(router_bias, NoAttrs)                                      \
  X(expert_bias, NoAttrs)                                      \
  X(expert_bias_backward, NoAttrs)                             \
  X(expert_bias_backward_weights, NoAttrs)                     \
  X(expert_scale, NoAttrs)                                     \
  X(expert_scale_backward, NoAttrs)                            \
  X(causal_conv, CausalConvAttrs)                              \
  X(causal_conv_backward, CausalConvAttrs)                     \
  X(cached_causal_conv, CausalConvAttrs)                       \
  X(delta_gates, NoAttrs)                                      \
  X(delta_gates_backward, NoAttrs)                             \
  X(delta_rule, DeltaRuleAttrs)                                \
  X(delta_rule_backward, DeltaRuleAttrs)                       \
  X(cached_delta_rule, DeltaRuleAttrs)                         \
  X(scan_gates, ScanGatesAttrs)                                \
  X(scan_gates_backward, ScanGatesAttrs)                       \
  X(state_scan, StateScanAttrs)                                \
  X(state_scan_backward, StateScanAttrs)                       \
  X(cached_state_scan, StateScanAttrs)                         \
  X(gated_rmsnorm, GatedRmsnormAttrs)                          \
  X(gated_rmsnorm_backward, GatedRmsnormAttrs)                 \
  X(fp8_cast, Fp8CastAttrs)                                    \
  X(fp8_gemm, Fp8GemmAttrs)                                    \
  X(accumulate, NoAttrs)                                       \
  X(accumulate_over_ranks, CollectiveAttrs)                    \
  X(cached_attention, AttentionAttrs)                          \
  X(cached_latents, LatentHeadsAttrs)                          \
  X(latent_keys_values, LatentHeadsAttrs)                      \
  X(copy_to_ranks, CollectiveAttrs)                            \
  X(keep_on_first_rank, CollectiveAttrs)                       \
  X(take_rows, CollectiveAttrs)                                \
  X(share_rows, CollectiveAttrs)                               \
  X(all_reduce, CollectiveAttrs)                               \
  X(all_reduce_rows, CollectiveAttrs)                          \
  X(all_gather, CollectiveAttrs)                               \
  X(reduce_scatter, CollectiveAttrs)                           \
  X(all_to_all, CollectiveAttrs)                               \
  X(shift_begin, CollectiveAttrs)                              \
  X(shift_end, CollectiveAttrs)                                \
  X(send_begin, MessageAttrs)                                  \
  X(send_end, MessageAttrs)                                    \
  X(receive_begin, MessageAttrs)                               \
  X(receive_end, MessageAttrs)                                 \
  X(put_rows, BlockAttrs)                                      \
  X(get_rows, BlockAttrs)                                      \
  X(join_rows, CutAttrs)                                       \
  X(split_rows, CutAttrs)                                      \
  X(join_columns, CutAttrs)                                    \
  X(split_columns, CutAttrs)                                   \
  X(put_columns, CutAttrs)                                     \
  X(get_columns, CutAttrs)                                     \
  X(offload_begin, MoveAttrs)                                  \
  X(offload_end, MoveAttrs)                                    \
  X(store_begin, MoveAttrs)                                    \
  X(store_end, MoveAttrs)                                      \
  X(load_begin, MoveAttrs)                                     \
  X(load_end, MoveAttrs)                                       \
  X(fetch_begin, MoveAttrs)                                    \
  X(fetch_end, MoveAttrs)
// clang-format on

#define STRATA_ENUMERATOR(op, attrs) op,
enum class Op : std::uint8_t { STRATA_GRAPH_OPS(STRATA_ENUMERATOR) };
#undef STRATA_ENUMERATOR

#define STRATA_COUNT(op, attrs) +1
inline constexpr std::size_t kOps = 0 STRATA_GRAPH_OPS(STRATA_COUNT);
#undef STRATA_COUNT

/// The op's name in the list, a literal.
const char* op_name(Op op) noexcept;

}  // namespace strata
