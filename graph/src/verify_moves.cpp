#include "verify_moves.h"

#include <algorithm>
#include <map>

#include <strata/graph/ops.h>
#include <strata/runtime/str.h>

// That an operand is written before it is read is checked for all instructions alike, so the order of a
// value's moves follows from each reading what the one before it makes.

namespace strata::detail {
namespace {

class MoveCheck {
 public:
  explicit MoveCheck(const Program& program)
      : program_(program), in_flight_(program.values.size(), false), left_(program.values.size(), false) {}

  Status run() {
    for (const Instr& instr : program_.code) {
      STRATA_TRY(check_operands(instr));
      if (is_move(instr.op)) STRATA_TRY(follow(instr));
      for (const ValueId id : instr.out)
        if ((program_.value(id).kind == ValueKind::host) !=
            (instr.op == Op::offload_begin || instr.op == Op::offload_end))
          return wrong(id, str("is made by ", op_def(instr.op).name));
    }
    for (const auto& [move, state] : moves_)
      if (state.last != Op::fetch_end)
        return wrong(state.made, str("is the end of move ", move, ", which has no fetch_end"));
    for (const ValueId id : program_.outputs)
      if (in_flight_[at(id)] || left_[at(id)]) return wrong(id, "is an output of the program");
    return {};
  }

 private:
  struct Move {
    Op last = Op::offload_begin;
    ValueId moved = kNoValue, made = kNoValue;  // its first operand, and its output
    ValueId host = kNoValue;                    // of the offload_end
  };
  static std::size_t at(ValueId id) { return static_cast<std::size_t>(id); }
  Status wrong(ValueId id, std::string_view what) const {
    return Status::error(Code::internal, str(program_.value(id).name, " ", what));
  }

  Status check_operands(const Instr& instr) const {
    const bool ends = instr.op == Op::offload_end || instr.op == Op::fetch_end;
    for (const ValueId id : instr.in) {
      if (id == kNoValue) continue;
      const bool host = program_.value(id).kind == ValueKind::host;
      if (left_[at(id)]) return wrong(id, str("is read by ", op_def(instr.op).name, " after it has left"));
      if ((in_flight_[at(id)] && !ends) || (host && !is_move(instr.op)))
        return wrong(id, str("is read by ", op_def(instr.op).name, host ? " on the host" : " on its way"));
    }
    return {};
  }

  // Each move goes on with what the one before it left.
  Status follow(const Instr& instr) {
    Move& move = moves_[instr.attrs.move];
    const bool first = move.made == kNoValue;
    const bool fits =
        instr.op == Op::offload_begin ? first
        : instr.op == Op::offload_end ? !first && move.last == Op::offload_begin &&
                                            instr.in[0] == move.moved && instr.in[1] == move.made
        : instr.op == Op::fetch_begin
            ? !first && move.last == Op::offload_end && instr.in[0] == move.made
            : !first && move.last == Op::fetch_begin && instr.in[0] == move.made && instr.in[1] == move.host;
    if (!fits) return wrong(instr.in[0], str("does not go on with move ", instr.attrs.move));
    const bool begins = instr.op == Op::offload_begin || instr.op == Op::fetch_begin;
    in_flight_[at(instr.out[0])] = begins;
    if (!begins)
      for (const ValueId id : instr.in) left_[at(id)] = true;
    if (instr.op == Op::offload_end) move.host = instr.out[0];
    move.last = instr.op;
    move.moved = instr.in[0];
    move.made = instr.out[0];
    return {};
  }

  const Program& program_;
  std::vector<bool> in_flight_, left_;
  std::map<std::int32_t, Move> moves_;
};

}  // namespace

Status verify_moves(const Program& program) { return MoveCheck(program).run(); }

}  // namespace strata::detail
