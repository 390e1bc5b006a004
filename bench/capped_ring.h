#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <strata/runtime/clock.h>

#include "store/io/ring_ops.h"

namespace strata::bench {

/// A ring whose files have a maximum rate, in bytes per second of both directions together. A completion is
/// held back until a device with that rate, which serves one block after the other, would have completed it.
class CappedRing final : public detail::RingOps {
 public:
  CappedRing(std::unique_ptr<detail::RingOps> ring, const std::vector<double>& bytes_per_s)
      : ring_(std::move(ring)) {
    for (const double rate : bytes_per_s) devices_.push_back({1e9 / rate, 0});
  }

  std::uint32_t capacity() const noexcept override { return ring_->capacity(); }
  void wake() noexcept override { woken_ = true; }
  int register_buffer(std::uint32_t index, BufferView buffer) override {
    return ring_->register_buffer(index, buffer);
  }

  void push(const detail::RingOp& op) override {
    Device& device = devices_[op.file];
    device.free_at_ns = std::max(device.free_at_ns, static_cast<double>(clock_.now_ns())) +
                        static_cast<double>(op.bytes) * device.ns_per_byte;
    due_ns_[op.tag] = device.free_at_ns;
    ring_->push(op);
  }

  // Polls instead of waiting in the kernel, which does not know of the completions held back.
  int enter(bool block) override {
    for (;;) {
      if (const int error = ring_->enter(false); error != 0) return error;
      for (detail::RingCompletion done; ring_->pop(done);) held_.push_back(done);
      if (!block || next() != held_.end() || woken_.exchange(false)) return 0;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  bool pop(detail::RingCompletion& completion) override {
    const auto at = next();
    if (at == held_.end()) return false;
    completion = *at;
    due_ns_.erase(at->tag);
    held_.erase(at);
    return true;
  }

 private:
  struct Device {
    double ns_per_byte = 0, free_at_ns = 0;
  };
  std::vector<detail::RingCompletion>::iterator next() {
    const auto now_ns = static_cast<double>(clock_.now_ns());
    return std::find_if(held_.begin(), held_.end(),
                        [&](const detail::RingCompletion& done) { return due_ns_[done.tag] <= now_ns; });
  }

  const std::unique_ptr<detail::RingOps> ring_;
  const SteadyClock clock_;
  std::vector<Device> devices_;
  std::unordered_map<std::uint64_t, double> due_ns_;  // keyed by tag
  std::vector<detail::RingCompletion> held_;
  std::atomic<bool> woken_{false};
};

}  // namespace strata::bench
