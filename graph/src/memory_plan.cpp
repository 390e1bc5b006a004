#include <algorithm>
#include <numeric>

#include <strata/graph/ops.h>
#include <strata/graph/passes.h>
#include <strata/runtime/units.h>

namespace strata {
namespace {

struct LiveRange {
  int first = -1, last = -1;  // instruction indices, inclusive; -1: never used
};

// Whether the value has an offset: in the device arena or, for values on the host, in the host's own arena.
bool is_planned(const ValueInfo& info) {
  return info.kind != ValueKind::param && info.kind != ValueKind::grad && info.kind != ValueKind::state &&
         info.kind != ValueKind::stored;
}

std::vector<LiveRange> find_live_ranges(const Program& program) {
  std::vector<LiveRange> live_ranges(program.values.size());
  const int end = static_cast<int>(program.code.size());
  const auto touch = [&](ValueId id, int at) {
    if (id == kNoValue || !is_planned(program.value(id))) return;
    LiveRange& live_range = live_ranges[static_cast<std::size_t>(id)];
    live_range.first = live_range.first < 0 ? at : std::min(live_range.first, at);
    live_range.last = std::max(live_range.last, at);
  };
  for (const ValueId id : program.inputs) {  // inputs are filled before the first instruction runs
    touch(id, 0);
    touch(id, end);
  }
  for (int i = 0; i < end; ++i) {
    for (const ValueId id : program.code[static_cast<std::size_t>(i)].in) touch(id, i);
    for (const ValueId id : program.code[static_cast<std::size_t>(i)].out) touch(id, i);
  }
  for (const ValueId id : program.outputs) touch(id, end);
  return live_ranges;
}

// Gives the output of an in-place op the memory of its input if the input is dead afterwards. Returns the
// owner of each value's memory.
std::vector<ValueId> share_in_place(const Program& program, std::vector<LiveRange>& live_ranges) {
  std::vector<ValueId> owner(program.values.size());
  std::iota(owner.begin(), owner.end(), 0);
  for (std::size_t i = 0; i < program.code.size(); ++i) {
    const Instr& instr = program.code[i];
    const InPlace rule = op_def(instr.op).in_place;
    if (rule.out < 0) continue;
    const ValueId in = instr.in[static_cast<std::size_t>(rule.in)];
    const ValueId out = instr.out[static_cast<std::size_t>(rule.out)];
    // A value that is given twice, is an input of the program or is read later keeps its own memory.
    if (in == kNoValue ||
        (program.value(in).kind != ValueKind::activation && program.value(in).kind != ValueKind::host) ||
        program.value(in).bytes() != program.value(out).bytes() ||
        program.value(out).kind != program.value(in).kind ||
        std::count(instr.in.begin(), instr.in.end(), in) != 1)
      continue;
    const ValueId root = owner[static_cast<std::size_t>(in)];
    if (live_ranges[static_cast<std::size_t>(root)].last != static_cast<int>(i)) continue;
    live_ranges[static_cast<std::size_t>(root)].last = live_ranges[static_cast<std::size_t>(out)].last;
    live_ranges[static_cast<std::size_t>(out)] = {};
    owner[static_cast<std::size_t>(out)] = root;
  }
  return owner;
}

struct Placed {
  std::size_t begin, end;  // in the arena
  LiveRange live;
};

/// The values that have an offset, by the time in which they are live. A program of all micro-batches has as
/// many values as instructions, and a search among all of them for each would take minutes. Instructions are
/// divided into spans, on each level twice as long as on the one before; a span lists what is live in it, by
/// offset.
class PlacedValues {
 public:
  explicit PlacedValues(std::size_t instructions) {
    for (int shift = kShortest; levels_.empty() || levels_.back().size() > 1; ++shift)
      levels_.emplace_back((instructions >> shift) + 1);
  }

