#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace strata::detail {

/// A function with a stack of its own, which runs on the thread that resumes it until it suspends itself. To
/// change to it and back costs a fraction of what it costs to change threads. Its function must not throw,
/// and a fiber must not be destroyed while it is suspended.
class Fiber {
 public:
  explicit Fiber(std::function<void()> function);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Goes on with the function until it suspends itself or ends.
  void resume();
  /// From within the function: goes back to who resumed it.
  void suspend();
  bool has_ended() const noexcept;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace strata::detail
