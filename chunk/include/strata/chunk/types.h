#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <strata/runtime/dtype.h>

namespace strata {

using ChunkId = std::uint32_t;

/// The storage tiers, fastest first.
enum class Tier : std::uint8_t { device, pinned, nvme };
inline constexpr std::size_t kTiers = 3;
constexpr std::string_view to_string(Tier tier) noexcept {
  constexpr std::array<std::string_view, kTiers> names = {"device", "pinned", "nvme"};
  return names[static_cast<std::size_t>(tier)];
}
constexpr std::size_t index_of(Tier tier) noexcept { return static_cast<std::size_t>(tier); }
inline constexpr std::array<Tier, kTiers> kAllTiers = {Tier::device, Tier::pinned, Tier::nvme};
/// The tiers whose copies are in memory, where work can read and write them.
inline constexpr std::array<Tier, 2> kMemoryTiers = {Tier::device, Tier::pinned};

/// The kinds of data a chunk holds for its element range. Each payload has its own home and its own copies.
enum class Payload : std::uint8_t {
  param,   ///< the parameters in their compute dtype
  master,  ///< the bits of the f32 master weights that `param` lacks; empty if `param` is f32
  m,       ///< first moment
  v,       ///< second moment
  ema,     ///< the exponential moving average of the masters, in f32
  accum,   ///< the step's gradient, accumulated over micro-batches
  /// The gradient that backward writes, until it is accumulated: that of one micro-batch or, if a pass covers
  /// all of them, their f32 sum.
  grad,
  // A run of several ranks has these, too. Each exists only while it is used, except `gathered` where it has
  // a home.
  gathered,  ///< the parameters of the whole chunk, of which `param` is this rank's shard
  received,  ///< every rank's micro-batch adds this to the part of the gradient that this rank sums
};
inline constexpr std::size_t kPayloads = 9;
constexpr std::string_view to_string(Payload payload) noexcept {
  constexpr std::array<std::string_view, kPayloads> names = {"param", "master", "m",        "v",       "ema",
                                                             "accum", "grad",   "gathered", "received"};
  return names[static_cast<std::size_t>(payload)];
}
/// The payloads stored in a checkpoint, as f32 whatever their format in memory; `param` stands for the master
/// weights.
inline constexpr std::array<Payload, 4> kCheckpointPayloads = {Payload::param, Payload::m, Payload::v,
                                                               Payload::ema};
/// The payloads that persist from step to step.
inline constexpr std::array<Payload, 5> kPersistentPayloads = {Payload::param, Payload::master, Payload::m,
                                                               Payload::v, Payload::ema};

struct PayloadKey {
  ChunkId chunk = 0;
  Payload payload = Payload::param;
  friend bool operator==(const PayloadKey&, const PayloadKey&) = default;
};

/// Index of a key in the tables that have an entry for every payload of every chunk, and the reverse.
constexpr std::size_t index_of(PayloadKey key) noexcept {
  return key.chunk * kPayloads + static_cast<std::size_t>(key.payload);
}
constexpr PayloadKey key_at(std::size_t index) noexcept {
  return {static_cast<ChunkId>(index / kPayloads), static_cast<Payload>(index % kPayloads)};
}

/// How a pinned payload will be used.
enum class Intent : std::uint8_t {
  read,       ///< the contents are fetched and do not change
  update,     ///< fetched and changed: all other copies become stale
  overwrite,  ///< not fetched: the user of the pin writes everything that will be read
};

}  // namespace strata
