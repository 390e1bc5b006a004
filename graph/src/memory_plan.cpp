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

// Assigns the values of `order` offsets, multiples of `align`, in an arena of their own, and returns its
// size.
std::size_t assign_offsets(const Program& program, const std::vector<LiveRange>& live_ranges,
                           const std::vector<ValueId>& order, std::size_t align,
                           std::vector<std::size_t>& offset) {
  std::size_t arena_bytes = 0;
  struct Placed {
    std::size_t begin, end;
    LiveRange live;
  };
  std::vector<Placed> placed;  // sorted by offset; what is searched most is kept together
  for (const ValueId id : order) {
    const LiveRange live_range = live_ranges[static_cast<std::size_t>(id)];
    const std::size_t bytes = round_up(program.value(id).bytes(), align);
    std::size_t at = 0;
    for (const Placed& other : placed) {  // finds the lowest gap between values live at the same time
      if (other.live.last < live_range.first || live_range.last < other.live.first) continue;
      if (at + bytes <= other.begin) break;
      at = std::max(at, other.end);
    }
    offset[static_cast<std::size_t>(id)] = at;
    arena_bytes = std::max(arena_bytes, at + bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), at,
                                   [](std::size_t offset_of_new, const Placed& other) {
                                     return offset_of_new < other.begin;
                                   }),
                  {at, at + bytes, live_range});
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
