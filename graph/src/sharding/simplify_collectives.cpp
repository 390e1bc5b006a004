#include <algorithm>
#include <numeric>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>
#include <strata/graph/partition.h>

namespace strata {
namespace {

// The copy of a gradient into the memory of another one is needed.
bool is_needless(const Program& program, const Instr& instr) {
  return op_def(instr.op).is_identity && instr.accumulate == 0 &&
         program.value(instr.out[0]).kind == ValueKind::activation &&
         std::find(program.outputs.begin(), program.outputs.end(), instr.out[0]) == program.outputs.end();
}

Program without_copies(Program program) {
  std::vector<ValueId> same(program.values.size());  // the value that is read instead of each value
  std::iota(same.begin(), same.end(), 0);
  for (const Instr& instr : program.code)
    if (is_needless(program, instr))
      same[static_cast<std::size_t>(instr.out[0])] = same[static_cast<std::size_t>(instr.in[0])];
  std::erase_if(program.code, [&](const Instr& instr) { return is_needless(program, instr); });
  for (Instr& instr : program.code)
    for (ValueId& id : instr.in)
      if (id != kNoValue) id = same[static_cast<std::size_t>(id)];
  return program;
}

/// The number of instructions that read each value.
std::vector<int> readers_of(const Program& program) {
  std::vector<int> readers(program.values.size(), 0);
  for (const Instr& instr : program.code)
    for (const ValueId id : instr.in)
      if (id != kNoValue) ++readers[static_cast<std::size_t>(id)];
  for (const ValueId id : program.outputs) ++readers[static_cast<std::size_t>(id)];
  return readers;
}

Program with_small_sums(Program program) {
  const std::vector<int> readers = readers_of(program);
  std::vector<const Instr*> sum_of(program.values.size(), nullptr);  // the all_reduce that makes a value
  std::vector<bool> is_moved(program.values.size(), false);
  std::vector<Instr> code;
  for (const Instr& instr : program.code)
    if (instr.op == Op::all_reduce && instr.accumulate == 0)
      sum_of[static_cast<std::size_t>(instr.out[0])] = &instr;
  const auto sum_before = [&](const Instr& instr) -> const Instr* {
    if (instr.op != Op::reduce_scatter || instr.accumulate != 0) return nullptr;
    const auto in = static_cast<std::size_t>(instr.in[0]);
    return readers[in] == 1 ? sum_of[in] : nullptr;
  };
  for (const Instr& instr : program.code)
    if (const Instr* const sum = sum_before(instr)) is_moved[static_cast<std::size_t>(sum->out[0])] = true;
  for (const Instr& instr : program.code) {
    const Instr* const sum = sum_before(instr);
    if (sum == nullptr) {
      if (!is_moved[static_cast<std::size_t>(instr.out[0])]) code.push_back(instr);
      continue;
    }
    ValueInfo part = program.value(instr.out[0]);
    part.kind = ValueKind::activation;
    part.param = -1;
    Instr scatter = instr, all = *sum;
    scatter.in = sum->in;
    scatter.out = {program.add_value(std::move(part))};
    all.in = scatter.out;
    all.out = instr.out;
    all.region = instr.region;
    code.push_back(std::move(scatter));
    code.push_back(std::move(all));
  }
  program.code = std::move(code);
  return program;
}

}  // namespace

Program simplify_collectives(Program program) { return with_small_sums(without_copies(std::move(program))); }

double exchanged_bytes(const Program& program) {
  double bytes = 0;
  for (const Instr& instr : program.code) {
    if (!is_collective(instr.op) || instr.op == Op::shift_end) continue;
    const auto& a = instr.attrs.as<CollectiveAttrs>();
    const double others = (a.ranks - 1.0) / a.ranks;
    const auto in = static_cast<double>(program.value(instr.in[0]).bytes()),
               out = static_cast<double>(program.value(instr.out[0]).bytes());
    if (instr.op == Op::shift_begin)
      bytes += in;
    else if (instr.op == Op::all_reduce || instr.op == Op::all_reduce_rows)
      bytes += 2 * others * in;
    else
      bytes += others * std::max(in, out);
  }
  return bytes;
}

}  // namespace strata
