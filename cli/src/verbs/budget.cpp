#include <fmt/format.h>
#include <fmt/ranges.h>

#include <strata/runtime/str.h>

#include "exit_code.h"
#include "load_config.h"
#include "training/budget_request.h"
#include "training/host_memory.h"
#include "training/job.h"
#include "training/run_folder.h"
#include "verbs/verbs.h"

namespace strata::cli {
namespace {

// What the run would be refused is refused here, before it is disturbed.
Result<std::string> ask(const Args& args) {
  if (args.items.size() < 2 || is_assignment(args.items.front()))
    return Status::error(Code::invalid,
                         "name a run, then its new budgets: strata budget runs/demo memory.pinned=4GiB");
  const std::string& run = args.items.front();
  const std::vector<std::string> assignments(args.items.begin() + 1, args.items.end());
  STRATA_TRY(BudgetRequest::check(assignments));
  STRATA_TRY(RunFolder::check(posix_io(), run, RunFolder::Mode::resume));
  Args given = args;
  given.items.front() = str(run, "/", kResolvedConfig);
  STRATA_TRY_ASSIGN(LoadedConfig loaded, load_config(given));
  STRATA_TRY_ASSIGN(const PlannedJob planned, plan_job(loaded));
  // What is free now, what the run holds of it, and a GPU: the run looks at these before it gives anything
  // up.
  HostFacts at_most = read_host_facts();
  at_most.available_ram_bytes = at_most.total_ram_bytes;
  at_most.cgroup_free_bytes = at_most.cgroup_limit_bytes;
  STRATA_TRY(check_host_memory(bytes_in_ram(loaded.config, *planned.plan), loaded.config.cpu.share.threads(),
                               at_most));
  STRATA_TRY(BudgetRequest(posix_io(), run).submit(assignments));
  return str("asked: before its next step, or when it is resumed, ", run, " goes on in ",
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
