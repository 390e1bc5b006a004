#pragma once

#include <cstdint>

#include <strata/graph/expert_attrs.h>
#include <strata/graph/gemm_attrs.h>
#include <strata/graph/lora_attrs.h>
#include <strata/graph/loss_attrs.h>
#include <strata/graph/recurrent_attrs.h>
#include <strata/kernels/attention_heads.h>
#include <strata/kernels/mixers/divided_columns.h>
#include <strata/kernels/mixers/latent_heads.h>
#include <strata/kernels/quantized_matrix.h>
#include <strata/kernels/values/column_scales.h>
#include <strata/kernels/values/rope_frequencies.h>
#include <strata/kernels/subspace_method.h>
#include <strata/runtime/cut.h>
#include <strata/runtime/dtype.h>
#include <strata/runtime/tensor_view.h>

// The attributes that ops have; op_list.h states which op has which. They are constants of an instruction, so
// each is a plain value that Attrs (attrs.h) can hold.

namespace strata {

using AttentionBackend = kernels::AttentionBackend;
using RopeFrequencies = kernels::RopeFrequencies;

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
  bool values = false;      ///< value heads are normalized, too, without a weight
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
  AttentionBackend backend = AttentionBackend::host;
  /// ALiBi on a rank's heads needs these: the number of the layer's heads, and which of them is the rank's
  /// first one; 0: all are here.
  std::int32_t alibi_heads = 0, alibi_first = 0;
  /// The tokens of a sequence that have queries, and keys, here (part_attention).
  kernels::TokenRuns queries = {}, keys = {};
  bool is_stored = false;  ///< cached attention whose keys and values are no states: it stores none
  DType out = DType::f32;  ///< the result's dtype of ring_attention_end
  friend bool operator==(const AttentionAttrs&, const AttentionAttrs&) = default;
};
struct SwigluAttrs {
  bool gelu = false;  ///< the gate is GELU instead of SiLU
  friend bool operator==(const SwigluAttrs&, const SwigluAttrs&) = default;
};
struct DividedColumnsAttrs {
  kernels::DividedColumns columns = {};
  friend bool operator==(const DividedColumnsAttrs&, const DividedColumnsAttrs&) = default;
};
struct LatentHeadsAttrs {
  kernels::LatentHeads heads = {};
  friend bool operator==(const LatentHeadsAttrs&, const LatentHeadsAttrs&) = default;
};
struct ScaleAttrs {
  float factor = 0;
  friend bool operator==(const ScaleAttrs&, const ScaleAttrs&) = default;
};
struct ScalePartsAttrs {
  kernels::ColumnScales scales = {};
  friend bool operator==(const ScalePartsAttrs&, const ScalePartsAttrs&) = default;
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

}  // namespace strata
