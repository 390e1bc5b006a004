#include <algorithm>
#include <numeric>
#include <optional>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>
#include <strata/graph/passes.h>

// The time at which each instruction runs is estimated from the rates, and the copies of each direction are
// scheduled one after the other along that time line: offloads in the order in which their values are
// produced, each as early as possible; fetches in the order in which they are needed, each as late as
// possible.

namespace strata {
namespace {

// A value that is not read between two instructions for so long that it may be offloaded in between.
struct OffloadCandidate {
  ValueId value = kNoValue;
  // The instruction that produces it, and its last reader before the gap.
  std::size_t producer = 0, last_reader = 0;
  std::size_t next_reader = 0;  // its first reader after the gap
  double idle_seconds = 0;      // from last_reader to next_reader
  // Its device memory is free after instruction freed_after and allocated again before instruction
  // needed_before.
  std::size_t freed_after = 0, needed_before = 0;
};

// A pair of tiers, with the ops of the moves between them and the rate of the link.
struct TransferPath {
  ValueKind from, to;
  Op out_begin, out_end, back_begin, back_end;
  double bytes_per_s;
  std::size_t MemoryPlan::*source_arena_bytes;  // the arena that shrinks
};
TransferPath to_host(const OffloadOptions& options) {
  return {ValueKind::activation, ValueKind::host, Op::offload_begin,        Op::offload_end,
          Op::fetch_begin,       Op::fetch_end,   options.link_bytes_per_s, &MemoryPlan::arena_bytes};
}
TransferPath to_store(const OffloadOptions& options) {
  return {ValueKind::host, ValueKind::stored, Op::store_begin,           Op::store_end,
          Op::load_begin,  Op::load_end,      options.store_bytes_per_s, &MemoryPlan::host_bytes};
}

class Offload {
 public:
  Offload(Program program, const OffloadOptions& options, const TransferPath& path)
      : program_(std::move(program)), options_(options), path_(path), ends_s_(program_.code.size(), 0) {
    double now = 0;
    for (std::size_t i = 0; i < program_.code.size(); ++i) {
      const Instr& instr = program_.code[i];
      const bool same = i > 0 && instr.region == program_.code[i - 1].region &&
                        instr.backward == program_.code[i - 1].backward;
      if (!same) segment_begin_.push_back(i);
      segment_of_.push_back(segment_begin_.size() - 1);
      ends_s_[i] = now += seconds_of(instr);
    }
    segment_begin_.push_back(program_.code.size());
  }

  // Copies get the time that they take only if that does not hold more memory than one segment per copy does.
  Program run() && {
    std::vector<OffloadCandidate> chosen = choose(find_candidates());
    if (chosen.empty()) return std::move(program_);
    Program waiting = with_moves(chosen);
    if (!hide_whole_transfers(chosen)) return waiting;
    Program hidden = with_moves(chosen);
    return plan_memory(hidden).*path_.source_arena_bytes <= plan_memory(waiting).*path_.source_arena_bytes
               ? hidden
               : waiting;
  }

 private:
  static std::size_t at(ValueId id) { return static_cast<std::size_t>(id); }
  double bytes_of(ValueId id) const { return static_cast<double>(program_.value(id).bytes()); }
  double link_seconds(const OffloadCandidate& candidate) const {
    return bytes_of(candidate.value) / path_.bytes_per_s;
  }
  double starts_s(std::size_t i) const { return i == 0 ? 0 : ends_s_[i - 1]; }

  double seconds_of(const Instr& instr) const {
    if (is_move(instr.op)) return 0;
    double bytes = 0;
    for (const auto* list : {&instr.in, &instr.out})
      for (const ValueId id : *list)
        if (id != kNoValue) bytes += bytes_of(id);
    // A workspace is reserved memory that causes hardly any traffic.
    if (instr.attrs.has_gemm_workspace()) bytes -= bytes_of(instr.out.back());
    return std::max(flops(program_, instr) / options_.flops_per_s, bytes / options_.memory_bytes_per_s);
  }

