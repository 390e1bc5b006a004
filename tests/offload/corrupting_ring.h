#pragma once

#include <unistd.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include <strata/runtime/assert.h>

#include "store/io/ring_ops.h"

namespace strata::test {

/// Flips one bit of each armed buffer in every transfer that contains it: in the buffer after a read, or in
/// the file after the write has completed. Changed only while no armed buffer is in flight.
class BitFlips {
 public:
  void arm(BufferView buffer, std::uint64_t bit, bool in_file) {
    armed_.push_back({buffer.data + bit / 8, static_cast<std::byte>(1u << bit % 8), in_file});
  }
  void clear() { armed_.clear(); }

  void apply(const detail::RingOp& op, std::size_t moved, int descriptor) const {
    for (const Flip& flip : armed_) {
      if (flip.in_file != op.write || flip.at < op.data || flip.at >= op.data + moved) continue;
      if (op.write)
        flip_in_file(descriptor, op.offset + static_cast<std::uint64_t>(flip.at - op.data), flip.mask);
      else
        *flip.at ^= flip.mask;
    }
  }

 private:
  struct Flip {
    std::byte* at;
    std::byte mask;
    bool in_file;
  };

  // In whole pages, since the O_DIRECT descriptor accepts nothing else.
  static void flip_in_file(int descriptor, std::uint64_t offset, std::byte mask) {
    alignas(4096) std::array<std::byte, 4096> page;
    const auto at = static_cast<off_t>(offset - offset % page.size());
    const ssize_t read = ::pread(descriptor, page.data(), page.size(), at);
    page[offset % page.size()] ^= mask;
    const ssize_t written = ::pwrite(descriptor, page.data(), page.size(), at);
    STRATA_ASSERT(read == 4096 && written == 4096, "the page to corrupt was not transferred", read, written);
  }

  std::vector<Flip> armed_;
};

/// A real io_uring whose transfers BitFlips corrupts after they have completed.
class CorruptingRing final : public detail::RingOps {
 public:
  CorruptingRing(std::unique_ptr<detail::RingOps> ring, std::span<const int> descriptors,
                 const BitFlips& flips)
      : ring_(std::move(ring)), descriptors_(descriptors.begin(), descriptors.end()), flips_(flips) {}

  std::uint32_t capacity() const noexcept override { return ring_->capacity(); }
  void wake() noexcept override { ring_->wake(); }
  int enter(bool block) override { return ring_->enter(block); }
  int register_buffer(std::uint32_t index, BufferView buffer) override {
    return ring_->register_buffer(index, buffer);
  }
  void push(const detail::RingOp& op) override {
    in_flight_[op.tag] = op;
    ring_->push(op);
  }
  bool pop(detail::RingCompletion& completion) override {
    if (!ring_->pop(completion)) return false;
    const detail::RingOp op = in_flight_.extract(completion.tag).mapped();
    if (completion.result > 0)
      flips_.apply(op, static_cast<std::size_t>(completion.result), descriptors_[op.file]);
    return true;
  }

 private:
  const std::unique_ptr<detail::RingOps> ring_;
  const std::vector<int> descriptors_;
  const BitFlips& flips_;
  std::unordered_map<std::uint64_t, detail::RingOp> in_flight_;  // keyed by tag
};

}  // namespace strata::test
