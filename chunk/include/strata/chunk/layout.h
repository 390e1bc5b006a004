#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <strata/chunk/types.h>
#include <strata/runtime/dtype.h>
#include <strata/runtime/state_format.h>
#include <strata/runtime/status.h>

namespace strata {

/// Properties shared by all tensors of a chunk.
struct GroupKey {
  /// dtype of the parameters: f32, bf16 or f16; of frozen ones also u8: bytes, which have no masters.
  DType compute = DType::f32;
  DType grad = DType::f32;   ///< dtype of a micro-batch's gradient: that of the parameters, or f32
  DType accum = DType::f32;  ///< dtype of the step's gradient: that of `grad`, or f32
  StateFormat format = StateFormat::fp32;
  bool first_moment = true, second_moment = true;  ///< which moments the optimizer has
  bool ema = false;            ///< whether the moving average of the parameters is stored; not `of_trainer`
  bool trainable = true;       ///< if false, the parameters never change and have no optimizer state
  bool frozen_masters = true;  ///< if not trainable: whether the master weights are stored too
  bool saved = true;           ///< whether checkpoints hold the parameters; those that are trained always
  /// The parameters and their gradients are in memory of a trainer that is linked with strata: of a chunk,
  /// only the optimizer states are stored, including the bits of the master weights that the parameters lack.
  bool of_trainer = false;
  std::int32_t shard_group = 0;
  std::int32_t trainee = 0;  ///< which parameters it is updated with; 0 if it is frozen
  friend bool operator==(const GroupKey&, const GroupKey&) = default;
};
/// Bytes of `payload` for `n` elements, a multiple of kMomentBlock; 0 if the group lacks that payload. The
/// master payload of bf16 parameters is the lower 16 bits of the master weights; that of f16 parameters is
/// all 32. Frozen chunks have no gradients and no moments. `n` is what ChunkLayout::range() says.
constexpr std::size_t bytes_of(const GroupKey& group, Payload payload, std::int64_t n) noexcept {
  const auto elems = static_cast<std::size_t>(n);
  const bool is_param = payload == Payload::param || payload == Payload::gathered;
  if (!group.trainable && !is_param && (payload != Payload::master || !group.frozen_masters)) return 0;
  if (group.of_trainer && payload != Payload::master && payload != Payload::m && payload != Payload::v)
    return 0;
  switch (payload) {
    case Payload::param:
    case Payload::gathered:
      return elems * size_of(group.compute);
    case Payload::master:
      return group.compute == DType::u8 ? 0
                                        : elems * (group.compute == DType::f32    ? 0
                                                   : group.compute == DType::bf16 ? 2
                                                                                  : 4);
    case Payload::m:
      return group.first_moment ? moment_bytes(group.format, n) : 0;
    case Payload::v:
      return group.second_moment ? moment_bytes(group.format, n) : 0;
    case Payload::ema:
      return group.ema ? elems * sizeof(float) : 0;
    case Payload::accum:
      return elems * size_of(group.accum);
    case Payload::grad:
    case Payload::received:
      return elems * size_of(group.grad);
  }
  return 0;
}

/// Elements [begin, end) of a chunk.
struct ElemRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const noexcept { return end - begin; }
  friend bool operator==(const ElemRange&, const ElemRange&) = default;
};

/// How the ranks of a run divide every chunk. The gradient of a chunk is summed in `ranks` equal parts, one
/// by each rank. Its states are held in `shards` equal shards, which divide `ranks`: each rank holds the
/// shard that contains its part, and `ranks` / `shards` ranks hold the same one.
struct Sharding {
  std::int32_t ranks = 1, part = 0;
  std::int32_t shards = 1;
  bool shards_frozen = false;  ///< a rank holds only its shard of chunks that are not trained, too
  /// Every rank sums the gradients of its own micro-batches over the whole chunk before the ranks' sums are
  /// added, so the accumulated gradient spans the chunk.
  bool sums_locally = false;
  bool receives = true;  ///< ranks send each other the gradients of micro-batches (Payload::received)
  std::int32_t shard() const noexcept { return part / (ranks / shards); }
};

struct LayoutTensor {
  std::string name;
  std::int64_t n_elems = 0;
  GroupKey group;
  bool is_elsewhere = false;  ///< another rank has it: it has no elements and is in no chunk
  /// The elements of a block: blocks may be in different chunks, since nothing reads more than one of them at
  /// a time. A multiple of ChunkLayout::kSliceAlign, or 0: the tensor is in one piece. The values of a tensor
  /// come in order where its chunks do, without others between them.
  std::int64_t block_elems = 0;
};

