#pragma once

#include <array>
#include <cstdint>

namespace strata {

/// Bytes moved: on the links by the session's backend since that was created, on nvme by the session, and
/// over the network, to other ranks, by the session's groups.
struct MovedBytes {
  std::uint64_t h2d = 0, d2h = 0, nvme_read = 0, nvme_write = 0, network = 0;
};

/// Seconds during which each lane was busy since the session was created.
struct LaneBusySeconds {
  double compute = 0, h2d = 0, d2h = 0, cpu = 0, nvme_read = 0, nvme_write = 0, collective = 0;
};

/// One lane: its name, and where its busy time and its bytes are.
struct LaneFields {
  const char* name;
  double LaneBusySeconds::*seconds;
  std::uint64_t MovedBytes::*bytes;  ///< null for a lane that moves no bytes
};
inline constexpr std::array<LaneFields, 7> kLaneFields = {
    {{"compute", &LaneBusySeconds::compute, nullptr},
     {"h2d", &LaneBusySeconds::h2d, &MovedBytes::h2d},
     {"d2h", &LaneBusySeconds::d2h, &MovedBytes::d2h},
     {"cpu", &LaneBusySeconds::cpu, nullptr},
     {"nvme_read", &LaneBusySeconds::nvme_read, &MovedBytes::nvme_read},
     {"nvme_write", &LaneBusySeconds::nvme_write, &MovedBytes::nvme_write},
     {"collective", &LaneBusySeconds::collective, &MovedBytes::network}}};

inline MovedBytes operator-(MovedBytes a, const MovedBytes& b) noexcept {
  for (const LaneFields& lane : kLaneFields)
    if (lane.bytes != nullptr) a.*lane.bytes -= b.*lane.bytes;
  return a;
}
inline MovedBytes operator/(MovedBytes a, std::uint64_t n) noexcept {
  for (const LaneFields& lane : kLaneFields)
    if (lane.bytes != nullptr) a.*lane.bytes /= n;
  return a;
}
inline MovedBytes& operator+=(MovedBytes& a, const MovedBytes& b) noexcept {
  for (const LaneFields& lane : kLaneFields)
    if (lane.bytes != nullptr) a.*lane.bytes += b.*lane.bytes;
  return a;
}
inline LaneBusySeconds operator-(LaneBusySeconds a, const LaneBusySeconds& b) noexcept {
  for (const LaneFields& lane : kLaneFields) a.*lane.seconds -= b.*lane.seconds;
  return a;
}
inline LaneBusySeconds& operator+=(LaneBusySeconds& a, const LaneBusySeconds& b) noexcept {
  for (const LaneFields& lane : kLaneFields) a.*lane.seconds += b.*lane.seconds;
  return a;
}
inline LaneBusySeconds operator/(LaneBusySeconds a, double n) noexcept {
  for (const LaneFields& lane : kLaneFields) a.*lane.seconds /= n;
  return a;
}

}  // namespace strata
