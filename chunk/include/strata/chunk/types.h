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

/// The kinds of data a chunk holds for its element range. Each payload has its own home and its own copies.
enum class Payload : std::uint8_t {
  param,   ///< the parameters in their compute dtype
  master,  ///< the bits of the f32 master weights that `param` lacks; empty if `param` is f32
  m,       ///< first moment
  v,       ///< second moment
  accum,   ///< the step's gradient, accumulated over micro-batches
  grad,    ///< one micro-batch's gradient, from the backward pass until it is accumulated
};
inline constexpr std::size_t kPayloads = 6;
constexpr std::string_view to_string(Payload payload) noexcept {
  constexpr std::array<std::string_view, kPayloads> names = {"param", "master", "m", "v", "accum", "grad"};
  return names[static_cast<std::size_t>(payload)];
}
/// The payloads stored in a checkpoint, as f32 whatever their format in memory; `param` stands for the master
/// weights.
inline constexpr std::array<Payload, 3> kCheckpointPayloads = {Payload::param, Payload::m, Payload::v};
/// The payloads that persist from step to step.
inline constexpr std::array<Payload, 4> kPersistentPayloads = {Payload::param, Payload::master, Payload::m,
                                                               Payload::v};

struct PayloadKey {
  ChunkId chunk = 0;
  Payload payload = Payload::param;
  friend bool operator==(const PayloadKey&, const PayloadKey&) = default;
};

/// The state of one payload in one tier; README.md has the diagram.
enum class Residency : std::uint8_t { absent, filling, clean, dirty, writing_back };
constexpr std::string_view to_string(Residency state) noexcept {
  constexpr std::array<std::string_view, 5> names = {"absent", "filling", "clean", "dirty", "writing_back"};
  return names[static_cast<std::size_t>(state)];
}
/// The allowed state transitions; all changes go through one setter, which asserts them.
constexpr bool is_valid_transition(Residency from, Residency to) noexcept {
  using enum Residency;
  switch (from) {
    case absent:
      return to == filling || to == dirty;  // fetched, or first written here
    case filling:
      return to == clean || to == absent;  // complete, or failed
    case clean:
      return to == dirty || to == absent;  // written, or dropped for free
    case dirty:
      return to == writing_back || to == absent;  // being written back, or dead
    case writing_back:
      return to == clean || to == dirty;  // written back, or failed
  }
  return false;
}

}  // namespace strata
