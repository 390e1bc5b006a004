#include <fmt/format.h>
#include <fmt/ranges.h>

#include <strata/runtime/memory/host_memory.h>
#include <strata/runtime/str.h>
#include <strata/train/budget_request.h>
#include <strata/plan/job.h>
#include <strata/config/load_config.h>
#include <strata/train/run_folder.h>
#include <strata/config/run_layout.h>

#include "exit_code.h"
#include "print.h"
#include "verbs/verbs.h"

namespace strata::cli {
namespace {

// Refuses here what the run would refuse, before the run is disturbed.
Result<std::string> ask(const Args& args) {
  if (args.items.size() < 2 || is_assignment(args.items.front()))
    return Status::error(Code::invalid,
                         "missing run or budgets; usage: strata budget runs/demo memory.pinned=4GiB");
  const std::string& run = args.items.front();
  const std::vector<std::string> assignments(args.items.begin() + 1, args.items.end());
  STRATA_TRY(BudgetRequest::check(assignments));
  STRATA_TRY(RunFolder::check(posix_io(), run, RunFolder::Mode::resume));
  Args given = args;
  given.items.front() = str(run, "/", kResolvedConfig);
  STRATA_TRY_ASSIGN(LoadedConfig loaded, load_config(given));
  STRATA_TRY_ASSIGN(const PlannedJob planned, plan_job(loaded));
  // Only the total RAM is checked here. Free RAM, the run's own share of it and the GPU are checked by the
  // run, before it destroys its engine.
  HostFacts at_most = read_host_facts();
  at_most.available_ram_bytes = at_most.total_ram_bytes;
  at_most.cgroup_free_bytes = at_most.cgroup_limit_bytes;
  STRATA_TRY(check_host_memory(bytes_in_ram(loaded.config, *planned.plan), loaded.config.cpu.share.threads(),
                               at_most));
  STRATA_TRY(BudgetRequest(posix_io(), run).submit(assignments));
  return str("requested: before its next step, or when it is resumed, ", run, " continues with ",
             fmt::format("{}", fmt::join(assignments, " ")), "\n");
}

}  // namespace

int run_budget(const Args& args) {
  const auto text = ask(args);
  if (!text.has_value()) return print_error(args, "budget", text.status());
  print(args.out, *text);
  return kExitOk;
}

}  // namespace strata::cli
