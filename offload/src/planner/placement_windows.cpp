#include "planner/placement_windows.h"

#include <algorithm>
#include <set>
#include <utility>

namespace strata::detail {
namespace {

/// The largest count that each class has at once. Few of many classes are in use at a time.
class PeakCounts {
 public:
  explicit PeakCounts(std::size_t classes) : now_(classes, 0), peak_(classes, 0) {}
  void add(std::uint32_t size_class) {
    if (now_[size_class]++ == 0) used_.push_back(size_class);
  }
  void set_at_least_one(std::uint32_t size_class) {
    if (now_[size_class] == 0) add(size_class);
  }
  /// Ends what is in use at once.
  void next() {
    for (const std::uint32_t c : used_) peak_[c] = std::max(peak_[c], std::exchange(now_[c], 0));
    used_.clear();
  }
  const Counts& peak() const noexcept { return peak_; }

 private:
  Counts now_, peak_;
  std::vector<std::uint32_t> used_;
};

// Whether a payload without a home in `tier` gets there. What ranks receive goes where it is accumulated.
bool passes_through(const Placement& p, PayloadKey key, Tier tier) {
  if (key.payload != Payload::received) return p.home(key) != tier;
  return (p.home({key.chunk, Payload::accum}) == Tier::device) == (tier == Tier::device);
}

/// The class in whose window a payload passes through the device.
std::uint32_t device_class(const ChunkLayout& layout, const Placement& p, PayloadKey key) {
  return p.window_class(layout.size_class(key.chunk, key.payload), Tier::device);
}

// The largest number of payloads that are on the device together and have no home there.
Counts min_device_window(const ChunkLayout& layout, const AccessTrace& trace, const Placement& p) {
  PeakCounts counts(p.classes.size());
  for (const AccessTrace::Access& access : trace.accesses) {
    for (const PayloadKey key : access.on_device)
      if (passes_through(p, key, Tier::device)) counts.add(device_class(layout, p, key));
    counts.next();
  }
  return counts.peak();
}

/// How many payloads of each class pass through the device together: every combination that an access has,
/// once.
std::set<Counts> combinations(const ChunkLayout& layout, const AccessTrace& trace, const Placement& p) {
  std::set<Counts> found;
  Counts now(p.classes.size(), 0), last;
  for (const AccessTrace::Access& access : trace.accesses) {
    std::fill(now.begin(), now.end(), 0);
    for (const PayloadKey key : access.on_device)
      if (passes_through(p, key, Tier::device)) ++now[layout.size_class(key.chunk, key.payload)];
    if (now == last) continue;
    found.insert(now);
    last = now;
  }
  return found;
}

/// Lets classes pass through the windows of larger ones as long as that makes the windows smaller. A head or
/// an embedding is several times as large as the matrices of a layer, and is never in use together with
/// them.
class WindowSharing {
 public:
  WindowSharing(const Placement& p, const std::set<Counts>& used, const Counts& on_device)
      : classes_(p.classes), used_(used.begin(), used.end()), on_device_(on_device) {
    for (std::uint32_t c = 0; c < classes_.size(); ++c) windows_.push_back(c);
  }
  std::vector<std::uint32_t> run() {
    while (true) {
      std::uint64_t most = 0;
      std::uint32_t from = 0, into = 0;
      const std::vector<std::uint32_t> pass = passing();
      for (std::size_t i = 0; i < pass.size(); ++i)
        for (std::size_t j = i + 1; j < pass.size() && on_device_[pass[i]] == 0; ++j)
          if (const std::uint64_t saved = saving(pass[i], pass[j]); saved > most)
            most = saved, from = pass[i], into = pass[j];
      if (most == 0) return windows_;
      for (Counts& counts : used_) counts[into] += std::exchange(counts[from], 0);
      std::replace(windows_.begin(), windows_.end(), from, into);
    }
  }

 private:
  /// The classes of which something passes through the device: no others save anything.
  std::vector<std::uint32_t> passing() const {
    std::vector<std::uint32_t> classes;
    for (std::uint32_t c = 0; c < classes_.size(); ++c)
      if (std::any_of(used_.begin(), used_.end(), [&](const Counts& counts) { return counts[c] > 0; }))
        classes.push_back(c);
    return classes;
  }
  /// Bytes that the windows of `a` and `b` take apart, less those of a window of b's slots for both.
  std::uint64_t saving(std::uint32_t a, std::uint32_t b) const {
    std::uint64_t of_a = 0, of_b = 0, of_both = 0;
    for (const Counts& counts : used_) {
      of_a = std::max<std::uint64_t>(of_a, counts[a]);
      of_b = std::max<std::uint64_t>(of_b, counts[b]);
      of_both = std::max<std::uint64_t>(of_both, counts[a] + counts[b]);
    }
    const std::uint64_t apart = of_a * classes_[a].slot_bytes + of_b * classes_[b].slot_bytes;
    return apart - std::min(apart, of_both * classes_[b].slot_bytes);
  }

