#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <strata/runtime/status.h>

#include "backend/sim/sim_point.h"
#include "threads/fiber.h"

namespace strata::detail {

/// The interface through which the scheduler sees the lanes of a rank.
class SimRank {
 public:
  virtual ~SimRank() = default;
  virtual bool is_complete(SimPoint point) const noexcept = 0;
  /// Completes waits whose points are complete, and arrives at meetings; returns whether there was any.
  virtual bool settle() = 0;
  /// Reports what the lanes do now.
  virtual void report() = 0;
  /// How long it takes until work ends; kNever if there is none.
  virtual double next_end_ns() = 0;
  /// When the next lane gets something to do that was queued for later; kNever if none does.
  virtual double next_queued_ns() const = 0;
  virtual void pass(double ns) = 0;
};

/// The clock of one or more ranks' lanes, and whose turn it is: see SimWorld. Time is a double in
/// nanoseconds, which represents a day to a hundredth of a nanosecond. A single rank always has its turn.
class SimScheduler {
 public:
  explicit SimScheduler(int ranks);

  /// SimWorld::run().
  void run_ranks(const std::function<void(int rank)>& body);
  /// The lanes of a rank; null: they are gone.
  void attach(int rank, SimRank* lanes) { ranks_[static_cast<std::size_t>(rank)].lanes = lanes; }

  double now_ns() const noexcept { return now_ns_; }
  /// Lets time pass until `until_ns`, or until `goal` is complete. Asserts that this will be, if there is one
  /// rank.
  void run(int rank, double until_ns, std::optional<SimPoint> goal);
  /// `lost_peer` if ranks wait for each other for ever.
  Status status() const;

 private:
  struct Rank {
    SimRank* lanes = nullptr;
    bool waits = true;
    double until_ns = 0;
    std::optional<SimPoint> goal = std::nullopt;
  };
  static constexpr int kNobody = -1;
  bool is_met(const Rank& rank) const;
  int find_next(int first) const;
  void pass_on(int from);
  void settle();
  bool advance();

  std::vector<Rank> ranks_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  int turn_ = kNobody;
  double now_ns_ = 0;
  bool is_stuck_ = false;
};

}  // namespace strata::detail
