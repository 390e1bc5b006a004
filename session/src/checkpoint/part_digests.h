#pragma once

#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include <strata/parallel/world.h>
#include <strata/runtime/io/digest.h>
#include <strata/session/state_piece.h>
#include <strata/session/state_plan.h>

namespace strata::detail {

/// Digests (BlockDigester) of the tensors of one payload, of whose values every rank has a part: ranks digest
/// the blocks of their parts, and in finish() they tell each other the results chunk by chunk. The digests do
/// not depend on the number of ranks, since parts consist of whole blocks. Of ranks that share tensors of the
/// model, each gets those of its own parts of them.
class PartDigests {
 public:
  /// Tells which chunks have tensors to digest.
  using Covers = std::function<bool(ChunkId chunk)>;
  /// `world` may be null; `plan` outlives the object. With several ranks, all create one, for the same
  /// chunks, and finish it. `series`: how many values are given for each element.
  PartDigests(const StatePlan& plan, World* world, Covers covers = {}, std::size_t series = 1)
      : plan_(plan), world_(world), covers_(std::move(covers)), series_(series) {
    for (Series& of : series_) of.digests.resize(plan.tensors.specs.size());
  }

  /// Digests on the threads of a pool from here on.
  void use(ThreadPool& pool) { pool_ = &pool; }
  /// The next values of a series, in the order in which Session visits and fills. Those of chunks that are
  /// not covered and those outside the part of each chunk that this rank sums are ignored.
  void add(const StatePiece& piece, std::span<const float> values, std::size_t series = 0);
  /// After the last values. Errors: those of World::all_gather().
  Status finish();
  /// The digest of a tensor of the layout; complete after finish().
  const Digest& of(std::int32_t tensor, std::size_t series = 0) const {
    return series_[series].digests[static_cast<std::size_t>(tensor)];
  }

 private:
  /// A run of blocks of one tensor in one chunk.
  struct Blocks {
    std::int32_t series = 0, tensor = -1;
    std::int32_t first = 0;  ///< index of the first block in the tensor
    ChunkId chunk = 0;
    std::vector<Digest> digests;
  };
  struct Series {
    std::vector<Digest> digests;
    Blocks now;                ///< the blocks of the tensor whose values are given
    std::int64_t now_end = 0;  ///< the element of the tensor behind those values
    BlockDigester digester;    ///< digests the same tensor
  };
  bool covers(ChunkId chunk) const { return !covers_ || covers_(chunk); }
  void end_blocks(std::size_t series);
  Status exchange(std::vector<Blocks>& runs) const;
  Result<std::size_t> count_exchanges(std::size_t own) const;
  void join(std::vector<Blocks>& runs);

  const StatePlan& plan_;
  World* world_;
  ThreadPool* pool_ = nullptr;
  Covers covers_;
  std::vector<Series> series_;
  std::vector<Blocks> blocks_;  // the blocks of all chunks that this rank has digested
  struct Joined {
    std::vector<Blocks> runs;
    std::int64_t n_blocks = 0;
  };
  std::map<std::pair<std::int32_t, std::int32_t>, Joined>
      joined_;  // keyed by series and tensor; incomplete ones
};

}  // namespace strata::detail