  // Finds for every value the longest gap during which it may be offloaded.
  std::vector<OffloadCandidate> find_candidates() const {
    std::vector<std::optional<OffloadCandidate>> longest(program_.values.size());
    std::vector<std::size_t> made(program_.values.size()), touched(program_.values.size());
    std::vector<bool> stays(program_.values.size(), true);
    std::vector<int> sending(program_.values.size());
    const auto touch = [&](ValueId id, std::size_t i) {
      if (id == kNoValue || stays[at(id)]) return;
      OffloadCandidate candidate{
          id, made[at(id)], touched[at(id)], i, starts_s(i) - ends_s_[touched[at(id)]], 0, 0};
      touched[at(id)] = i;
      if (sending[at(id)] > 0) return;  // until it has left
      hide_under_one_segment(candidate);
      if (is_long(candidate) && (!longest[at(id)] || candidate.idle_seconds > longest[at(id)]->idle_seconds))
        longest[at(id)] = candidate;
    };
    for (std::size_t i = 0; i < program_.code.size(); ++i) {
      for (const ValueId id : program_.code[i].in) touch(id, i);
      if (program_.code[i].op == Op::send_begin) ++sending[at(program_.code[i].in[0])];
      if (program_.code[i].op == Op::send_end) --sending[at(program_.code[i].in[1])];
      for (const ValueId id : program_.code[i].out) {
        stays[at(id)] = !may_offload(program_.code[i].op, program_.value(id));
        made[at(id)] = touched[at(id)] = i;
      }
    }
    for (const ValueId id : program_.outputs) longest[at(id)].reset();
    std::vector<OffloadCandidate> found;
    for (const std::optional<OffloadCandidate>& candidate : longest)
      if (candidate) found.push_back(*candidate);
    return found;
  }

  // Any instruction's result may be offloaded, once it is there. Of the results of moves only that of an
  // offload_end may, one tier farther.
  bool may_offload(Op maker, const ValueInfo& info) const {
    const bool moves = is_move(maker) && maker != Op::offload_end;
    return info.kind == path_.from && info.bytes() > 0 && !moves && maker != Op::receive_begin;
  }
  // At least two whole segments: around the turn from forward to backward, a shorter gap frees memory that
  // nothing needs.
  bool is_long(const OffloadCandidate& candidate) const {
    return candidate.freed_after < candidate.needed_before &&
           segment_of_[candidate.freed_after] + 2 < segment_of_[candidate.needed_before];
  }

  // Chooses those with the longest gaps, up to the requested share of the bytes.
  std::vector<OffloadCandidate> choose(std::vector<OffloadCandidate> found) const {
    constexpr double kSmall = 1.0 / 16;
    double largest = 0, total = 0, taken = 0;
    for (const OffloadCandidate& candidate : found) largest = std::max(largest, bytes_of(candidate.value));
    std::erase_if(found, [&](const OffloadCandidate& a) { return bytes_of(a.value) < kSmall * largest; });
    for (const OffloadCandidate& candidate : found) total += bytes_of(candidate.value);
    std::stable_sort(found.begin(), found.end(), [](const OffloadCandidate& a, const OffloadCandidate& b) {
      return a.idle_seconds > b.idle_seconds;
    });
    std::size_t n = 0;
    while (n < found.size() && taken < options_.share * total) taken += bytes_of(found[n++].value);
    found.resize(n);
    return found;
  }

  // Lets the copy to the host run at least through the segment after its producer's, and the copy back at
  // least through the segment before its reader's.
  void hide_under_one_segment(OffloadCandidate& candidate) const {
    const std::size_t after = std::min(segment_of_[candidate.producer] + 2, segment_begin_.size() - 1);
    candidate.freed_after = std::max(candidate.last_reader, segment_begin_[after] - 1);
    const std::size_t reader = segment_of_[candidate.next_reader];
    candidate.needed_before = segment_begin_[reader == 0 ? 0 : reader - 1];
  }

