#pragma once

#include <array>
#include <vector>

#include "machine.h"

namespace strata {

/// First values, and reading and writing all states in bounded memory: what lives on the device passes
/// through a fixed piece of pinned memory, what lives on the slow tier through window slots.
class StateAccess {
 public:
  explicit StateAccess(Machine& machine) : machine_(machine) {}
  Status initialize(std::uint64_t seed);
  Status visit(Payload payload, const Engine::Visit& visit);
  Status fill(Payload payload, const Engine::Fill& fill);

 private:
  /// The payloads of a chunk that together are a state: the one asked for, and of a parameter the rest of its
  /// master where the run holds one.
  struct Opened {
    ChunkId chunk = 0;
    Payload payload = Payload::param;
    Tier tier = Tier::pinned;
    ChunkPin values, rest;
  };
  /// Where a state's elements lie: of a parameter its values and the rest of its master, of a moment its
  /// values and its scales.
  struct Part {
    const ChunkPin* pin = nullptr;  ///< null: this run does not hold it
    std::size_t offset = 0, bytes = 0;
  };
  using Parts = std::array<Part, 2>;
  Parts parts_of(const Opened& chunk, std::int64_t at, std::int64_t n) const;
  Result<Opened> open(ChunkId chunk, Payload payload, Intent intent);
  template <class OnePiece>
  Status each_piece(Payload payload, Intent intent, const OnePiece& one);
  Status load(const Opened& chunk, std::int64_t at, std::span<float> values);
  Status store(const Opened& chunk, std::int64_t at, std::span<const float> values);
  Stream& stream_of(const Opened& chunk, Intent intent) const noexcept;

  Machine& machine_;
  std::vector<float> piece_ = std::vector<float>(static_cast<std::size_t>(kStatePiece));
};

}  // namespace strata
