#include "verify_moves.h"

#include <algorithm>
#include <map>

#include <strata/graph/ops.h>
#include <strata/runtime/str.h>

// That an operand is written before it is read is checked for all instructions alike, so the order of a
// value's moves follows from each reading what the one before it makes.

namespace strata::detail {
namespace {

// Where an op's result lies.
ValueKind output_kind(Op op) {
  switch (op) {
    case Op::offload_begin:
    case Op::offload_end:
    case Op::load_begin:
    case Op::load_end:
      return ValueKind::host;
    case Op::store_begin:
    case Op::store_end:
      return ValueKind::stored;
    default:
      return ValueKind::activation;
  }
}
bool is_offloaded(ValueKind kind) { return kind == ValueKind::host || kind == ValueKind::stored; }
bool is_end(Op op) {
  return op == Op::offload_end || op == Op::store_end || op == Op::load_end || op == Op::fetch_end;
}
bool is_outbound(Op op) { return op >= Op::offload_begin && op <= Op::store_end; }
// A value goes out, farther, back again and home, or out and home.
bool may_follow(Op op, Op last) {
  return op == static_cast<Op>(static_cast<int>(last) + 1) ||
         (op == Op::fetch_begin && last == Op::offload_end);
}

class MoveCheck {
 public:
  explicit MoveCheck(const Program& program)
      : program_(program), in_flight_(program.values.size(), false), left_(program.values.size(), false) {}

  Status run() {
    for (const Instr& instr : program_.code) {
      STRATA_TRY(check_operands(instr));
      if (is_move(instr.op)) STRATA_TRY(follow(instr));
      for (const ValueId id : instr.out)
        if (const ValueKind kind = program_.value(id).kind;
            (is_offloaded(kind) || is_offloaded(output_kind(instr.op))) && kind != output_kind(instr.op))
          return wrong(id, str("is made by ", op_def(instr.op).name));
    }
    for (const auto& [number, move] : moves_)
      if (move.last != Op::fetch_end)
        return wrong(move.made, str("is the end of move ", number, ", which has no fetch_end"));
    for (const ValueId id : program_.outputs)
      if (in_flight_[at(id)] || left_[at(id)]) return wrong(id, "is an output of the program");
    return {};
  }

 private:
  struct Move {
    Op last = Op::offload_begin;
    ValueId moved = kNoValue, made = kNoValue;  // what the last begin read, and what the last of them made
  };
  static std::size_t at(ValueId id) { return static_cast<std::size_t>(id); }
  Status wrong(ValueId id, std::string_view what) const {
    return Status::error(Code::internal, str(program_.value(id).name, " ", what));
  }

  Status check_operands(const Instr& instr) const {
    for (const ValueId id : instr.in) {
      if (id == kNoValue) continue;
      const bool offloaded = is_offloaded(program_.value(id).kind);
      if (left_[at(id)]) return wrong(id, str("is read by ", op_def(instr.op).name, " after it has left"));
      if ((in_flight_[at(id)] && !is_end(instr.op)) || (offloaded && !is_move(instr.op)))
        return wrong(
            id, str("is read by ", op_def(instr.op).name, offloaded ? " while it is away" : " on its way"));
    }
    return {};
  }

  // Each move goes on with what the one before it left.
  Status follow(const Instr& instr) {
    Move& move = moves_[instr.attrs.move];
    const bool first = move.made == kNoValue;
    bool fits = first == (instr.op == Op::offload_begin) && (first || may_follow(instr.op, move.last));
    if (fits && is_end(instr.op)) {
      const bool out = is_outbound(instr.op);
      fits = instr.in[0] == (out ? move.moved : move.made) && instr.in[1] == (out ? move.made : move.moved);
    } else if (fits && !first) {
      fits = instr.in[0] == move.made;
    }
    if (!fits) return wrong(instr.in[0], str("does not go on with move ", instr.attrs.move));
    in_flight_[at(instr.out[0])] = !is_end(instr.op);
    if (is_end(instr.op))
      for (const ValueId id : instr.in) left_[at(id)] = true;
    move = {instr.op, instr.in[0], instr.out[0]};
    return {};
  }

  const Program& program_;
  std::vector<bool> in_flight_, left_;
  std::map<std::int32_t, Move> moves_;
};

}  // namespace

Status verify_moves(const Program& program) { return MoveCheck(program).run(); }

}  // namespace strata::detail
