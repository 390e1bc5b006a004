#pragma once

#include <span>
#include <vector>

#include <strata/parallel/world.h>
#include <strata/runtime/io/digest.h>
#include <strata/session/state_piece.h>
#include <strata/session/state_plan.h>

namespace strata::detail {

/// Digests (BlockDigester) of the tensors of one payload, of whose values every rank has a part: ranks digest
/// the blocks of their parts, and tell each other the results chunk by chunk. The digests do not depend on
/// the number of ranks, since parts consist of whole blocks.
class PartDigests {
 public:
  /// `world` may be null; `plan` outlives the object. With several ranks, all create one and finish it.
  PartDigests(const StatePlan& plan, World* world)
      : plan_(plan), world_(world), digests_(plan.tensors.specs.size()) {}

  /// The next values, in the order in which Session visits and fills; those outside of the part of each chunk
  /// that this rank sums are ignored. Errors: those of World::all_gather().
  Status add(const StatePiece& piece, std::span<const float> values);
  /// After the last values.
  Status finish();
  /// By tensor of the layout; complete after finish().
  const Digest& of(std::int32_t tensor) const { return digests_[static_cast<std::size_t>(tensor)]; }

 private:
  /// A run of blocks of one tensor.
  struct Blocks {
    std::int32_t tensor = -1;
    std::int32_t first = 0;  ///< index of the first block in the tensor
    std::vector<Digest> digests;
  };
  Status complete_chunk();
  void end_blocks();

  const StatePlan& plan_;
  World* const world_;
  std::vector<Digest> digests_;
  ChunkId chunk_ = 0;           // the chunk whose values are given
  Blocks now_;                  // of the tensor whose values are given
  BlockDigester digester_;      // of the same
  std::vector<Blocks> blocks_;  // of the chunk, by this rank
};

}  // namespace strata::detail
