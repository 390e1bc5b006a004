#include <algorithm>
#include <charconv>
#include <sstream>

#include <strata/graph/pipeline_schedule.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

constexpr std::string_view kLetters = "FBIW";  // in the order of StageWork

/// The number at the beginning of a text, which is cut off; -1 if there is none.
std::int32_t take_number(std::string_view& text) {
  std::int32_t number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return -1;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

Result<StageTask> parse_task(std::string_view word) {
  const auto bad = [&] {
    return Status::error(Code::invalid,
                         str("\"", word,
                             "\" is no task; tasks are F, B, I or W with a micro-batch, as F3, and after a "
                             "slash the virtual stage, as F3/1"));
  };
  const std::size_t work = word.empty() ? std::string_view::npos : kLetters.find(word.front());
  if (work == std::string_view::npos) return bad();
  StageTask task{static_cast<StageWork>(work)};
  std::string_view rest = word.substr(1);
  task.micro_batch = take_number(rest);
  if (!rest.empty() && rest.front() == '/') {
    rest.remove_prefix(1);
    task.virtual_stage = take_number(rest);
  }
  if (!rest.empty() || task.micro_batch < 0 || task.virtual_stage < 0) return bad();
  return task;
}

}  // namespace

Result<PipelineSchedule> parse_pipeline_schedule(std::string_view text) {
  PipelineSchedule schedule;
  std::istringstream lines{std::string(text)};
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::vector<StageTask> tasks;
    for (std::string word; words >> word;) {
      auto task = parse_task(word);
      if (!task.has_value()) return task.status().annotate(str("line ", number));
      schedule.micro_batches = std::max(schedule.micro_batches, task->micro_batch + 1);
      schedule.virtual_stages = std::max(schedule.virtual_stages, task->virtual_stage + 1);
      tasks.push_back(*task);
    }
    if (!tasks.empty()) schedule.tasks.push_back(std::move(tasks));
  }
  STRATA_TRY(check(schedule));
  return schedule;
}

std::string to_text(const PipelineSchedule& schedule) {
  std::string text;
  for (const std::vector<StageTask>& tasks : schedule.tasks) {
    std::string line;
    for (const StageTask& task : tasks) {
      line += str(line.empty() ? "" : " ", kLetters[static_cast<std::size_t>(task.work)], task.micro_batch);
      if (schedule.virtual_stages > 1) line += str("/", task.virtual_stage);
    }
    text += line + "\n";
  }
  return text;
}

}  // namespace strata
