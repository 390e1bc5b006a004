#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

/// The roles of a block (attention/warpgroup/warp_roles.h) on the host, for tests: threads of which one runs
/// at a time. It goes on until it waits for something; then the first one, in the order given, that need not
/// wait has its turn. So a run is deterministic, and a role is as far ahead of the others as the barriers
/// permit.
namespace strata::kernels::detail {

class RoleScheduler {
 public:
  /// Runs the roles to their end. `advance` is called when all of them wait: it lets an asynchronous
  /// operation come to its end, or returns false if none is left.
  void run(const std::vector<std::function<void()>>& roles, std::function<bool()> advance) {
    advance_ = std::move(advance);
    roles_.assign(roles.size(), Role());
    current_ = 0;
    std::vector<std::thread> threads;
    threads.reserve(roles.size());
    for (std::size_t i = 0; i < roles.size(); ++i) threads.emplace_back([&, i] { run_role(i, roles[i]); });
    for (std::thread& thread : threads) thread.join();
  }
  /// Called by the running role.
  void wait_until(const std::function<bool()>& ready) {
    std::unique_lock lock(mutex_);
    const std::size_t self = current_;
    roles_[self].ready = ready;
    choose_next();
    go_on_.wait(lock, [&] { return is_stuck_ || current_ == self; });
    if (is_stuck_) throw Stuck();
    roles_[self].ready = nullptr;
  }
  /// Lets a role that comes first in the order go on, if it can.
  void yield() {
    wait_until([] { return true; });
  }
  /// Whether roles waited for what never came.
  bool is_stuck() const { return is_stuck_; }

 private:
  struct Role {
    std::function<bool()> ready;
    bool is_done = false;
  };
  struct Stuck : std::exception {};

  void run_role(std::size_t self, const std::function<void()>& role) {
    try {
      {
        std::unique_lock lock(mutex_);
        go_on_.wait(lock, [&] { return is_stuck_ || current_ == self; });
        if (is_stuck_) throw Stuck();
      }
      role();
    } catch (const Stuck&) {
    }
    const std::lock_guard lock(mutex_);
    roles_[self].is_done = true;
    if (!is_stuck_) choose_next();
  }
  void choose_next() {
    for (bool is_over = false; !is_over;) {
      is_over = true;
      for (std::size_t i = 0; i < roles_.size(); ++i) {
        if (roles_[i].is_done) continue;
        is_over = false;
        if (roles_[i].ready != nullptr && !roles_[i].ready()) continue;
        current_ = i;
        go_on_.notify_all();
        return;
      }
      if (!is_over && !advance_()) {
        is_stuck_ = true;
        go_on_.notify_all();
        return;
      }
    }
  }

  std::function<bool()> advance_;
  std::vector<Role> roles_;
  std::size_t current_ = 0;
  bool is_stuck_ = false;
  std::mutex mutex_;
  std::condition_variable go_on_;
};

}  // namespace strata::kernels::detail