  const std::vector<SizeClass>& classes_;
  std::vector<Counts> used_;
  const Counts& on_device_;
  std::vector<std::uint32_t> windows_;
};

// The number of chunks whose `payload` passes through the device.
Counts streamed(const ChunkLayout& layout, const Placement& p, Payload payload) {
  Counts n(p.classes.size(), 0);
  for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk)
    if (layout.has(chunk, payload) && passes_through(p, {chunk, payload}, Tier::device))
      ++n[device_class(layout, p, {chunk, payload})];
  return n;
}

// Slots beyond the minimum, for parameters on their way to the device and for gradients on their way from it;
// no more of either than are streamed. Gathers that come before their use are part of the trace.
Counts extra_device_window(const ChunkLayout& layout, const AccessTrace& trace, const Placement& p,
                           std::uint32_t extra) {
  Counts sum(p.classes.size(), 0);
  for (const Payload payload : {Payload::param, Payload::gathered, Payload::grad, Payload::received}) {
    if ((payload == Payload::grad || payload == Payload::received) && !trace.training) continue;
    if (payload == Payload::gathered && !trace.keeps_gathered) continue;
    const Counts n = streamed(layout, p, payload);
    for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += std::min(extra, n[c] - std::min(n[c], 1u));
  }
  return sum;
}

bool is_parameter(Payload payload) { return payload == Payload::param || payload == Payload::gathered; }

struct PinnedWindow {
  Counts work;     // for committing a chunk or accumulating a gradient; more lets the next one begin
  Counts staging;  // for loading, saving or initializing states on nvme: a parameter together with its
                   // master, the other payloads one at a time
};
// The largest number of payloads that are in pinned memory together and have no home there.
PinnedWindow min_pinned_window(const ChunkLayout& layout, const AccessTrace& trace, const Placement& p) {
  PeakCounts work(p.classes.size()), staging(p.classes.size());
  for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk) {
    const bool at_device = p.home({chunk, Payload::param}) == Tier::device;
    const bool trainable = layout.group_of(chunk).trainable;
    for (const Payload payload : homed_payloads(trace).all) {
      const PayloadKey key{chunk, payload};
      if (p.home(key) == Tier::pinned || !layout.has(chunk, payload)) continue;
      // A parameter also passes through pinned memory when it is streamed to the device. A frozen one is not
      // updated, so its master is never moved.
      if (!at_device && (trainable || is_parameter(payload))) work.add(layout.size_class(chunk, payload));
      if (p.home(key) != Tier::nvme || payload == Payload::accum) continue;
      const std::uint32_t staged = layout.size_class(chunk, payload);
      if (payload == Payload::master)
        staging.add(staged);
      else
        staging.set_at_least_one(staged);
    }
    work.next();
    const bool accumulates_in_ram = p.home({chunk, Payload::accum}) != Tier::device;
    if (trace.training && trainable && accumulates_in_ram && trace.micro_batches > 1)
      work.add(layout.size_class(chunk, Payload::grad));
    if (trace.training && accumulates_in_ram && layout.has(chunk, Payload::received))
      work.add(layout.size_class(chunk, Payload::received));
    if (p.home({chunk, Payload::accum}) == Tier::nvme) work.add(layout.size_class(chunk, Payload::accum));
    work.next();
    staging.next();
  }
  return {work.peak(), staging.peak()};
}

}  // namespace

void set_device_windows(const ChunkLayout& layout, const AccessTrace& trace, const WindowWidth& width,
                        Placement& p) {
  if (width.shares_device)
    p.device_windows =
        WindowSharing(p, combinations(layout, trace, p), p.home_counts(layout, Tier::device)).run();
  const Counts device = min_device_window(layout, trace, p);
  const Counts extra = extra_device_window(layout, trace, p, width.device_extra);
  for (std::size_t c = 0; c < p.classes.size(); ++c) p.classes[c].window[kDevice] = device[c] + extra[c];
}

void set_host_windows(const ChunkLayout& layout, const AccessTrace& trace, const WindowWidth& width,
                      Placement& p) {
  const PinnedWindow pinned = min_pinned_window(layout, trace, p);
  const Counts on_nvme = p.home_counts(layout, Tier::nvme);
  for (std::size_t c = 0; c < p.classes.size(); ++c) {
    auto& window = p.classes[c].window;
    window[kPinned] = std::max(pinned.work[c] * width.pinned_factor, pinned.staging[c]);
    window[kNvme] = on_nvme[c] > 0 ? std::min(width.spares, on_nvme[c]) : 0;
  }
}

void set_windows(const ChunkLayout& layout, const AccessTrace& trace, const WindowWidth& width,
                 Placement& p) {
  set_device_windows(layout, trace, width, p);
  set_host_windows(layout, trace, width, p);
}

Payload read_payload(const ChunkLayout& layout, const AccessTrace& trace, ChunkId chunk) {
  return trace.keeps_gathered ? layout.read_payload(chunk) : Payload::param;
}

Counts streamed_params(const ChunkLayout& layout, const AccessTrace& trace, const Placement& p) {
  Counts n(p.classes.size(), 0);
  for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk) {
    const PayloadKey key{chunk, read_payload(layout, trace, chunk)};
    if (layout.has(chunk, key.payload) && p.home(key) != Tier::device) ++n[device_class(layout, p, key)];
  }
  return n;
}

Counts cached_params(const ChunkLayout& layout, const AccessTrace& trace, const Placement& p) {
  Counts cached = streamed_params(layout, trace, p);
  const Counts minimum = min_device_window(layout, trace, p);
  for (std::size_t c = 0; c < cached.size(); ++c) {
    const std::uint32_t window = p.classes[c].window[kDevice];
    cached[c] = std::min(cached[c], window - std::min(window, minimum[c]));
  }
  return cached;
}

HomedPayloads homed_payloads(const AccessTrace& trace) {
  static constexpr std::array<Payload, 7> kAll = {Payload::gathered, Payload::param, Payload::accum,
                                                  Payload::master,   Payload::m,     Payload::v,
                                                  Payload::ema};
  const std::size_t first = trace.keeps_gathered ? 0 : 1;
  return {std::span(kAll).subspan(first, (trace.training ? 3 : 2) - first),
          std::span(kAll).subspan(3, trace.training ? 4 : 0),
          std::span(kAll).subspan(first, (trace.training ? 7 : 2) - first)};
}

}  // namespace strata::detail
