#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <strata/parallel/process_group.h>
#include <strata/parallel/rank_progress.h>
#include <strata/parallel/watch_options.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/status.h>

namespace strata {

/// All ranks of a run, as seen by one of them, from its start on: what they tell each other outside of
/// streams, and the group in which they exchange data. Every rank makes the same calls in the same order. Not
/// thread-safe.
class World {
 public:
  virtual ~World() = default;
  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  /// Whether the ranks are threads of one process.
  virtual bool in_one_process() const noexcept { return false; }
  /// Ranks that are threads of this process, with this one.
  virtual int ranks_here() const noexcept { return in_one_process() ? size() : 1; }
  /// Where the rank runs and by which transport, such as "rank 2 of 4 on host a (MPI)"; for messages.
  virtual std::string description() const = 0;

  /// To be kept up to date by what drives this rank, for the others to know.
  virtual RankProgress& progress() noexcept = 0;
  /// How the ranks watch each other from now on. A rank that is lost ends the waiting of the others with
  /// `lost_peer`, which names it, its host, what it did last, and what has become of it.
  virtual void set_watch(const WatchOptions& options) = 0;
  /// This rank cannot go on, and exchanges nothing more: whoever waits for it, now or later, gets `lost_peer`
  /// with the reason and where this rank was.
  virtual void give_up(const Status& why) = 0;
  /// Bytes that this rank has exchanged besides those of its groups so far, but for messages of ranks that
  /// leave.
  virtual CollectiveBytes control_bytes() const noexcept { return {}; }

  /// The RAM that the transport itself holds in this process, measured: its libraries, what they allocated
  /// when it was opened, shared memory, and the inboxes of reductions.
  virtual std::uint64_t transport_bytes() const { return 0; }

  /// Every rank's `text`, by rank. Blocks until all have called it. Errors: `lost_peer` if a
  /// rank has ended.
  virtual Result<std::vector<std::string>> all_gather(std::string_view text) = 0;

  using Create = std::function<Result<std::shared_ptr<void>>()>;
  /// For what ranks of one process share: the object that one of them creates by `create`. Ranks of different
  /// processes each create their own. Errors: those of create(), the same on all ranks that would share it.
  virtual Result<std::shared_ptr<void>> share(const Create& create) = 0;

  /// The group of all ranks for work on `backend`, which must outlive it, and which is the same object for
  /// ranks of one process.
  virtual Result<std::unique_ptr<ProcessGroup>> create_group(Backend& backend) = 0;
};

/// Worlds of ranks that are threads of this process: element r belongs to the thread of rank r. A rank that
/// destroys its element has left, as in create_thread_groups(). Errors: `invalid` unless 1 <= size <= 16.
Result<std::vector<std::unique_ptr<World>>> create_thread_worlds(int size);

}  // namespace strata
