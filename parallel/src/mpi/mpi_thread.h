#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <strata/parallel/collective.h>
#include <strata/runtime/status.h>
#include <strata/runtime/thread_annotations.h>
#include <strata/runtime/units.h>

#include "mpi/exchange.h"
#include "mpi/leave_mailbox.h"
#include "mpi/mpi_api.h"
#include "mpi/watch/mpi_watch.h"
#include "mpi/peers.h"

namespace strata::detail {

struct MpiOptions {
  std::size_t max_message_bytes = kGiB;  ///< MPI counts in int
  /// The piece size of a reduction; the inbox holds two pieces of every other rank.
  std::size_t max_piece_bytes = kMiB;
  std::chrono::milliseconds leave_wait{1000};
  int ranks_here = 1, here = 0;  ///< ranks of this process, and the index of this one
};

/// The one thread that calls MPI. Other threads give it exchanges and wait for them. Thread-safe; an exchange
/// that has finished can be started again without an allocation.
///
/// The thread tests what is in flight: it spins briefly, then sleeps tens, later hundreds, of microseconds
/// between tests. With nothing in flight it waits for work and tests every few milliseconds, since MPI may
/// deliver a message that it has accepted only during a later call.
///
/// The destructor waits until the other ranks have destroyed theirs, or until none has done so for
/// `leave_wait`. MPI_Finalize, which waits for all ranks, is called only in the first case and if no message
/// was given up; otherwise the process ends without it, and the launcher ends the job.
class MpiThread {
 public:
  /// Starts MPI and creates group 0, of all ranks. `api` must outlive the thread.
  static Result<std::shared_ptr<MpiThread>> start(const MpiApi& api, const MpiOptions& options = {});
  ~MpiThread();
  MpiThread(const MpiThread&) = delete;
  MpiThread& operator=(const MpiThread&) = delete;

  const MpiOptions& options() const noexcept { return options_; }
  const MpiInfo& info() const noexcept { return info_; }
  Peers& world() { return *world_; }

  /// The exchange must live until wait() has returned. It fails at once if the thread has ended by an error.
  void begin(Exchange& exchange);
  /// Errors: `lost_peer`; `invalid` if a message has not the expected size. Then the group has failed.
  Status wait(Exchange& exchange);

  /// A number that no group of this rank has had.
  int next_group();
  /// The group must have the same number on all of its ranks. It is kept as long as the thread.
  Peers& add_group(int id, int rank, std::vector<int> world_ranks);
  /// This rank exchanges nothing more in the group: tells the other members, ends what is under way.
  void leave(const Peers& peers);
  /// The same for all groups, with a reason.
  void leave_all(const std::string& reason);
  /// The first failure of the group; a group that has failed stays so.
  Status failure(const Peers& peers);

  RankProgress& progress() noexcept { return progress_; }
  /// Starts watching the other ranks, once. `identities` of all ranks.
  void start_watch(std::vector<ProcessIdentity> identities);
  void set_watch(const WatchOptions& options);
  /// Bytes of texts and heartbeats; see World::control_bytes().
  CollectiveBytes control_bytes() const noexcept {
    return {control_sent_.load(std::memory_order_relaxed), control_received_.load(std::memory_order_relaxed)};
  }
  void count_control_bytes(std::uint64_t sent, std::uint64_t received) noexcept {
    control_sent_.fetch_add(sent, std::memory_order_relaxed);
    control_received_.fetch_add(received, std::memory_order_relaxed);
  }

  /// Memory that the transport has allocated for good.
  void count_memory(std::uint64_t bytes) noexcept { memory_.fetch_add(bytes, std::memory_order_relaxed); }
  std::uint64_t memory() const noexcept { return memory_.load(std::memory_order_relaxed); }

  /// How another rank has failed, been lost, or left with a reason; ok if none has.
  Status peer_failure();

  /// Keeps an object that queued work may still refer to as long as the thread.
  void keep(std::shared_ptr<void> object);

 private:
  struct Group {
    explicit Group(int id, int rank, std::vector<int> world_ranks)
        : peers(id, rank, std::move(world_ranks)) {}
    Peers peers;
    Status failure;
    bool left = false;    // the others have been told
    bool closed = false;  // this rank left it without a reason; then `failure` says only that
  };
  struct Leaving {
    int group;
    Status status;
    LeaveCause cause;
  };
  MpiThread(const MpiApi& api, const MpiOptions& options);

  // All that follows: the MPI thread only.
  void run() noexcept;
  Status open();
  void serve();
  /// Takes what other threads have given. Returns false when the thread is to end.
  bool take_commands();
  void progress_exchanges(bool& progressed);
  void receive_leave_messages(bool& progressed);
  void leave_group(const Leaving& leaving);
  void take_watch_options();
  void watch_peers();
  void note_lost(const MpiWatch::Loss& loss);
  void finish(Exchange& exchange);
  void pause(bool progressed);
  void give_up(const Status& status) noexcept;
  void end_by_error(const Status& status) noexcept;
  /// Leaves the world. Returns whether all other ranks have left it, too.
  bool wait_for_others();
  bool others_have_left();
  void remove_segments();
  Group& group(int id) STRATA_REQUIRES(mutex_) { return *groups_[static_cast<std::size_t>(id)]; }

  const MpiApi& api_;
  const MpiOptions options_;
  MpiInfo info_;            // constant once started
  Peers* world_ = nullptr;  // constant once started

  Mutex mutex_;
  Condition given_, changed_;  // work for the MPI thread; its answers
  bool started_ STRATA_GUARDED_BY(mutex_) = false;
  bool stop_ STRATA_GUARDED_BY(mutex_) = false;
  Status start_status_ STRATA_GUARDED_BY(mutex_);
  Status ended_ STRATA_GUARDED_BY(mutex_);  // the error by which the thread has ended; it takes nothing more
  std::vector<Exchange*> begun_ STRATA_GUARDED_BY(mutex_);
  std::vector<Leaving> leaving_ STRATA_GUARDED_BY(mutex_);
  // Indexed by number; null: a group of other ranks.
  std::vector<std::unique_ptr<Group>> groups_ STRATA_GUARDED_BY(mutex_);
  std::vector<LeaveMailbox::Arrived> early_ STRATA_GUARDED_BY(mutex_);  // from groups not yet known here
  std::vector<std::shared_ptr<void>> kept_ STRATA_GUARDED_BY(mutex_);
  std::vector<MpiWatch::Loss> lost_ STRATA_GUARDED_BY(mutex_);  // for groups that are created later
  bool watch_changed_ STRATA_GUARDED_BY(mutex_) = false;
  WatchOptions watch_options_ STRATA_GUARDED_BY(mutex_);
  std::vector<ProcessIdentity> identities_;  // constant once watch_ may be created
  RankProgress progress_;
  std::atomic<std::uint64_t> control_sent_{0}, control_received_{0}, memory_{0};

  // Only the MPI thread uses these.
  LeaveMailbox mailbox_;
  std::optional<MpiWatch> watch_;
  std::vector<Exchange*> active_;  // null: finished in this round
  struct Ending {
    Exchange* exchange;
    std::chrono::steady_clock::time_point give_up_at;
  };
  std::vector<Ending> ending_;  // failed; their messages are being cancelled
  int idle_rounds_ = 0;
  bool clean_ = true;  // no message was given up, and no rank has failed or is lost
  Status broken_;      // MPI or this thread has failed

  std::jthread thread_;  // last: ends before anything above is destroyed
};

}  // namespace strata::detail
