#include "pipeline/stage_code.h"

#include <algorithm>

#include <strata/graph/ops.h>

#include "micro_batches/micro_batch_copies.h"

namespace strata::detail {
namespace {

/// The number of instructions that add to each parameter's gradient.
std::vector<int> count_writers(const Program& program) {
  std::vector<int> writers(program.params.size());
  for (const Instr& instr : program.code)
    for (const ValueId id : instr.out)
      if (program.value(id).kind == ValueKind::grad)
        ++writers[static_cast<std::size_t>(program.value(id).param)];
  return writers;
}

/// Whether it makes nothing but gradients of parameters to which no other instruction adds, whose order would
/// then be another one.
bool makes_only_gradients(const Program& program, const Instr& instr, const std::vector<int>& writers) {
  return std::all_of(instr.out.begin(), instr.out.end(), [&](ValueId id) {
    const ValueInfo& info = program.value(id);
    return info.kind == ValueKind::workspace ||
           (info.kind == ValueKind::grad && writers[static_cast<std::size_t>(info.param)] == 1);
  });
}

}  // namespace

StageCode stage_code(const Program& program, std::span<const std::int32_t> stage_of_region,
                     std::int32_t stages) {
  StageCode all;
  all.code.resize(static_cast<std::size_t>(stages));
  const std::vector<int> writers = count_writers(program);
  std::vector<bool> by_backward(program.values.size());
  for (std::size_t i = 0; i < program.code.size(); ++i) {
    const Instr& instr = program.code[i];
    const bool is_everywhere = is_constant(instr);
    // If backward computes a loss together with its gradient, the readers of the loss run in backward, too.
    const bool is_backward = instr.backward || std::any_of(instr.in.begin(), instr.in.end(), [&](ValueId id) {
                               return id != kNoValue && by_backward[static_cast<std::size_t>(id)];
                             });
    for (const ValueId id : instr.out) by_backward[static_cast<std::size_t>(id)] = is_backward;
    const StagePhase phase = !is_backward                                    ? StagePhase::forward
                             : makes_only_gradients(program, instr, writers) ? StagePhase::weight_gradient
                                                                             : StagePhase::input_gradient;
    all.stage.push_back(is_everywhere ? StageCode::kEverywhere
                                      : stage_of_region[static_cast<std::size_t>(instr.region)]);
    all.phase.push_back(phase);
    if (is_everywhere)
      all.constants.push_back(i);
    else
      all.code[static_cast<std::size_t>(all.stage.back())][static_cast<std::size_t>(phase)].push_back(i);
  }
  return all;
}

std::span<const StagePhase> phases_of(StageWork work) noexcept {
  static constexpr StagePhase kAll[] = {StagePhase::forward, StagePhase::input_gradient,
                                        StagePhase::weight_gradient};
  const std::span all(kAll);
  switch (work) {
    case StageWork::forward:
      return all.first(1);
    case StageWork::backward:
      return all.last(2);
    case StageWork::input_gradient:
      return all.subspan(1, 1);
    case StageWork::weight_gradient:
      break;
  }
  return all.last(1);
}

}  // namespace strata::detail
