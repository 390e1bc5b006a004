#include "exit_code.h"
#include "load_config.h"
#include "training/job.h"
#include "training/write_budget.h"
#include "verbs/verbs.h"

namespace strata::cli {

int run_plan(const Args& args) {
  auto loaded = load_config(args);
  if (!loaded.has_value()) return print_error(args, "plan", loaded.status());
  const auto planned = plan_job(*loaded);
  if (!planned.has_value()) return print_error(args, "plan", planned.status());
  const TrainConfig& config = loaded->config;
  if (const Status enough = check_write_budget(config, *planned->plan); !enough.is_ok())
    return print_error(args, "plan", enough);
  print(args.out,
        args.json ? plan_json(config, *planned->plan, planned->recompute)
                  : start_table(config, *planned->plan, planned->recompute, "opened when the run starts"));
  return kExitOk;
}

}  // namespace strata::cli
