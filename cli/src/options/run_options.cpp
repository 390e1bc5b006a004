// Options of the verbs that plan, measure and train.
#include "options/options.h"

#include <string>

#include <CLI/CLI.hpp>

#include <strata/offload/machine_profile.h>
#include <strata/runtime/str.h>

#include "args.h"
#include "options/shared_options.h"

namespace strata::cli {

void add_init_options(CLI::App& app, Args& args) {
  app.add_option("file", args.items, "File to write (default: run.toml)")
      ->option_text("[FILE]")
      ->expected(0, 1);
  app.add_option("--model", args.model, "Hugging Face folder, or the size of a new model: 5m, 125m, 1.3b")
      ->option_text("DIR|SIZE");
  app.add_option("--data", args.data, "Text, .jsonl or packed files to train on")->option_text("FILE ...");
  app.add_option("--task", args.task, "full, lora, qlora, or auto: the first of them that fits")
      ->option_text("TASK");
  app.add_option("--nvme-dir", args.nvme_dirs, "Folder for what does not fit into RAM, or none")
      ->option_text("DIR")
      ->expected(1);
  app.add_flag("-y,--yes", args.yes, "Ask nothing: take what is usual for what is not given");
  app.add_flag("--overwrite", args.overwrite, "Replace FILE");
}

void add_demo_options(CLI::App& app, Args& args) {
  app.add_option("items", args.items, "Settings of the run, section.key=value")
      ->option_text("[key=value ...]");
  app.add_option("--out", args.out_dir,
                 "Run folder (default: strata-demo); if it exists, another number is added")
      ->option_text("DIR");
}

void add_train_options(CLI::App& app, Args& args) {
  add_run_options(app, args);
  add_adapter(app, args);
  CLI::Option* out = app.add_option("--out", args.out_dir, "Run folder (default: runs/PRESET-TIME)");
  app.add_option("--ranks-per-process", args.ranks_per_process,
                 "Ranks of each process that mpirun or srun has started, 1 to 8 (default: 1)")
      ->option_text("N");
  CLI::Option* overwrite = app.add_flag("--overwrite", args.overwrite, "Replace the run in --out");
  app.add_option("--init", args.init, "Hugging Face folder to start from; same as model.from=DIR")
      ->option_text("DIR");
  app.add_option("--resume", args.resume,
                 "Resume the run in this folder from its newest intact checkpoint, with its configuration")
      ->option_text("RUN")
      ->excludes(out)
      ->excludes(overwrite);
}

void add_machine_options(CLI::App& app, Args& args) {
  add_plan_options(app, args);
  add_adapter(app, args);
  app.add_option("--init", args.init, "Hugging Face folder to start from; same as model.from=DIR")
      ->option_text("DIR");
  app.add_option("--out", args.out_dir,
                 "Ignored, so that a command of strata train can be planned: nothing is written")
      ->option_text("DIR");
  std::string names;
  for (const ShippedMachine& machine : shipped_machines())
    names += str(names.empty() ? "" : ", ", machine.name);
  app.add_option("--machine", args.machine,
                 str("Forecast the step on another machine: ", names, ", or a profile of strata bench"))
      ->option_text("NAME|FILE");
  app.add_option("--params", args.params,
                 "Plan a LLaMA-like model with about N parameters: 7b, 1.3B, 350m, 13e9")
      ->option_text("N");
  app.add_option("--ranks", args.ranks, "Compare the ways in which N ranks may divide the run")
      ->option_text("N")
      ->check(CLI::Range(1, 65536));
  app.add_option("--timeline", args.timeline,
                 "Draw a step of the ranks of a pipeline (.svg), or write its events for Perfetto (.json)")
      ->option_text("FILE");
  CLI::Option* const sweep = app.add_flag(
      "--sweep", args.sweep, "Print tokens per second for other budgets of the device and of pinned RAM");
  app.add_flag("--optimize", args.optimize, "Print the smallest budgets that are as fast")
      ->excludes(sweep)
      ->excludes(app.get_option("--json"));
}

void add_budget_options(CLI::App& app, Args& args) {
  app.add_option("items", args.items, "Run folder, and the budgets that it is to have")
      ->option_text("RUN memory.TIER=BYTES ...");
}

void add_bench_options(CLI::App& app, Args& args) {
  add_nvme_dirs(app, args);
  app.add_option("--out", args.out_dir,
                 "File to write the profile to (default: where strata plan and train look for it)")
      ->option_text("FILE");
  app.add_flag("--quick", args.quick, "Take a fifth of the time; less exact");
  app.add_option("--backend", args.backend,
                 "Compute device to measure: host (CPU) or cuda (GPU); auto: the one that runs use")
      ->check(CLI::IsMember({"auto", "host", "cuda"}))
      ->capture_default_str();
  app.add_flag("--json", args.json, "Print JSON");
}

void add_verify_options(CLI::App& app, Args& args) {
  add_plan_options(app, args);
  app.add_option("--steps", args.steps, "Training steps per placement");
  app.add_flag("--offload-overhead", args.offload_overhead,
               "Measure the cost of offloading instead: step time without divided by step time with it");
}

void add_doctor_options(CLI::App& app, Args& args) {
  add_nvme_dirs(app, args);
  app.add_flag("--json", args.json, "Print JSON");
}

}  // namespace strata::cli
