#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/passes.h>
#include <strata/runtime/str.h>

#include "program_edits.h"

namespace strata {
namespace {

using detail::add_param;
using detail::append;

/// Rows of a matrix, and the parameters that stand for them.
struct Replaced {
  const TokenRows* of = nullptr;
  ValueId weight = kNoValue, rows = kNoValue, rows0 = kNoValue, columns = kNoValue;
};

bool is_read_by(const Program& program, ValueId param, std::initializer_list<Op> ops) {
  return std::any_of(program.code.begin(), program.code.end(), [&](const Instr& instr) {
    return std::find(ops.begin(), ops.end(), instr.op) != ops.end() && instr.in[1] == param;
  });
}

std::string problems_of(const Program& program, const TokenRows& rows) {
  const ParamInfo* const param = detail::find_param(program, rows.weight);
  if (param == nullptr) return str("\n  ", rows.weight, " is no parameter");
  const bool is_table = is_read_by(program, param->value, {Op::embedding});
  const bool is_head =
      is_read_by(program, param->value, {Op::linear, Op::linear_cross_entropy, Op::linear_log_probs});
  if (param->shape.rank != 2 || !(rows.in_embedding ? is_table : is_head))
    return str("\n  ", rows.weight, " ", to_string(param->shape), " is not ",
               rows.in_embedding ? "a table of embeddings" : "the head");
  std::string problems;
  if (rows.tokens.empty()) problems += str("\n  ", rows.weight, ": no token is named");
  std::set<std::int64_t> seen;
  for (const std::int64_t token : rows.tokens) {
    if (token < 0 || token >= param->shape.dim(0))
      problems += str("\n  ", rows.weight, " has rows 0 to ", param->shape.dim(0) - 1, ", not ", token);
    if (!seen.insert(token).second)
      problems += str("\n  ", rows.weight, ": token ", token, " is named twice");
  }
  return problems;
}

/// Refuses what reads the head, but not as logits.
Status check_head(const Program& program, const TokenRows& rows) {
  const ValueId value = detail::find_param(program, rows.weight)->value;
  for (const Instr& instr : program.code)
    if (rows.in_head && std::find(instr.in.begin(), instr.in.end(), value) != instr.in.end() &&
        instr.op != Op::embedding && instr.op != Op::linear && instr.op != Op::linear_cross_entropy)
      return Status::error(Code::unsupported,
                           str("tokens of ", rows.weight, ", the head: a loss by ", op_name(instr.op),
                               " has no logits in which their columns could be replaced"));
  return {};
}

/// Adds the parameters of the rows; those that are trained come before the constants.
Replaced add_params(Program& program, const TokenRows& rows) {
  const ParamInfo base = *detail::find_param(program, rows.weight);
  const DType dtype = program.value(base.value).dtype;
  const auto n = static_cast<std::int64_t>(rows.tokens.size());
  const Shape shape = {n, base.shape.dim(1)};
  const Init copy = {.picked = {rows.weight, rows.tokens, base.shape.dim(1)}};
  Replaced made{&rows, base.value, add_param(program, rows.rows(), shape, dtype, copy)};
  const auto constant = [&](const char* what, const Shape& of, Init init) {
    init.is_constant = true;
    const ValueId value = add_param(program, rows.name + what, of, dtype, init);
    program.params.back().trainable = false;
    return value;
  };
  made.rows0 = constant(".token_rows0", shape, copy);
  made.columns = constant(".token_columns", {base.shape.dim(0), n}, {.one_hot = rows.tokens});
  return made;
}

/// Copies a program with other rows.
class Replacer {
 public:
  Replacer(Program& program, const std::vector<Replaced>& all) : program_(program), all_(all) {}

  Status run() {
    std::vector<Instr> code;
    code.swap(program_.code);
    for (Instr& instr : code) {
      now_.apply(instr.in);
      if (instr.op == Op::linear_cross_entropy && reads(instr)) {
        STRATA_TRY_ASSIGN(const Instr head,
                          detail::append_logits(program_, instr, str("tokens of ", name_of(instr.in[1]))));
        replace_columns(head);
        detail::append_loss(program_, instr, now_.current(head.out[0]), now_);
        continue;
      }
      program_.code.push_back(std::move(instr));
      const Instr done = program_.code.back();
      if (done.op == Op::embedding) replace_rows(done);
      if (done.op == Op::linear) replace_columns(done);
    }
    detail::replace_outputs(program_, now_);
    return {};
  }

 private:
  const std::string& name_of(ValueId id) const { return program_.value(id).name; }
  bool reads(const Instr& head) const {
    return std::any_of(all_.begin(), all_.end(), [&](const Replaced& replaced) {
      return replaced.of->in_head && replaced.weight == head.in[1];
    });
  }
  ValueId add(const Instr& of, Op op, std::vector<ValueId> in, const Attrs& attrs = NoAttrs{}) {
    return append(program_, of, op, std::move(in), attrs);
  }
  void replace_rows(const Instr& done) {
    for (const Replaced& replaced : all_) {
      if (!replaced.of->in_embedding || replaced.weight != done.in[1]) continue;
      const ValueId chosen = add(done, Op::embedding, {done.in[0], replaced.columns}, done.attrs);
      const ValueId minus = add(done, Op::scale, {chosen}, ScaleAttrs{-1});
      const ValueId was = add(done, Op::linear_backward_input, {minus, replaced.rows0}, LinearAttrs{});
      const ValueId is = add(done, Op::linear_backward_input, {chosen, replaced.rows}, LinearAttrs{});
      const ValueId others = add(done, Op::add, {now_.current(done.out[0]), was});
      now_.replace(done.out[0], add(done, Op::add, {others, is}));
    }
  }
  void replace_columns(const Instr& done) {
    for (const Replaced& replaced : all_) {
      if (!replaced.of->in_head || replaced.weight != done.in[1]) continue;
      const auto product = [&](ValueId rows) {
        return add(done, Op::linear, {done.in[0], rows, kNoValue}, LinearAttrs{});
      };
      const ValueId is = product(replaced.rows);
      const ValueId minus = add(done, Op::scale, {product(replaced.rows0)}, ScaleAttrs{-1});
      const ValueId change = add(done, Op::add, {is, minus});
      const ValueId spread = add(done, Op::linear, {change, replaced.columns, kNoValue}, done.attrs);
      now_.replace(done.out[0], add(done, Op::add, {now_.current(done.out[0]), spread}));
    }
  }

  Program& program_;
  const std::vector<Replaced>& all_;
  detail::Replacements now_;
};

}  // namespace

Result<Program> add_token_rows(Program program, std::span<const TokenRows> rows) {
  std::string problems;
  for (const TokenRows& each : rows) problems += problems_of(program, each);
  if (!problems.empty())
    return Status::error(Code::invalid, str("rows of tokens cannot be trained:", problems));
  for (const TokenRows& each : rows) STRATA_TRY(check_head(program, each));
  std::vector<Replaced> all;
  for (const TokenRows& each : rows) all.push_back(add_params(program, each));
  STRATA_TRY(Replacer(program, all).run());
  STRATA_TRY(verify(program));
  return program;
}

}  // namespace strata
