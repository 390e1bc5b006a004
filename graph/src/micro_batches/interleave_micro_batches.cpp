#include <algorithm>
#include <numeric>
#include <vector>

#include <strata/graph/ops.h>
#include <strata/graph/passes.h>

#include "micro_batches/micro_batch_copies.h"

namespace strata {
namespace {

/// The end of the segment that begins there: the instructions of one region, forward or backward.
std::size_t segment_end(const Program& program, std::size_t begin) {
  const Instr& first = program.code[begin];
  const auto end = std::find_if(
      program.code.begin() + static_cast<std::ptrdiff_t>(begin), program.code.end(),
      [&](const Instr& instr) { return instr.region != first.region || instr.backward != first.backward; });
  return static_cast<std::size_t>(end - program.code.begin());
}

}  // namespace

Program interleave_micro_batches(const Program& program, std::int32_t micro_batches) {
  if (micro_batches <= 1) return program;
  Program interleaved = program;
  interleaved.code.clear();
  std::vector<std::size_t> order(program.code.size());
  std::iota(order.begin(), order.end(), 0);
  detail::MicroBatchCopies copies(program, interleaved, micro_batches, order);
  for (std::size_t begin = 0; begin < program.code.size();) {
    const std::size_t end = segment_end(program, begin);
    for (std::int32_t k = 0; k < micro_batches; ++k)
      for (std::size_t i = begin; i < end; ++i)
        if (k == 0 || !detail::is_constant(program.code[i])) copies.add(i, k);
    begin = end;
  }
  return interleaved;
}

}  // namespace strata
