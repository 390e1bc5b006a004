#include "verify_moves.h"

#include <algorithm>
#include <map>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>
#include <strata/runtime/str.h>

// verify() checks for all instructions alike that an operand is written before it is read. The order of a
// value's moves follows from that, as each move reads the output of the previous one.

namespace strata::detail {
namespace {

// The kind of memory that holds an op's output.
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
// A value is offloaded, stored, loaded and fetched, or only offloaded and fetched.
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
          return wrong(id, str("is written by ", op_name(instr.op)));
    }
    for (const auto& [number, move] : moves_)
      if (move.last != Op::fetch_end)
        return wrong(move.made, str("is the last value of move ", number, ", which has no fetch_end"));
    for (const ValueId id : program_.outputs)
      if (in_flight_[at(id)] || left_[at(id)]) return wrong(id, "is an output of the program");
    return {};
  }

 private:
  struct Move {
    Op last = Op::offload_begin;
    ValueId moved = kNoValue, made = kNoValue;  // first input and the output of the last move
  };
  static std::size_t at(ValueId id) { return static_cast<std::size_t>(id); }
  Status wrong(ValueId id, std::string_view what) const {
    return Status::error(Code::internal, str(program_.value(id).name, " ", what));
  }

  Status check_operands(const Instr& instr) const {
    for (const ValueId id : instr.in) {
      if (id == kNoValue) continue;
      const bool offloaded = is_offloaded(program_.value(id).kind);
      if (left_[at(id)]) return wrong(id, str("is read by ", op_name(instr.op), " after it was moved"));
      if ((in_flight_[at(id)] && !is_end(instr.op)) || (offloaded && !is_move(instr.op)))
        return wrong(id, str("is read by ", op_name(instr.op),
                             offloaded ? " while it is offloaded" : " while it is in flight"));
    }
    return {};
  }

  // Checks that a move continues where the previous move of its number ended.
  Status follow(const Instr& instr) {
    const std::int32_t number = instr.attrs.as<MoveAttrs>().number;
    Move& move = moves_[number];
    const bool first = move.made == kNoValue;
    bool fits = first == (instr.op == Op::offload_begin) && (first || may_follow(instr.op, move.last));
    if (fits && is_end(instr.op)) {
      const bool out = is_outbound(instr.op);
      fits = instr.in[0] == (out ? move.moved : move.made) && instr.in[1] == (out ? move.made : move.moved);
    } else if (fits && !first) {
      fits = instr.in[0] == move.made;
    }
    if (!fits) return wrong(instr.in[0], str("does not continue move ", number));
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
