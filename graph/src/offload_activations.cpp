#include <algorithm>
#include <numeric>
#include <optional>

#include <strata/graph/ops.h>
#include <strata/graph/passes.h>

// When each instruction runs is estimated from the rates, and the copies of one direction are laid one after
// the other beside that. Forward's are taken in the order in which their values are made, each as early as it
// can; backward's in the order in which they are needed, each as late as it may.

namespace strata {
namespace {

// A value that is not read between two instructions for so long that it may be away meanwhile.
struct Absence {
  ValueId value = kNoValue;
  std::size_t made = 0, last = 0;  // instructions: its maker, and its last reader before
  std::size_t next = 0;            // its first reader after
  double seconds = 0;              // from last to next
  // After which the device's bytes are free again, and before which they are taken anew.
  std::size_t gone = 0, back = 0;
};

// From one tier to the next and back.
struct Way {
  ValueKind from, to;
  Op out_begin, out_end, back_begin, back_end;
  double bytes_per_s;
  std::size_t MemoryPlan::*held;  // what shrinks by it
};
Way to_host(const OffloadOptions& options) {
  return {ValueKind::activation, ValueKind::host, Op::offload_begin,        Op::offload_end,
          Op::fetch_begin,       Op::fetch_end,   options.link_bytes_per_s, &MemoryPlan::arena_bytes};
}
Way to_store(const OffloadOptions& options) {
  return {ValueKind::host, ValueKind::stored, Op::store_begin,           Op::store_end,
          Op::load_begin,  Op::load_end,      options.store_bytes_per_s, &MemoryPlan::host_bytes};
}

class Offload {
 public:
  Offload(Program program, const OffloadOptions& options, const Way& way)
      : program_(std::move(program)), options_(options), way_(way), ends_s_(program_.code.size(), 0) {
    double now = 0;
    for (std::size_t i = 0; i < program_.code.size(); ++i) {
      const Instr& instr = program_.code[i];
      const bool same = i > 0 && instr.region == program_.code[i - 1].region &&
                        instr.backward == program_.code[i - 1].backward;
      if (!same) stretch_begin_.push_back(i);
      stretch_.push_back(stretch_begin_.size() - 1);
      ends_s_[i] = now += seconds_of(instr);
    }
    stretch_begin_.push_back(program_.code.size());
  }

  // Copies get the time they take only where no memory is held longer for it than a stretch costs.
  Program run() && {
    std::vector<Absence> chosen = choose(absences());
    if (chosen.empty()) return std::move(program_);
    Program waiting = with_moves(chosen);
    if (!give_time(chosen)) return waiting;
    Program hidden = with_moves(chosen);
    return plan_memory(hidden).*way_.held <= plan_memory(waiting).*way_.held ? hidden : waiting;
  }

 private:
  static std::size_t at(ValueId id) { return static_cast<std::size_t>(id); }
  double bytes_of(ValueId id) const { return static_cast<double>(program_.value(id).bytes()); }
  double link_seconds(const Absence& absence) const { return bytes_of(absence.value) / way_.bytes_per_s; }
  double starts_s(std::size_t i) const { return i == 0 ? 0 : ends_s_[i - 1]; }

  double seconds_of(const Instr& instr) const {
    if (is_move(instr.op)) return 0;
    double bytes = 0;
    for (const auto* list : {&instr.in, &instr.out})
      for (const ValueId id : *list)
        if (id != kNoValue) bytes += bytes_of(id);
    if (instr.attrs.gemm_workspace) bytes -= bytes_of(instr.out.back());  // room, hardly traffic
    return std::max(flops(program_, instr) / options_.flops_per_s, bytes / options_.memory_bytes_per_s);
  }

