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

/// What makes chunks alike: all tensors of a chunk share it.
struct GroupKey {
  DType compute = DType::f32;  ///< of the parameter: f32, bf16 or f16
  DType grad = DType::f32;     ///< of a micro-batch's gradient: as compute, or f32
  DType accum = DType::f32;    ///< of the step's gradient: as grad, or f32
  StateFormat format = StateFormat::fp32;
  bool first_moment = true, second_moment = true;  ///< which of them the optimizer keeps
  bool trainable = true;       ///< else: its parameter never changes, and there is nothing to update it
  bool frozen_masters = true;  ///< of one that is not: whether the rest of its master is held
  std::int32_t shard_group = 0;
  friend bool operator==(const GroupKey&, const GroupKey&) = default;
};
/// Bytes that `n` elements of `payload`, a multiple of kMomentBlock, take; 0 where the group lacks it. Of the
/// master, bf16 lacks the lower 16 bits, f16 all. What is frozen has no gradient and no moments.
constexpr std::size_t bytes_of(const GroupKey& group, Payload payload, std::int64_t n) noexcept {
  const auto elems = static_cast<std::size_t>(n);
  if (!group.trainable && payload != Payload::param && (payload != Payload::master || !group.frozen_masters))
    return 0;
  switch (payload) {
    case Payload::param:
      return elems * size_of(group.compute);
    case Payload::master:
      return elems * (group.compute == DType::f32 ? 0 : group.compute == DType::bf16 ? 2 : 4);
    case Payload::m:
      return group.first_moment ? moment_bytes(group.format, n) : 0;
    case Payload::v:
      return group.second_moment ? moment_bytes(group.format, n) : 0;
    case Payload::accum:
      return elems * size_of(group.accum);
    case Payload::grad:
      return elems * size_of(group.grad);
  }
  return 0;
}

struct LayoutTensor {
  std::string name;
  std::int64_t n_elems = 0;
  GroupKey group;
};

/// A tensor's place: `n_elems` from `offset` in its chunk. Offsets are multiples of kSliceAlign.
struct Slice {
  ChunkId chunk = 0;
  std::int64_t offset = 0;
  std::int64_t n_elems = 0;
};

struct ChunkInfo {
  std::int32_t group = 0;
  std::int64_t n_elems = 0;           ///< the same for all chunks of a group but those of an oversize tensor
  std::int64_t used_elems = 0;        ///< the sum of its tensors
  std::vector<std::int32_t> tensors;  ///< in order of offset
};

struct LayoutOptions {
  std::int64_t chunk_elems = 0;      ///< 0: search
  std::int64_t max_chunk_elems = 0;  ///< the search stays at or below this where tensors allow; 0: no bound
  /// Bytes at which a copy reaches half its full rate; the search charges small chunks for it. Measured by
  /// the caller.
  double half_rate_bytes = 128.0 * 1024;
  std::int32_t world = 1;
  std::int32_t rank = 0;
};

/// Which element range of which chunk every tensor is. Tensors are taken in the order given (first use) and
/// never straddle chunks; a tensor larger than the chunk size gets a chunk of its own. A value once made.
class ChunkLayout {
 public:
  static constexpr std::int64_t kSliceAlign =
      4096;  ///< elements: the norm's partials and O_DIRECT both divide it

  /// Errors: `invalid` for an empty tensor, a chunk size that is no multiple of kSliceAlign * world, a bad
  /// rank.
  static Result<ChunkLayout> create(std::span<const LayoutTensor> tensors, const LayoutOptions& options);

  std::span<const ChunkInfo> chunks() const noexcept { return chunks_; }
  const ChunkInfo& chunk(ChunkId id) const { return chunks_[id]; }
  const Slice& slice(std::int32_t tensor) const { return slices_[static_cast<std::size_t>(tensor)]; }
  std::size_t n_chunks() const noexcept { return chunks_.size(); }
  std::span<const GroupKey> groups() const noexcept { return groups_; }
  const GroupKey& group_of(ChunkId id) const { return groups_[static_cast<std::size_t>(chunks_[id].group)]; }
  /// Bytes of one payload of a chunk, whole (all ranks' shards): whole pages, as slots and disks take them.
  std::size_t payload_bytes(ChunkId id, Payload payload) const {
    return payload_bytes_[id][static_cast<std::size_t>(payload)];
  }
  /// The distinct sizes of payloads, smallest first.
  std::span<const std::size_t> payload_sizes() const noexcept { return payload_sizes_; }
  /// Among these; of a payload that the chunk has.
  std::uint32_t size_class(ChunkId id, Payload payload) const {
    return size_class_[id][static_cast<std::size_t>(payload)];
  }
  /// Whether a chunk has that payload at all.
  bool has(ChunkId id, Payload payload) const { return payload_bytes(id, payload) > 0; }
  /// This rank's part of a chunk: [begin, end) elements.
  std::pair<std::int64_t, std::int64_t> shard(ChunkId id) const noexcept;

  std::int64_t chunk_elems() const noexcept { return chunk_elems_; }
  /// Elements held for nothing: alignment and the unfilled ends of chunks.
  std::int64_t wasted_elems() const noexcept;
  /// One sentence: the size, how it was chosen, the waste.
  const std::string& explanation() const noexcept { return explanation_; }

 private:
  void size_payloads();

  std::vector<GroupKey> groups_;
  std::vector<ChunkInfo> chunks_;
  std::vector<std::array<std::size_t, kPayloads>> payload_bytes_;  // by chunk: asked for all the time
  std::vector<std::array<std::uint32_t, kPayloads>> size_class_;   // likewise
  std::vector<std::size_t> payload_sizes_;
  std::vector<Slice> slices_;
  std::int64_t chunk_elems_ = 0;
  std::int32_t world_ = 1, rank_ = 0;
  std::string explanation_;
};

}  // namespace strata
