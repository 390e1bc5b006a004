#include <strata/graph/pipeline.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>
#include <strata/runtime/error_list.h>
#include <strata/runtime/str.h>

#include "micro_batches/micro_batch_copies.h"
#include "pipeline/messages.h"
#include "pipeline/stage_code.h"

namespace strata {
namespace {

using detail::MicroBatchCopies;
using detail::QueuedMessage;
using detail::StageCode;
using detail::StagePhase;

Status check_stages(const Program& program, const PipelineSchedule& schedule,
                    std::span<const std::int32_t> stage_of_region, const PipelineRank& rank) {
  STRATA_TRY(check(schedule));
  ErrorList errors;
  const auto bad = [&](Code code, const auto&... text) { errors.add(Status::error(code, str(text...))); };
  if (rank.rank < 0 || rank.rank >= schedule.ranks())
    bad(Code::invalid, "rank ", rank.rank, " of a pipeline of ", schedule.ranks());
  if (rank.copy < 0 || rank.copy >= rank.copies)
    bad(Code::invalid, "copy ", rank.copy, " of ", rank.copies, " of a pipeline");
  if (program.micro_batches != 1)
    bad(Code::unsupported, "a program of ", program.micro_batches, " micro-batches");
  if (stage_of_region.size() != program.regions.size())
    bad(Code::invalid, stage_of_region.size(), " stages for ", program.regions.size(), " regions");
  for (std::size_t r = 0; r < std::min(stage_of_region.size(), program.regions.size()); ++r)
    if (stage_of_region[r] < 0 || stage_of_region[r] >= schedule.stages())
      bad(Code::invalid, "region ", program.regions[r].name, " is in stage ", stage_of_region[r], " of ",
          schedule.stages());
  return errors.status();
}

class RankProgram {
 public:
  RankProgram(const Program& program, const PipelineSchedule& schedule, const PipelineRank& rank,
              const StageCode& code)
      : from_(program),
        schedule_(schedule),
        rank_(rank),
        code_(code),
        to_(without_code(program)),
        copies_(program, to_, schedule.micro_batches, own_order()) {
    if (rank.copies > 1)
      copies_.add_up_over({.axis = rank.copies_axis, .ranks = rank.copies, .rank = rank.copy});
  }

  Result<Program> run() && {
    const auto ranks_of_param = detail::ranks_of_params(from_, code_, schedule_.ranks());
    for (std::size_t p = 0; p < to_.params.size(); ++p) share(to_.params[p], ranks_of_param[p]);
    STRATA_TRY_ASSIGN(const auto all, detail::stage_messages(from_, schedule_, code_));
    const auto& tasks = schedule_.tasks[static_cast<std::size_t>(rank_.rank)];
    const auto n = static_cast<std::int32_t>(tasks.size());
    messages_ = detail::queued_messages(all, rank_.rank, n);
    sent_.assign(messages_.size(), kNoValue);
    for (const std::size_t i : code_.constants) copies_.add(i, 0);
    for (std::int32_t i = 0; i <= n; ++i) {
      queue(i);
      if (i < n) run_task(tasks[static_cast<std::size_t>(i)]);
    }
    add_up_parts();
    STRATA_TRY(verify(to_));
    return std::move(to_);
  }

 private:
  static Program without_code(Program program) {
    program.code.clear();
    return program;
  }
  /// The instructions of this rank, in the order in which a micro-batch passes them.
  std::vector<std::size_t> own_order() const {
    std::vector<std::size_t> order;
    for (const StagePhase phase :
         {StagePhase::forward, StagePhase::input_gradient, StagePhase::weight_gradient})
      for (std::int32_t stage = rank_.rank; stage < schedule_.stages(); stage += schedule_.ranks()) {
        const std::vector<std::size_t>& own = code_.of(stage, phase);
        order.insert(order.end(), own.begin(), own.end());
      }
    return order;
  }

  /// The parameter is another rank's.
  void drop(ParamInfo& param) {
    param.part.is_elsewhere = true;
    param.shape = param.part.shape();
    param.grad = kNoValue;
    to_.values[static_cast<std::size_t>(param.value)].shape = param.shape;
  }

  /// The parameter is that of these ranks' stages, of which the first one counts.
  void share(ParamInfo& param, const std::set<std::int32_t>& ranks) {
    if (!param.part.is_shared()) param.part = TensorPart::all_of(param.shape);
    if (ranks.count(rank_.rank) == 0) {
      drop(param);
      return;
    }
    if (*ranks.begin() != rank_.rank)
      for (PartRun& run : param.part.rows) run.counts = false;
    if (param.grad != kNoValue && ranks.size() > 1)
      copies_.add_up_in(param.grad, add_part(param.grad, rank_.rank));
  }

