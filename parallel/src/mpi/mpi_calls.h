#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <strata/parallel/collective.h>
#include <strata/runtime/threads/thread_pool.h>
#include <strata/runtime/thread_annotations.h>

#include "mpi/exchange.h"
#include "mpi/mpi_thread.h"
#include "reduction_pieces.h"

namespace strata::detail {

/// Runs the collectives of one group when their stream has come to them. Thread-safe: streams of one group
/// may run at the same time.
class MpiCalls {
 public:
  MpiCalls(MpiThread& thread, Peers& peers);
  /// Blocks until this rank's part is done. Errors: `lost_peer`; `invalid` if a message has not the size that
  /// the collective says. Allocates only if a collective needs a larger inbox than all before it.
  Status run(const Collective& call, int tag, ThreadPool& pool);

 private:
  /// The memory that one running collective needs.
  struct Scratch {
    Exchange exchanges[2];
    std::vector<std::byte> inbox;
    std::vector<const std::byte*> parts;
  };
  ReductionPieces pieces_of(const Collective& call) const;
  std::unique_ptr<Scratch> take_scratch();
  void give_back(std::unique_ptr<Scratch> scratch);

  Status run(const Collective& call, int tag, ThreadPool& pool, Scratch& scratch);
  Status all_gather(const Collective& call, Exchange& exchange);
  Status all_to_all(const Collective& call, Exchange& exchange);
  Status shift(const Collective& call, Exchange& exchange);
  Status all_reduce(const Collective& call, int tag, ThreadPool& pool, Scratch& scratch);
  Status reduce(const ReductionPieces& reduction, int tag, ThreadPool& pool, Scratch& scratch);
  void begin_piece(const ReductionPieces& reduction, std::size_t piece, int tag, Scratch& scratch);
  void add_piece(const ReductionPieces& reduction, std::size_t piece, ThreadPool& pool, Scratch& scratch);
  Status finish(Exchange& exchange);

  MpiThread& thread_;
  Peers& peers_;
  Mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> free_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata::detail