  // Of every value the longest absence there may be.
  std::vector<Absence> absences() const {
    std::vector<std::optional<Absence>> longest(program_.values.size());
    std::vector<std::size_t> made(program_.values.size()), touched(program_.values.size());
    std::vector<bool> stays(program_.values.size(), true);
    const auto touch = [&](ValueId id, std::size_t i) {
      if (id == kNoValue || stays[at(id)]) return;
      Absence absence{id, made[at(id)], touched[at(id)], i, starts_s(i) - ends_s_[touched[at(id)]], 0, 0};
      touched[at(id)] = i;
      give_one_stretch(absence);
      if (is_long(absence) && (!longest[at(id)] || absence.seconds > longest[at(id)]->seconds))
        longest[at(id)] = absence;
    };
    for (std::size_t i = 0; i < program_.code.size(); ++i) {
      for (const ValueId id : program_.code[i].in) touch(id, i);
      for (const ValueId id : program_.code[i].out) {
        stays[at(id)] = !may_leave(program_.code[i].op, program_.value(id));
        made[at(id)] = touched[at(id)] = i;
      }
    }
    for (const ValueId id : program_.outputs) longest[at(id)].reset();
    std::vector<Absence> found;
    for (const std::optional<Absence>& absence : longest)
      if (absence) found.push_back(*absence);
    return found;
  }

  // A move's result at rest is what may go farther; what other instructions make is.
  bool may_leave(Op maker, const ValueInfo& info) const {
    return info.kind == way_.from && info.bytes() > 0 && (!is_move(maker) || maker == Op::offload_end);
  }
  // Two whole stretches at least: where forward turns into backward nothing has to make room for less.
  bool is_long(const Absence& absence) const {
    return absence.gone < absence.back && stretch_[absence.gone] + 2 < stretch_[absence.back];
  }

  // Those longest away, until they are the share of the bytes that is asked for.
  std::vector<Absence> choose(std::vector<Absence> found) const {
    constexpr double kSmall = 1.0 / 16;
    double largest = 0, total = 0, taken = 0;
    for (const Absence& absence : found) largest = std::max(largest, bytes_of(absence.value));
    std::erase_if(found, [&](const Absence& a) { return bytes_of(a.value) < kSmall * largest; });
    for (const Absence& absence : found) total += bytes_of(absence.value);
    std::stable_sort(found.begin(), found.end(),
                     [](const Absence& a, const Absence& b) { return a.seconds > b.seconds; });
    std::size_t n = 0;
    while (n < found.size() && taken < options_.share * total) taken += bytes_of(found[n++].value);
    found.resize(n);
    return found;
  }

  // The copy to the host runs at least through the stretch after its maker's, the copy back through the one
  // before its reader's.
  void give_one_stretch(Absence& absence) const {
    const std::size_t after = std::min(stretch_[absence.made] + 2, stretch_begin_.size() - 1);
    absence.gone = std::max(absence.last, stretch_begin_[after] - 1);
    const std::size_t reader = stretch_[absence.next];
    absence.back = stretch_begin_[reader == 0 ? 0 : reader - 1];
  }

  // As long as the copies take one after the other, where that is longer. False where there is no such time.
  bool give_time(std::vector<Absence>& chosen) const {
    double lane_free = 0;
    std::sort(chosen.begin(), chosen.end(), [](const Absence& a, const Absence& b) {
      return a.made != b.made ? a.made < b.made : a.value < b.value;
    });
    for (Absence& absence : chosen) {
      lane_free = std::max(lane_free, ends_s_[absence.made]) + link_seconds(absence);
      const auto done = std::lower_bound(ends_s_.begin(), ends_s_.end(), lane_free);
      absence.gone = std::max(absence.gone, static_cast<std::size_t>(done - ends_s_.begin()));
    }
    std::sort(chosen.begin(), chosen.end(), [](const Absence& a, const Absence& b) {
      return a.next != b.next ? a.next > b.next : a.value > b.value;
    });
    lane_free = ends_s_.back();
    for (Absence& absence : chosen) {
      lane_free = std::min(lane_free, starts_s(absence.next)) - link_seconds(absence);
      const auto late = std::upper_bound(ends_s_.begin(), ends_s_.end(), lane_free);  // starts after that
      absence.back = std::min(absence.back, static_cast<std::size_t>(late - ends_s_.begin()));
    }
    return std::all_of(chosen.begin(), chosen.end(),
                       [](const Absence& absence) { return absence.gone + 1 < absence.back; });
  }

