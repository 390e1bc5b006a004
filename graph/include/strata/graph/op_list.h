#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <variant>

#include <strata/graph/loss_attrs.h>
#include <strata/runtime/cut.h>
#include <strata/kernels/attention_heads.h>
#include <strata/kernels/quantized_matrix.h>
#include <strata/kernels/subspace_method.h>
#include <strata/runtime/dtype.h>
#include <strata/runtime/tensor_view.h>

// The list of ops and the attributes that each of them has. What an op does is defined in src/ops.

namespace strata {

/// The GPU implementation of attention that an instruction uses; kernels/attention_heads.h describes them.
enum class AttentionBackend : std::uint8_t { mma, wgmma, cudnn };
/// The name in train.attention_backend: mma, wgmma or cudnn.
std::string_view to_string(AttentionBackend backend) noexcept;

/// The frequencies of rotary angles and how they are scaled; kernels/rope.h gives the formulas.
struct RopeFrequencies {
  enum class Scaling : std::uint8_t { none, linear, llama3, yarn } scaling = Scaling::none;
  float theta = 10000.0f;
  float factor = 1.0f;
  float low_freq_factor = 1.0f;
  float high_freq_factor = 4.0f;
  float original_positions = 8192.0f;
  float beta_fast = 32.0f;
  float beta_slow = 1.0f;
  float attention_factor = 1.0f;
  bool truncate = true;  ///< yarn: round the indices between which it blends to integers
  friend bool operator==(const RopeFrequencies&, const RopeFrequencies&) = default;
};

struct NoAttrs {
  friend bool operator==(const NoAttrs&, const NoAttrs&) = default;
};
struct EmbeddingAttrs {
  std::int32_t offset = 0;  ///< added to every id
  bool is_part = false;     ///< the table has some of the rows; those of others are 0
  friend bool operator==(const EmbeddingAttrs&, const EmbeddingAttrs&) = default;
};
struct LayernormAttrs {
  float eps = 0;
  friend bool operator==(const LayernormAttrs&, const LayernormAttrs&) = default;
};
struct RmsnormAttrs {
  float eps = 0;
  float weight_offset = 0;  ///< added to the weight
  friend bool operator==(const RmsnormAttrs&, const RmsnormAttrs&) = default;
};
struct QkNormAttrs {
  std::int32_t heads = 0;
  std::int32_t kv_heads = 0;
  float eps = 0;
  float weight_offset = 0;  ///< added to both weights
  friend bool operator==(const QkNormAttrs&, const QkNormAttrs&) = default;
};
struct PositionsAttrs {
  std::int32_t rows = 0;  ///< number of tokens, which no operand determines
  std::int32_t seq = 0;
  std::int32_t first = 0;  ///< position of the first token of a sequence
  friend bool operator==(const PositionsAttrs&, const PositionsAttrs&) = default;
};
struct RopeTableAttrs {
  std::int32_t positions = 0;
  std::int32_t rotary_dim = 0;
  RopeFrequencies frequencies = {};
  friend bool operator==(const RopeTableAttrs&, const RopeTableAttrs&) = default;
};
struct RopeAttrs {
  std::int32_t heads = 0;
  std::int32_t kv_heads = 0;
  bool interleaved = false;
  bool inverse = false;
  friend bool operator==(const RopeAttrs&, const RopeAttrs&) = default;
};
struct AttentionAttrs {
  std::int32_t heads = 0;
  std::int32_t kv_heads = 0;
  std::int32_t seq = 0;  ///< 0 for cached attention
  bool alibi = false;
  std::int32_t window = 0;  ///< number of keys that a query sees; 0: all
  float softcap = 0;
  float scale = 0;  ///< factor of q k^T; 0: 1 / sqrt(d)
  AttentionBackend backend = AttentionBackend::mma;
  /// ALiBi on a rank's heads needs these: the number of the layer's heads, and which of them is the rank's
  /// first one; 0: all are here.
  std::int32_t alibi_heads = 0, alibi_first = 0;
  /// The tokens of a sequence that have queries, and keys, here (part_attention).
  kernels::TokenRuns queries = {}, keys = {};
  DType out = DType::f32;  ///< the result's dtype of ring_attention_end
  friend bool operator==(const AttentionAttrs&, const AttentionAttrs&) = default;
};
struct SwigluAttrs {
  bool gelu = false;  ///< the gate is GELU instead of SiLU
  friend bool operator==(const SwigluAttrs&, const SwigluAttrs&) = default;
};
struct ScaleAttrs {
  float factor = 0;
  friend bool operator==(const ScaleAttrs&, const ScaleAttrs&) = default;
};
struct DropoutAttrs {
  float p = 0;               ///< share of the elements that become 0
  std::uint32_t stream = 0;  ///< tells apart the dropouts of a program
  friend bool operator==(const DropoutAttrs&, const DropoutAttrs&) = default;
};
struct SoftcapAttrs {
  float cap = 0;
  friend bool operator==(const SoftcapAttrs&, const SoftcapAttrs&) = default;
};
struct LinearAttrs {
  bool f32_out = false;  ///< the result is not rounded to the dtype of x
  GemmAttrs gemm = {};
  friend bool operator==(const LinearAttrs&, const LinearAttrs&) = default;
};
struct LinearQuantizedAttrs {
  kernels::QuantizedMatrix matrix = {};
  GemmAttrs gemm = {};
  friend bool operator==(const LinearQuantizedAttrs&, const LinearQuantizedAttrs&) = default;
};
/// Rows [first_row, first_row + rows) of a matrix, which a low-rank adapter changes.
struct LoraPart {
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::int64_t rank = 0;
  friend bool operator==(const LoraPart&, const LoraPart&) = default;
};
/// Parts in the order of their rows, which do not overlap.
struct LoraAttrs {
  std::array<LoraPart, 3> part = {};
  std::int64_t n = 0;
  std::span<const LoraPart> all() const noexcept { return {part.data(), static_cast<std::size_t>(n)}; }
  friend bool operator==(const LoraAttrs&, const LoraAttrs&) = default;
};
/// Attributes of dora_norm: the adapters s B A of a matrix. If its format is not `full`, the matrix is
/// quantized.
struct DoraNormAttrs {
  LoraAttrs parts = {};
  float scale = 1;
  kernels::QuantizedMatrix matrix = {};
  friend bool operator==(const DoraNormAttrs&, const DoraNormAttrs&) = default;
};
/// Attributes of find_basis and gradient_outside: the parts of a gradient, and the side of their bases. All
/// parts have the same side.
struct BasisAttrs {
  LoraAttrs parts = {};
  kernels::SubspaceSide side = kernels::SubspaceSide::right;
  kernels::SvdMethod method = kernels::SvdMethod::subspace;  ///< find_basis only
  friend bool operator==(const BasisAttrs&, const BasisAttrs&) = default;
};
/// Rows before each sequence that belong to no token of it.
struct VirtualRowsAttrs {
  std::int32_t n = 0;    ///< virtual rows of each sequence
  std::int32_t seq = 0;  ///< rows of a sequence without them
  friend bool operator==(const VirtualRowsAttrs&, const VirtualRowsAttrs&) = default;
};
/// Attributes of an adapter that rows of a batch choose: the number by which they name it, and the scale of
/// its B A.
struct LoraRowsAttrs {
  LoraAttrs parts = {};
  float scale = 1;
  std::int32_t adapter = 0;
  friend bool operator==(const LoraRowsAttrs&, const LoraRowsAttrs&) = default;
};
struct Fp8CastAttrs {
  bool e5m2 = false;  ///< quantize to e5m2, for gradients, which need more exponent bits
  bool rowwise = false, columnwise = false;  ///< which layouts to write
  friend bool operator==(const Fp8CastAttrs&, const Fp8CastAttrs&) = default;
};
struct Fp8GemmAttrs {
  DType out_dtype = DType::f32;
  GemmAttrs gemm = {};
  friend bool operator==(const Fp8GemmAttrs&, const Fp8GemmAttrs&) = default;
};
/// Attributes of a collective among the ranks along an axis of the mesh.
struct CollectiveAttrs {
  std::int32_t axis = 0;
  std::int32_t ranks = 1;
  std::int32_t rank = 0;
  /// all_gather only: every rank computes a part of the result's gradient, not the whole.
  bool copied = false;
  /// share_rows and all_reduce_rows only: so many neighbours among the ranks share these rows.
  std::int32_t group = 0;
  std::int64_t first_row = 0, rows = 0;
  /// Shifts only: the number of places along the axis, and the number of the shift in the program, since an
  /// end follows its begin.
  std::int32_t step = 0, number = 0;
  friend bool operator==(const CollectiveAttrs&, const CollectiveAttrs&) = default;
};
/// Attributes of ops that join or split rows or columns: how those of the whole are cut.
struct CutAttrs {
  Cut cut = {};
  std::int32_t ranks = 1;
  std::int32_t rank = 0;  ///< put_columns and get_columns only
  friend bool operator==(const CutAttrs&, const CutAttrs&) = default;
};
/// Attributes of messages between two ranks along an axis: the other rank, the number of the message in the
/// program, and the shape and dtype of what is sent.
struct MessageAttrs {
  std::int32_t axis = 0;
  std::int32_t peer = 0;
  std::int32_t number = 0;
  Shape shape = {};
  DType dtype = DType::f32;
  friend bool operator==(const MessageAttrs&, const MessageAttrs&) = default;
};
/// Attributes of put_rows and get_rows: rows [block * R, (block + 1) * R) of blocks * R.
struct BlockAttrs {
  std::int32_t block = 0, blocks = 1;
  friend bool operator==(const BlockAttrs&, const BlockAttrs&) = default;
};
struct MoveAttrs {
  /// The number of the offload that a move belongs to; all moves of one value share it.
  std::int32_t number = 0;
  friend bool operator==(const MoveAttrs&, const MoveAttrs&) = default;
};

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
  X(scale, ScaleAttrs)                                         \
  X(dropout, DropoutAttrs)                                     \
  X(softcap, SoftcapAttrs)                                     \
  X(swiglu, SwigluAttrs)                                       \
  X(swiglu_backward, SwigluAttrs)                              \
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
  X(fp8_cast, Fp8CastAttrs)                                    \
  X(fp8_gemm, Fp8GemmAttrs)                                    \
  X(accumulate, NoAttrs)                                       \
  X(accumulate_over_ranks, CollectiveAttrs)                    \
  X(cached_attention, AttentionAttrs)                          \
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

namespace detail {
[[noreturn]] void wrong_attrs(const std::type_info& wanted, const std::type_info& held) noexcept;
}  // namespace detail

/// The constant attributes of one instruction, of the type that the list states for its op. A plain value.
class Attrs {
 public:
  Attrs() = default;  ///< NoAttrs
  template <class T>
  Attrs(const T& of) noexcept : of_(of) {}  // NOLINT(google-explicit-constructor)

