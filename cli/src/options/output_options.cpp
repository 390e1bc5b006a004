// Options of the verbs that read and change what runs have written.
#include "options/options.h"

#include <cstdint>

#include <CLI/CLI.hpp>

#include "args.h"

namespace strata::cli {

void add_report_options(CLI::App& app, Args& args) {
  app.add_option("runs", args.items, "Run folders; several are compared")
      ->option_text("RUN [RUN ...]")
      ->required();
  app.add_option("--out", args.out_file,
                 "Page to write (default: report.html in the run's folder, or here for several)")
      ->option_text("FILE");
  app.add_option("--svg", args.svg_dir, "Folder for each chart as a picture")->option_text("DIR");
  app.add_flag("--text", args.text, "Print charts and figures to the terminal instead");
}

void add_top_options(CLI::App& app, Args& args) {
  app.add_option("runs", args.items, "Run folders (default: those that run on this machine)")
      ->option_text("[RUN ...]");
  app.add_option("--interval", args.interval_s, "Seconds between two looks (default: 1)")
      ->check(CLI::Range(0.1, 3600.0));
  app.add_flag("--once", args.once, "Print one line for each run, and end");
}

void add_compare_options(CLI::App& app, Args& args) {
  app.add_option("runs", args.items, "Run folders; the others are compared with the first")
      ->option_text("RUN RUN ...")
      ->required();
}

void add_trace_options(CLI::App& app, Args& args) {
  app.add_option("run", args.items, "Run folder")->option_text("RUN")->required()->expected(1);
  app.add_option("--steps", args.trace_steps, "First and last step (default: all that were traced)")
      ->option_text("A-B");
  app.add_option("--out", args.out_file, "File to write (default: trace-perfetto.json in the run's folder)")
      ->option_text("FILE");
  app.add_flag("--json", args.json, "Print JSON");
}

void add_ckpt_options(CLI::App& app, Args& args) {
  app.require_subcommand(1);
  const auto action = [&](const char* name, const char* doc) {
    CLI::App* sub = app.add_subcommand(name, doc);
    sub->add_option("run", args.items, "Run folder, or a folder of checkpoints")
        ->option_text("RUN|FOLDER")
        ->required()
        ->expected(1);
    sub->callback([&args, name] { args.action = name; });
    return sub;
  };
  const auto add_steps = [&](CLI::App* sub, const char* doc) {
    sub->add_option("--checkpoint", args.checkpoints, doc)->option_text("STEP ...");
  };
  action("ls", "Show the checkpoints of a run")
      ->add_flag("--json", args.json, "Print one JSON object for each");
  CLI::App* prune = action("prune", "Remove old and damaged checkpoints");
  prune->add_option("--keep", args.keep, "Checkpoints to keep, the newest whole ones")
      ->option_text("N")
      ->required()
      ->check(CLI::Range(1, 1 << 20));
  prune->add_option("--every", args.every, "Also keep those of steps that are multiples of N")
      ->option_text("N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 60));
  prune->add_flag("--dry-run", args.dry_run, "Say what would be removed, and remove nothing");
  add_steps(action("verify", "Read checkpoints and compare all digests"), "Steps (default: all)");
  CLI::App* average = action("average", "Make a run of the mean of several checkpoints' parameters");
  average->add_option("--last", args.last, "Number of checkpoints, the newest")
      ->option_text("N")
      ->check(CLI::Range(1, 1 << 20));
  add_steps(average, "Steps of the checkpoints");
  average->add_option("--out", args.out_dir, "Run folder to make")->option_text("DIR");
}

}  // namespace strata::cli
