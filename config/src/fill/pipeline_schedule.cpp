#include <strata/config/pipeline_schedule.h>

#include <algorithm>

#include <strata/config/train_config.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

constexpr std::uint64_t kScheduleLimit = 16 << 20;  // bytes

std::int32_t micro_batches_of_copy(const TrainConfig& config) noexcept {
  return config.train.grad_accum / data_parallel(config).ranks;
}

Result<PipelineSchedule> schedule_in(const std::string& path, const TrainConfig& config) {
  STRATA_TRY_ASSIGN(const std::string text, read_text(posix_io(), path, kScheduleLimit));
  auto read = parse_pipeline_schedule(text);
  if (!read.has_value()) return read.status().annotate(path);
  const std::int32_t micro_batches = micro_batches_of_copy(config);
  if (read->ranks() != config.parallel.pp || read->micro_batches != micro_batches)
    return Status::error(
        Code::invalid,
        str(path, " is a schedule of ", plural(read->ranks(), "rank"), " and ",
            plural(read->micro_batches, "micro-batch"), ", but parallel.pp is ", config.parallel.pp,
            " and a step of a copy of the model has ", plural(micro_batches, "micro-batch")));
  return read;
}

}  // namespace

std::int32_t virtual_stages(const TrainConfig& config) noexcept {
  if (config.parallel.virtual_stages) return *config.parallel.virtual_stages;
  const std::string& schedule = config.parallel.schedule;
  return schedule == "interleaved" || schedule == "breadth-first" ? 2 : 1;
}

Result<PipelineSchedule> pipeline_schedule(const TrainConfig& config) {
  const char* const undecided = virtual_stages(config) > 1 ? "breadth-first" : "1f1b";
  const std::string name = config.parallel.schedule == "auto" ? undecided : config.parallel.schedule;
  const std::vector<std::string> known = pipeline_schedule_names();
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    if (posix_io().exists(name)) return schedule_in(name, config);
    std::string names;
    for (const std::string& each : known) names += each + ", ";
    return Status::error(Code::invalid, str("there is no such schedule or file; there are ", names,
                                            "and files with a line of tasks for each rank"));
  }
  return make_pipeline_schedule(name, config.parallel.pp, micro_batches_of_copy(config),
                                virtual_stages(config));
}

}  // namespace strata