  // The moves where they belong; readers from `next` on read what has come back.
  Program with_moves(std::vector<Absence> chosen) const {
    std::sort(chosen.begin(), chosen.end(), [](const Absence& a, const Absence& b) {
      return a.next != b.next ? a.next < b.next : a.value < b.value;
    });
    Program program = program_;
    std::vector<Placed> moves;
    std::vector<ValueId> now(program_.values.size());  // by value: what its readers read
    std::iota(now.begin(), now.end(), 0);
    for (const Absence& absence : chosen) add_moves(absence, program, moves);
    std::stable_sort(moves.begin(), moves.end(),
                     [](const Placed& a, const Placed& b) { return a.place < b.place; });
    program.code.clear();
    auto next = moves.begin();
    for (std::size_t i = 0; i < program_.code.size(); ++i) {
      const auto put_up_to = [&](std::size_t place) {
        for (; next != moves.end() && next->place <= place; ++next) {
          if (next->instr.op == way_.back_end) now[at(next->value)] = next->instr.out[0];
          program.code.push_back(std::move(next->instr));
        }
      };
      put_up_to(place_of(i, kBefore, kWaits));
      program.code.push_back(program_.code[i]);
      for (ValueId& id : program.code.back().in)
        if (id != kNoValue) id = now[at(id)];
      put_up_to(place_of(i, kAfter, kWaits));
    }
    return program;
  }

  // Where a move stands: what begins goes before what is waited for at the same place.
  enum Side : std::size_t { kBefore, kAfter };
  enum Kind : std::size_t { kBegins, kWaits };
  static std::size_t place_of(std::size_t i, Side side, Kind kind) { return 4 * i + 2 * side + kind; }
  struct Placed {
    std::size_t place = 0;
    ValueId value = kNoValue;  // that moves
    Instr instr;
  };

  void add_moves(const Absence& absence, Program& program, std::vector<Placed>& moves) const {
    const ValueId x = absence.value;
    const Instr& maker = program_.code[absence.made];
    Attrs attrs;  // a value that goes on keeps its number
    attrs.move = is_move(maker.op) ? maker.attrs.move : static_cast<std::int32_t>(moves.size() / 4);
    const auto add = [&](Op op, std::vector<ValueId> in, const char* suffix, std::size_t beside, Side side,
                         Kind kind) {
      ValueInfo info = program_.value(x);
      info.name += suffix;
      info.kind = op == way_.out_begin || op == way_.out_end ? way_.to : way_.from;
      const ValueId out = program.add_value(std::move(info));
      const Instr& neighbour = program_.code[beside];
      moves.push_back({place_of(beside, side, kind),
                       x,
                       {op, std::move(in), {out}, attrs, 0, neighbour.region, neighbour.backward}});
      return out;
    };
    const ValueId leaving = add(way_.out_begin, {x}, ".leaving", absence.made, kAfter, kBegins);
    const ValueId away = add(way_.out_end, {x, leaving}, ".away", absence.gone, kAfter, kWaits);
    const ValueId returning = add(way_.back_begin, {away}, ".returning", absence.back, kBefore, kBegins);
    add(way_.back_end, {returning, away}, ".back", absence.next, kBefore, kWaits);
  }

  Program program_;
  const OffloadOptions options_;
  const Way way_;
  std::vector<double> ends_s_;              // of every instruction, from the beginning of the program
  std::vector<std::size_t> stretch_;        // by instruction: the stretch of one region that it is in
  std::vector<std::size_t> stretch_begin_;  // and the end of the program
};

}  // namespace

Program offload_activations(Program program, const OffloadOptions& options) {
  if (has_op(program, Op::offload_begin) || !(options.share > 0)) return program;
  return Offload(std::move(program), options, to_host(options)).run();
}

Program store_activations(Program program, const OffloadOptions& options) {
  if (has_op(program, Op::store_begin) || !(options.share > 0)) return program;
  return Offload(std::move(program), options, to_store(options)).run();
}

}  // namespace strata