  void insert(const Placed& placed) {
    for (std::size_t level = 0; level < levels_.size(); ++level)
      for (std::size_t span = span_of(placed.live.first, level); span <= span_of(placed.live.last, level);
           ++span) {
        std::vector<Placed>& values = levels_[level][span];
        values.insert(std::upper_bound(values.begin(), values.end(), placed, starts_before), placed);
      }
  }

  /// The lowest offset at which so many bytes are free during all of `live`.
  std::size_t lowest_gap(const LiveRange& live, std::size_t bytes) const {
    std::size_t level = 0;
    while (span_of(live.last, level) - span_of(live.first, level) > 1) ++level;
    const std::vector<Placed>&first = levels_[level][span_of(live.first, level)],
          &second = levels_[level][span_of(live.last, level)];
    std::size_t at = 0;
    auto a = first.begin(), b = &first == &second ? second.end() : second.begin();
    while (a != first.end() || b != second.end()) {  // both lists are walked as one, by offset
      const bool from_first = b == second.end() || (a != first.end() && starts_before(*a, *b));
      const Placed& other = from_first ? *a++ : *b++;
      if (other.live.last < live.first || live.last < other.live.first) continue;
      if (at + bytes <= other.begin) break;
      at = std::max(at, other.end);
    }
    return at;
  }

 private:
  static constexpr int kShortest = 8;  // 256 instructions

  static bool starts_before(const Placed& a, const Placed& b) { return a.begin < b.begin; }
  static std::size_t span_of(int instruction, std::size_t level) {
    return static_cast<std::size_t>(instruction) >> (static_cast<std::size_t>(kShortest) + level);
  }

  std::vector<std::vector<std::vector<Placed>>> levels_;
};

// Assigns the values of `order` offsets, multiples of `align`, in an arena of their own, and returns its
// size.
std::size_t assign_offsets(const Program& program, const std::vector<LiveRange>& live_ranges,
                           const std::vector<ValueId>& order, std::size_t align,
                           std::vector<std::size_t>& offset) {
  std::size_t arena_bytes = 0;
  PlacedValues placed(program.code.size());
  for (const ValueId id : order) {
    const LiveRange live_range = live_ranges[static_cast<std::size_t>(id)];
    const std::size_t bytes = round_up(program.value(id).bytes(), align);
    const std::size_t at = placed.lowest_gap(live_range, bytes);
    offset[static_cast<std::size_t>(id)] = at;
    arena_bytes = std::max(arena_bytes, at + bytes);
    placed.insert({at, at + bytes, live_range});
  }
  return round_up(arena_bytes, MemoryPlan::kHostAlign);
}

}  // namespace

MemoryPlan plan_memory(const Program& program) {
  std::vector<LiveRange> live_ranges = find_live_ranges(program);
  const std::vector<ValueId> owner = share_in_place(program, live_ranges);

  std::vector<ValueId> on_device, on_host;
  for (std::size_t v = 0; v < live_ranges.size(); ++v)
    if (live_ranges[v].first >= 0 && program.values[v].bytes() > 0)
      (program.values[v].kind == ValueKind::host ? on_host : on_device).push_back(static_cast<ValueId>(v));
  for (std::vector<ValueId>* const order : {&on_device, &on_host})
    std::stable_sort(order->begin(), order->end(), [&](ValueId a, ValueId b) {
      return program.value(a).bytes() > program.value(b).bytes();
    });

  MemoryPlan plan;
  plan.offset.assign(program.values.size(), MemoryPlan::kUnplaced);
  plan.arena_bytes = assign_offsets(program, live_ranges, on_device, MemoryPlan::kAlign, plan.offset);
  plan.host_bytes = assign_offsets(program, live_ranges, on_host, MemoryPlan::kHostAlign, plan.offset);
  for (std::size_t v = 0; v < owner.size(); ++v)
    if (static_cast<std::size_t>(owner[v]) != v)
      plan.offset[v] = plan.offset[static_cast<std::size_t>(owner[v])];
  return plan;
}

}  // namespace strata
