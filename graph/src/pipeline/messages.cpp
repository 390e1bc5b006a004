#include "pipeline/messages.h"

#include <algorithm>
#include <map>
#include <tuple>

#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

/// Which task of a rank runs a phase of a stage with a micro-batch.
class TaskNumbers {
 public:
  explicit TaskNumbers(const PipelineSchedule& schedule) {
    for (std::int32_t rank = 0; rank < schedule.ranks(); ++rank) {
      const std::vector<StageTask>& tasks = schedule.tasks[static_cast<std::size_t>(rank)];
      for (std::size_t i = 0; i < tasks.size(); ++i)
        for (const StagePhase phase : phases_of(tasks[i].work))
          number_[{schedule.stage(rank, tasks[i]), phase, tasks[i].micro_batch}] =
              static_cast<std::int32_t>(i);
    }
  }
  std::int32_t of(std::int32_t stage, StagePhase phase, std::int32_t micro_batch) const {
    return number_.at({stage, phase, micro_batch});
  }

 private:
  std::map<std::tuple<std::int32_t, StagePhase, std::int32_t>, std::int32_t> number_;
};

struct Reader {
  std::int32_t stage;
  StagePhase phase;
};
/// The readers of each value.
std::vector<std::vector<Reader>> readers_of(const Program& program, const StageCode& code) {
  std::vector<std::vector<Reader>> readers(program.values.size());
  for (std::size_t i = 0; i < program.code.size(); ++i)
    for (const ValueId id : program.code[i].in)
      if (id != kNoValue && code.stage[i] != StageCode::kEverywhere)
        readers[static_cast<std::size_t>(id)].push_back({code.stage[i], code.phase[i]});
  return readers;
}

bool is_output(const Program& program, ValueId id) {
  return std::find(program.outputs.begin(), program.outputs.end(), id) != program.outputs.end();
}

/// The instructions that write a gradient, on a rank.
std::vector<std::size_t> writers_of(const Program& program, const StageCode& code, ValueId grad,
                                    std::int32_t rank, std::int32_t ranks) {
  std::vector<std::size_t> writers;
  for (std::size_t i = 0; i < program.code.size(); ++i) {
    const std::vector<ValueId>& out = program.code[i].out;
    if (code.stage[i] % ranks == rank && std::find(out.begin(), out.end(), grad) != out.end())
      writers.push_back(i);
  }
  return writers;
}

std::int64_t ticks(StageWork work) { return work == StageWork::backward ? 2 : 1; }

}  // namespace