/// The location of a tensor, or of consecutive blocks of one: `n_elems` elements from `offset` in its chunk.
/// Offsets are multiples of kSliceAlign.
struct Slice {
  ChunkId chunk = 0;
  std::int64_t offset = 0;
  std::int64_t n_elems = 0;
  std::int32_t tensor = 0;
  std::int64_t first = 0;  ///< in elements, from the start of the tensor
  std::int64_t end() const noexcept { return first + n_elems; }
};

struct ChunkInfo {
  std::int32_t group = 0;
  std::int64_t n_elems = 0;     ///< equal for all chunks of a group, except those of oversize tensors
  std::int64_t used_elems = 0;  ///< sum over its slices
  std::vector<Slice> slices;    ///< in order of offset
};

struct LayoutOptions {
  std::int64_t chunk_elems = 0;      ///< 0: search for the best size
  std::int64_t max_chunk_elems = 0;  ///< upper bound of the search (larger tensors get a chunk of their own);
                                     ///< 0: none
  /// Copy size at which half the full transfer rate is reached; the search penalizes small chunks
  /// accordingly. Measured by the caller.
  double half_rate_bytes = 128.0 * 1024;
  Sharding sharding = {};
};

/// Maps every tensor, or every block of one, to an element range of a chunk. They are placed in the order
/// given (that of first use) and never straddle chunks; one that is larger than the chunk size gets a chunk
/// of its own. Immutable.
class ChunkLayout {
 public:
  static constexpr std::int64_t kSliceAlign =
      4096;  ///< in elements; a multiple of the block of norm partials and of O_DIRECT's alignment

  /// Errors: `invalid` for an empty tensor, a chunk or block size that is not a multiple of kSliceAlign
  /// (* ranks), or a sharding that contradicts itself.
  static Result<ChunkLayout> create(std::span<const LayoutTensor> tensors, const LayoutOptions& options);

  std::span<const ChunkInfo> chunks() const noexcept { return chunks_; }
  const ChunkInfo& chunk(ChunkId id) const { return chunks_[id]; }
  /// The slices of a tensor in order; one without elements if it is elsewhere.
  std::span<const Slice> slices(std::int32_t tensor) const {
    return slices_[static_cast<std::size_t>(tensor)];
  }
  /// The slice that contains element `at` of a tensor.
  const Slice& slice(std::int32_t tensor, std::int64_t at = 0) const;
  std::size_t n_chunks() const noexcept { return chunks_.size(); }
  std::span<const GroupKey> groups() const noexcept { return groups_; }
  const GroupKey& group_of(ChunkId id) const { return groups_[static_cast<std::size_t>(chunks_[id].group)]; }
  /// Bytes of one payload as far as this rank holds it, rounded up to whole pages as slots and disks need.
  std::size_t payload_bytes(ChunkId id, Payload payload) const {
    return payload_bytes_[id][static_cast<std::size_t>(payload)];
  }
  /// The distinct sizes of payloads, smallest first.
  std::span<const std::size_t> payload_sizes() const noexcept { return payload_sizes_; }
  /// Index into payload_sizes() of a payload that the chunk has.
  std::uint32_t size_class(ChunkId id, Payload payload) const {
    return size_class_[id][static_cast<std::size_t>(payload)];
  }
  /// Whether the chunk has that payload.
  bool has(ChunkId id, Payload payload) const { return payload_bytes(id, payload) > 0; }
  /// The elements of the chunk of which this rank holds `payload`, if the chunk has it.
  ElemRange range(ChunkId id, Payload payload) const noexcept;
  /// The elements whose gradient this rank sums.
  ElemRange summed(ChunkId id) const noexcept;
  /// The payload from which a program reads the chunk's parameters.
  Payload read_payload(ChunkId id) const {
    return has(id, Payload::gathered) ? Payload::gathered : Payload::param;
  }
  const Sharding& sharding() const noexcept { return sharding_; }

  std::int64_t chunk_elems() const noexcept { return chunk_elems_; }
  /// Elements that hold no data: alignment padding and the unfilled ends of chunks.
  std::int64_t wasted_elems() const noexcept;
  /// One sentence: the chunk size, how it was chosen, and the unused fraction.
  const std::string& explanation() const noexcept { return explanation_; }

 private:
  void size_payloads();

  std::vector<GroupKey> groups_;
  std::vector<ChunkInfo> chunks_;
  std::vector<std::array<std::size_t, kPayloads>> payload_bytes_;  // indexed by chunk; precomputed for speed
  std::vector<std::array<std::uint32_t, kPayloads>> size_class_;   // indexed by chunk
  std::vector<std::size_t> payload_sizes_;
  std::vector<std::vector<Slice>> slices_;  // indexed by tensor
  std::int64_t chunk_elems_ = 0;
  Sharding sharding_;
  std::string explanation_;
};

}  // namespace strata
