#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <strata/chunk/types.h>
#include <strata/runtime/dtype.h>
#include <strata/runtime/status.h>

namespace strata {

/// What makes chunks alike: all tensors of a chunk share it.
struct GroupKey {
  DType compute = DType::f32;
  StateFormat format = StateFormat::fp32;
  bool trainable = true;
  std::int32_t shard_group = 0;
  friend bool operator==(const GroupKey&, const GroupKey&) = default;
};

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
      4096;  ///< elements: the norm's leaves and O_DIRECT both divide it

  /// Errors: `invalid` for an empty tensor, a chunk size that is no multiple of kSliceAlign * world, a bad
  /// rank.
  static Result<ChunkLayout> create(std::span<const LayoutTensor> tensors, const LayoutOptions& options);

  std::span<const ChunkInfo> chunks() const noexcept { return chunks_; }
  const ChunkInfo& chunk(ChunkId id) const { return chunks_[id]; }
  const Slice& slice(std::int32_t tensor) const { return slices_[static_cast<std::size_t>(tensor)]; }
  std::size_t n_chunks() const noexcept { return chunks_.size(); }
  std::span<const GroupKey> groups() const noexcept { return groups_; }
  /// Bytes of one payload of a chunk, whole (all ranks' shards).
  std::size_t payload_bytes(ChunkId id, Payload payload) const;
  /// This rank's part of a chunk: [begin, end) elements.
  std::pair<std::int64_t, std::int64_t> shard(ChunkId id) const noexcept;

  std::int64_t chunk_elems() const noexcept { return chunk_elems_; }
  /// Elements held for nothing: alignment and the unfilled ends of chunks.
  std::int64_t wasted_elems() const noexcept;
  /// One sentence: the size, how it was chosen, the waste.
  const std::string& explanation() const noexcept { return explanation_; }

 private:
  std::vector<GroupKey> groups_;
  std::vector<ChunkInfo> chunks_;
  std::vector<Slice> slices_;
  std::int64_t chunk_elems_ = 0;
  std::int32_t world_ = 1, rank_ = 0;
  std::string explanation_;
};

}  // namespace strata