Result<std::vector<StageMessage>> stage_messages(const Program& program, const PipelineSchedule& schedule,
                                                 const StageCode& code) {
  const TaskNumbers numbers(schedule);
  const PipelineTiming timing = time_pipeline(schedule);
  const auto readers = readers_of(program, code);
  const std::int32_t ranks = schedule.ranks();
  const auto task = [&](std::int32_t rank, std::int32_t i) -> const StageTask& {
    return schedule.tasks[static_cast<std::size_t>(rank)][static_cast<std::size_t>(i)];
  };
  const auto start = [&](std::int32_t rank, std::int32_t i) {
    return timing.start[static_cast<std::size_t>(rank)][static_cast<std::size_t>(i)];
  };
  const auto n_tasks = [&](std::int32_t rank) {
    return static_cast<std::int32_t>(schedule.tasks[static_cast<std::size_t>(rank)].size());
  };
  std::vector<StageMessage> all;
  for (std::size_t i = 0; i < program.code.size(); ++i) {
    const std::int32_t stage = code.stage[i], from = stage % ranks;
    if (stage == StageCode::kEverywhere) continue;
    for (const ValueId id : program.code[i].out)
      for (std::int32_t k = 0; k < schedule.micro_batches; ++k) {
        const std::int32_t made_by = numbers.of(stage, code.phase[i], k);
        const std::int64_t sent = start(from, made_by) + ticks(task(from, made_by).work);
        std::map<std::int32_t, std::int32_t> read_by;  // the first reading task of each rank
        for (const Reader& reader : readers[static_cast<std::size_t>(id)]) {
          const std::int32_t rank = reader.stage % ranks, at = numbers.of(reader.stage, reader.phase, k);
          if (rank == from) continue;
          const auto [first, is_new] = read_by.try_emplace(rank, at);
          first->second = std::min(first->second, at);
        }
        for (const auto& [rank, at] : read_by)
          if (start(rank, at) < sent)
            return Status::error(
                Code::invalid, str("stage ", stage, " makes ", program.value(id).name, " of micro-batch ", k,
                                   " after rank ", rank, " reads it"));
        for (const auto& [rank, at] : read_by) all.push_back({id, k, from, rank, sent, made_by, at});
        if (!is_output(program, id)) continue;
        // Ranks that need the output only at the end of the step get it then: nobody waits for it before.
        for (std::int32_t rank = 0; rank < ranks; ++rank)
          if (rank != from && read_by.count(rank) == 0)
            all.push_back({id, k, from, rank, timing.end, n_tasks(from) - 1, n_tasks(rank)});
      }
  }
  // Ranks with uses of one parameter send each other the sums of their gradients.
  const auto ranks_of_param = ranks_of_params(program, code, ranks);
  for (std::size_t p = 0; p < program.params.size(); ++p) {
    const ValueId grad = program.params[p].grad;
    if (grad == kNoValue || ranks_of_param[p].size() < 2) continue;
    for (const std::int32_t from : ranks_of_param[p]) {
      std::int32_t made_by = -1;
      for (const std::size_t i : writers_of(program, code, grad, from, ranks))
        for (std::int32_t k = 0; k < schedule.micro_batches; ++k)
          made_by = std::max(made_by, numbers.of(code.stage[i], code.phase[i], k));
      if (made_by < 0) continue;
      const std::int64_t sent = start(from, made_by) + ticks(task(from, made_by).work);
      for (const std::int32_t rank : ranks_of_param[p])
        if (rank != from) all.push_back({grad, -1, from, rank, sent, made_by, n_tasks(rank)});
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const StageMessage& a, const StageMessage& b) {
    return std::tie(a.sent, a.from) < std::tie(b.sent, b.from);
  });
  return all;
}

std::vector<std::set<std::int32_t>> ranks_of_params(const Program& program, const StageCode& code,
                                                    std::int32_t ranks) {
  std::vector<std::set<std::int32_t>> found(program.params.size());
  for (std::size_t i = 0; i < program.code.size(); ++i)
    for (const ValueId id : program.code[i].in)
      if (id != kNoValue && program.value(id).kind == ValueKind::param)
        found[static_cast<std::size_t>(program.value(id).param)].insert(code.stage[i] % ranks);
  return found;
}

std::vector<QueuedMessage> queued_messages(const std::vector<StageMessage>& all, std::int32_t rank,
                                           std::int32_t tasks) {
  std::vector<QueuedMessage> own;
  for (const StageMessage& message : all) {
    if (message.from == rank)
      own.push_back({message, true, message.made_by + 1, std::min(tasks, message.made_by + 2)});
    if (message.to == rank) own.push_back({message, false, message.read_by - 1, message.read_by});
  }
  // In the common order: what is received is ready early enough for what is queued behind it.
  std::int32_t limit = tasks;
  for (auto each = own.rbegin(); each != own.rend(); ++each) {
    if (!each->is_sent) each->begin = std::min(each->begin, limit);
    limit = each->begin;
  }
  std::int32_t last = 0;
  for (QueuedMessage& each : own) {
    if (!each.is_sent) each.begin = std::max(each.begin, last);
    STRATA_ASSERT(each.begin >= last && each.begin <= each.end, "a message is out of order");
    last = each.begin;
  }
  return own;
}

}  // namespace strata::detail
