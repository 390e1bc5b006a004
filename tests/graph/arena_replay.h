#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>
#include <strata/graph/passes.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

namespace strata::test {

/// Runs the program over a device arena and a host arena that record which value each block of 256 bytes
/// holds.
class ArenaReplay {
 public:
  ArenaReplay(const Program& program, const MemoryPlan& plan)
      : program_(program),
        plan_(plan),
        holds_(plan.arena_bytes / MemoryPlan::kAlign, kNoValue),
        host_(plan.host_bytes / MemoryPlan::kAlign, kNoValue) {}

  /// Returns an empty string, or the first problem.
  std::string run() {
    for (const ValueId id : program_.inputs) write(id);
    for (std::size_t i = 0; i < program_.code.size() && problem_.empty(); ++i) step(i);
    for (const auto* list : {&program_.inputs, &program_.outputs})
      for (const ValueId id : *list) expect_intact(id, "at the end");
    return problem_;
  }

 private:
  void step(std::size_t i) {
    const Instr& instr = program_.code[i];
    const std::string where = str("instruction ", i, " ", op_name(instr.op));
    for (const ValueId id : instr.in) expect_intact(id, where);
    for (std::size_t k = 0; k < instr.out.size(); ++k) {
      for (std::size_t other = 0; other < instr.in.size(); ++other)
        if (overlap(instr.out[k], instr.in[other]) && !may_share(instr, k, other))
          problem_ = str(where, " writes ", program_.value(instr.out[k]).name, " over its operand ", other);
      for (std::size_t other = 0; other < k; ++other)
        if (overlap(instr.out[k], instr.out[other])) problem_ = str(where, " has two outputs in one place");
    }
    for (const ValueId id : instr.out) write(id);
  }
  static bool may_share(const Instr& instr, std::size_t out, std::size_t in) {
    const InPlace rule = op_def(instr.op).in_place;
    return rule.out == static_cast<int>(out) && rule.in == static_cast<int>(in) &&
           std::count(instr.in.begin(), instr.in.end(), instr.in[in]) == 1;
  }
  std::pair<std::size_t, std::size_t> range(ValueId id) const {
    if (id == kNoValue || plan_.offset[static_cast<std::size_t>(id)] == MemoryPlan::kUnplaced) return {0, 0};
    const std::size_t begin = plan_.offset[static_cast<std::size_t>(id)];
    return {begin / MemoryPlan::kAlign,
            (begin + round_up(program_.value(id).bytes(), MemoryPlan::kAlign)) / MemoryPlan::kAlign};
  }
  bool on_host(ValueId id) const { return id != kNoValue && program_.value(id).kind == ValueKind::host; }
  std::vector<ValueId>& arena_of(ValueId id) { return on_host(id) ? host_ : holds_; }
  bool overlap(ValueId a, ValueId b) const {
    if (on_host(a) != on_host(b)) return false;
    const auto [a_begin, a_end] = range(a);
    const auto [b_begin, b_end] = range(b);
    return a_begin < b_end && b_begin < a_end;
  }
  void expect_intact(ValueId id, const std::string& where) {
    const auto [begin, end] = range(id);
    for (std::size_t at = begin; at < end && problem_.empty(); ++at)
      if (arena_of(id).at(at) != id) problem_ = str(where, ": ", program_.value(id).name, " was overwritten");
  }
  void write(ValueId id) {
    const auto [begin, end] = range(id);
    for (std::size_t at = begin; at < end; ++at) arena_of(id).at(at) = id;
  }

  const Program& program_;
  const MemoryPlan& plan_;
  std::vector<ValueId> holds_, host_;
  std::string problem_;
};

/// Returns an empty string, or the first value of the program that is overwritten or has no offset.
inline std::string replay(const Program& program) {
  const MemoryPlan plan = plan_memory(program);
  for (const Instr& instr : program.code)
    for (const auto* list : {&instr.in, &instr.out})
      for (const ValueId id : *list) {
        const bool in_arena = id != kNoValue && program.value(id).kind != ValueKind::param &&
                              program.value(id).kind != ValueKind::grad &&
                              program.value(id).kind != ValueKind::state &&
                              program.value(id).kind != ValueKind::stored;
        if (in_arena && program.value(id).bytes() > 0 &&
            plan.offset[static_cast<std::size_t>(id)] == MemoryPlan::kUnplaced)
          return str(program.value(id).name, " has no place");
      }
  return ArenaReplay(program, plan).run();
}

}  // namespace strata::test