  // Gives copies the time that they take one after the other, where that is longer. Returns false if a gap is
  // too short for it.
  bool hide_whole_transfers(std::vector<OffloadCandidate>& chosen) const {
    double link_free_s = 0;
    std::sort(chosen.begin(), chosen.end(), [](const OffloadCandidate& a, const OffloadCandidate& b) {
      return a.producer != b.producer ? a.producer < b.producer : a.value < b.value;
    });
    for (OffloadCandidate& candidate : chosen) {
      link_free_s = std::max(link_free_s, ends_s_[candidate.producer]) + link_seconds(candidate);
      const auto done = std::lower_bound(ends_s_.begin(), ends_s_.end(), link_free_s);
      candidate.freed_after =
          std::max(candidate.freed_after, static_cast<std::size_t>(done - ends_s_.begin()));
    }
    std::sort(chosen.begin(), chosen.end(), [](const OffloadCandidate& a, const OffloadCandidate& b) {
      return a.next_reader != b.next_reader ? a.next_reader > b.next_reader : a.value > b.value;
    });
    link_free_s = ends_s_.back();
    for (OffloadCandidate& candidate : chosen) {
      link_free_s = std::min(link_free_s, starts_s(candidate.next_reader)) - link_seconds(candidate);
      // The first instruction that starts after that.
      const auto late = std::upper_bound(ends_s_.begin(), ends_s_.end(), link_free_s);
      candidate.needed_before =
          std::min(candidate.needed_before, static_cast<std::size_t>(late - ends_s_.begin()));
    }
    return std::all_of(chosen.begin(), chosen.end(), [](const OffloadCandidate& candidate) {
      return candidate.freed_after + 1 < candidate.needed_before;
    });
  }

  // Inserts the moves; readers from `next_reader` on read the fetched value.
  Program with_moves(std::vector<OffloadCandidate> chosen) const {
    std::sort(chosen.begin(), chosen.end(), [](const OffloadCandidate& a, const OffloadCandidate& b) {
      return a.next_reader != b.next_reader ? a.next_reader < b.next_reader : a.value < b.value;
    });
    Program program = program_;
    std::vector<Placed> moves;
    std::vector<ValueId> now(program_.values.size());  // the value that the readers of each value now read
    std::iota(now.begin(), now.end(), 0);
    for (const OffloadCandidate& candidate : chosen) add_moves(candidate, program, moves);
    std::stable_sort(moves.begin(), moves.end(),
                     [](const Placed& a, const Placed& b) { return a.place < b.place; });
    program.code.clear();
    auto next = moves.begin();
    for (std::size_t i = 0; i < program_.code.size(); ++i) {
      const auto put_up_to = [&](std::size_t place) {
        for (; next != moves.end() && next->place <= place; ++next) {
          if (next->instr.op == path_.back_end) now[at(next->value)] = next->instr.out[0];
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

  // Sort key of a move's place. At the same place, begins go before ends, which wait.
  enum Side : std::size_t { kBefore, kAfter };
  enum Kind : std::size_t { kBegins, kWaits };
  static std::size_t place_of(std::size_t i, Side side, Kind kind) { return 4 * i + 2 * side + kind; }
  struct Placed {
    std::size_t place = 0;
    ValueId value = kNoValue;  // the value that moves
    Instr instr;
  };

  void add_moves(const OffloadCandidate& candidate, Program& program, std::vector<Placed>& moves) const {
    const ValueId x = candidate.value;
    const Instr& maker = program_.code[candidate.producer];
    // A value that moves farther keeps its number.
    const MoveAttrs attrs = {is_move(maker.op) ? maker.attrs.as<MoveAttrs>().number
                                               : static_cast<std::int32_t>(moves.size() / 4)};
    const auto add = [&](Op op, std::vector<ValueId> in, const char* suffix, std::size_t beside, Side side,
                         Kind kind) {
      ValueInfo info = program_.value(x);
      info.name += suffix;
      info.kind = op == path_.out_begin || op == path_.out_end ? path_.to : path_.from;
      const ValueId out = program.add_value(std::move(info));
      const Instr& neighbour = program_.code[beside];
      moves.push_back({place_of(beside, side, kind),
                       x,
                       {op, std::move(in), {out}, attrs, 0, neighbour.region, neighbour.backward}});
      return out;
    };
    const ValueId offloading = add(path_.out_begin, {x}, ".offloading", candidate.producer, kAfter, kBegins);
    const ValueId offloaded =
        add(path_.out_end, {x, offloading}, ".offloaded", candidate.freed_after, kAfter, kWaits);
    const ValueId fetching =
        add(path_.back_begin, {offloaded}, ".fetching", candidate.needed_before, kBefore, kBegins);
    add(path_.back_end, {fetching, offloaded}, ".fetched", candidate.next_reader, kBefore, kWaits);
  }

  Program program_;
  const OffloadOptions options_;
  const TransferPath path_;
  std::vector<double> ends_s_;           // end time of every instruction, from the beginning of the program
  std::vector<std::size_t> segment_of_;  // the index of each instruction's segment
  std::vector<std::size_t> segment_begin_;  // first instruction of each segment, then the end of the program
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
