#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <strata/runtime/io/io.h>
#include <strata/runtime/status.h>

namespace strata {

/// The work of one rank's lanes in the steps that log.trace selected, as its file has it. Times are
/// nanoseconds since `begin_unix_ns`.
struct RankTrace {
  enum class LaneKind : std::uint8_t {
    work,   ///< compute, cpu, collective
    copy,   ///< h2d, d2h
    read,   ///< reads of the NVMe tier
    write,  ///< writes to the NVMe tier
    other,  ///< phases of steps, stalls
  };
  struct Lane {
    std::string name;
    LaneKind kind = LaneKind::other;
    std::uint64_t dropped = 0;  ///< older spans that the trace had no room for
  };
  struct Span {
    int lane = 0, label = 0;
    std::int64_t begin_ns = 0, end_ns = 0;
    std::int64_t arg = 0;     ///< copies, reads and writes: bytes
    std::int32_t queue = -1;  ///< as notes name it; -1: none does
    std::uint64_t work = 0;
  };
  /// An event of a payload of a chunk, in the order in which they were decided. PayloadNotes explains them.
  enum class What : std::uint8_t { plan, read, write, copy, use, update, overwrite, absent, give, take };
  enum class Place : std::uint8_t { device, pinned, nvme };
  struct Note {
    What what = What::plan;
    Place place = Place::device;
    int payload = 0;
    std::int64_t chunk = 0;
    std::int32_t queue = -1;  ///< names the work together with `after` and `last`
    std::uint64_t after = 0, last = 0;
    std::int64_t at_ns = 0;
  };
  struct Step {
    std::int64_t step = 0;
    std::int64_t begin_ns = 0, end_ns = 0;
    bool is_whole = true;  ///< nothing of it was dropped
  };

  int rank = 0;
  std::int64_t begin_unix_ns = 0;
  std::vector<Lane> lanes;
  std::vector<std::string> labels, payloads;
  std::vector<Span> spans;  ///< sorted by lane, and then by begin
  std::vector<Note> notes;
  std::vector<Step> steps;  ///< sorted by number
};

/// The traces of all ranks in a run folder, by rank. Errors: `not_found` if there is none, saying which key
/// to set; `corrupt`.
Result<std::vector<RankTrace>> read_run_trace(Io& io, const std::string& folder);

/// The way of a payload's contents from one lane to others.
struct PayloadFlow {
  enum class Kind : std::uint8_t {
    fetch,  ///< to the first work that used it there
    store,  ///< to a write to the NVMe tier
    keep,   ///< to a copy that nothing has used since: it lives there, or was dropped
  };
  Kind kind = Kind::fetch;
  int payload = 0;
  std::int64_t chunk = 0;
  std::vector<std::size_t> spans;  ///< two or more, in order of time
};
std::string_view to_string(PayloadFlow::Kind kind) noexcept;

/// The flows of a trace, whose notes say which work moved and used which payload. It begins with a read, with
/// the work that wrote the contents, or, if both were before the trace, with a copy. Contents that are
/// fetched again, or fetched and stored, have several.
std::vector<PayloadFlow> payload_flows(const RankTrace& trace);

}  // namespace strata