  ValueId add_part(ValueId grad, std::int32_t rank) {
    ValueInfo info = to_.value(grad);
    info.name += str(" of rank ", rank);
    info.kind = ValueKind::micro_batch_grad;
    return parts_[{grad, rank}] = to_.add_value(std::move(info));
  }
  /// In the order of the ranks, so that all have the same sum.
  void add_up_parts() {
    std::set<ValueId> begun;
    for (const auto& [of, part] : parts_)
      to_.code.push_back(
          {Op::accumulate, {part}, {of.first}, {}, begun.insert(of.first).second ? 0u : 1u, region_, true});
  }

  void run_task(const StageTask& task) {
    for (const StagePhase phase : detail::phases_of(task.work))
      for (const std::size_t i : code_.of(schedule_.stage(rank_.rank, task), phase))
        copies_.add(i, task.micro_batch);
  }

  /// Queues the begins and ends of messages that come before a task.
  void queue(std::int32_t task) {
    for (std::size_t m = 0; m < messages_.size(); ++m)
      if (messages_[m].begin == task) begin(m);
    for (std::size_t m = 0; m < messages_.size(); ++m)
      if (messages_[m].end == task) end(m);
  }
  void begin(std::size_t m) {
    if (messages_[m].is_sent)
      sent_[m] = append(Op::send_begin, m, {value_of(m)}, "sent");
    else
      sent_[m] = append(Op::receive_begin, m, {}, to_.value(value_of(m)).name + " on its way");
  }
  void end(std::size_t m) {
    if (messages_[m].is_sent)
      append(Op::send_end, m, {sent_[m], value_of(m)}, "left");
    else
      add(Op::receive_end, m, {sent_[m]}, value_of(m));
  }
  ValueId value_of(std::size_t m) {
    const detail::StageMessage& message = messages_[m].message;
    if (message.micro_batch >= 0) return copies_.of(message.value, message.micro_batch);
    const auto found = parts_.find({message.value, message.from});
    return found != parts_.end() ? found->second : add_part(message.value, message.from);
  }
  ValueId append(Op op, std::size_t m, std::vector<ValueId> in, std::string name) {
    ValueInfo info;
    info.name = std::move(name);
    if (op == Op::receive_begin) {
      info.shape = to_.value(value_of(m)).shape;
      info.dtype = to_.value(value_of(m)).dtype;
    } else {
      info.shape = {0};
    }
    const ValueId out = to_.add_value(std::move(info));
    add(op, m, std::move(in), out);
    return out;
  }
  void add(Op op, std::size_t m, std::vector<ValueId> in, ValueId out) {
    const ValueInfo& value = to_.value(value_of(m));
    const QueuedMessage& queued = messages_[m];
    to_.code.push_back({op,
                        std::move(in),
                        {out},
                        MessageAttrs{rank_.axis, queued.is_sent ? queued.message.to : queued.message.from,
                                     static_cast<std::int32_t>(m), value.shape, value.dtype},
                        0,
                        region_,
                        false});
  }

  const Program& from_;
  const PipelineSchedule& schedule_;
  const PipelineRank rank_;
  const StageCode& code_;
  Program to_;
  MicroBatchCopies copies_;
  std::vector<QueuedMessage> messages_;
  std::vector<ValueId> sent_;  // the value that each message's begin returns
  // Indexed by gradient and rank: the part that the rank adds to the gradient of a parameter of several
  // ranks.
  std::map<std::pair<ValueId, std::int32_t>, ValueId> parts_;
  std::int32_t region_ = 0;
};

}  // namespace

std::vector<StageTicks> stage_ticks(const Program& program, std::span<const std::int32_t> stage_of_region,
                                    std::int32_t stages, double flops_per_tick) {
  const StageCode code = detail::stage_code(program, stage_of_region, stages);
  const auto ticks = [&](std::int32_t stage, StagePhase phase) {
    double sum = 0;
    for (const std::size_t i : code.of(stage, phase)) sum += flops(program, program.code[i]);
    return static_cast<std::int64_t>(std::llround(sum / flops_per_tick));
  };
  std::vector<StageTicks> all;
  for (std::int32_t stage = 0; stage < stages; ++stage)
    all.push_back({ticks(stage, StagePhase::forward), ticks(stage, StagePhase::input_gradient),
                   ticks(stage, StagePhase::weight_gradient)});
  return all;
}

Result<Program> pipeline(const Program& program, const PipelineSchedule& schedule,
                         std::span<const std::int32_t> stage_of_region, const PipelineRank& rank) {
  STRATA_TRY(check_stages(program, schedule, stage_of_region, rank));
  const StageCode code = detail::stage_code(program, stage_of_region, schedule.stages());
  return RankProgram(program, schedule, rank, code).run();
}

}  // namespace strata