  /// The attributes of an op whose attributes have type T. Aborts if these have another type.
  template <class T>
  const T& as() const noexcept {
    const T* const held = get_if<T>();
    if (held == nullptr) detail::wrong_attrs(typeid(T), type());
    return *held;
  }
  template <class T>
  T& as() noexcept {
    return const_cast<T&>(std::as_const(*this).as<T>());
  }
  /// The same, or null if these have another type.
  template <class T>
  const T* get_if() const noexcept {
    return std::get_if<T>(&of_);
  }
  /// The attributes that all GEMMs have; null if these are not the attributes of a GEMM.
  const GemmAttrs* gemm() const noexcept;
  GemmAttrs* gemm() noexcept { return const_cast<GemmAttrs*>(std::as_const(*this).gemm()); }
  bool has_gemm_workspace() const noexcept { return gemm() != nullptr && gemm()->workspace; }
  /// Whether the type is the one that the list states for `op`.
  bool belong_to(Op op) const noexcept;
  friend bool operator==(const Attrs&, const Attrs&) = default;

 private:
  const std::type_info& type() const noexcept;
  std::variant<NoAttrs, EmbeddingAttrs, LayernormAttrs, RmsnormAttrs, QkNormAttrs, PositionsAttrs,
               RopeTableAttrs, RopeAttrs, AttentionAttrs, SwigluAttrs, ScaleAttrs, DropoutAttrs, SoftcapAttrs,
               LinearAttrs, LinearQuantizedAttrs, LoraAttrs, LoraRowsAttrs, DoraNormAttrs, BasisAttrs,
               VirtualRowsAttrs, LinearCrossEntropyAttrs, MergeLossesAttrs, Fp8CastAttrs, Fp8GemmAttrs,
               CollectiveAttrs, CutAttrs, MessageAttrs, BlockAttrs, MoveAttrs, LinearLogProbsAttrs,
               SegmentSumAttrs, PolicyLossAttrs, ValueLossAttrs, PairLossAttrs>
      of_;
};

}  // namespace strata
