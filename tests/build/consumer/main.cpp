// A program outside of the tree: a training run, an export and the CPU optimizer, through what is installed.
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <strata/align/tasks.h>
#include <strata/cpuopt/adamw.h>
#include <strata/infer/export_model.h>
#include <strata/runtime/memory/alloc_counter.h>
#include <strata/runtime/signals.h>
#include <strata/train/run.h>

namespace {

class Printer final : public strata::Observer {
 public:
  void on_step(const strata::StepProgress& step) noexcept override {
    std::printf("step %d of %d\n", static_cast<int>(step.step), static_cast<int>(step.steps));
  }
  void on_warning(std::string_view text) override {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(text.size()), text.data());
  }
};

/// Two steps of a small model on `text`.
strata::RunResult train(const std::string& text) {
  strata::RunRequest request;
  request.items = {"model.family=gpt2", "model.layers=1",      "model.hidden=16",     "model.heads=2",
                   "model.ffn=32",      "model.vocab=300",     "model.seq=16",        "data.train=" + text,
                   "train.steps=2",     "train.micro_batch=2", "memory.device=64MiB", "memory.pinned=64MiB",
                   "memory.nvme=0",     "memory.backend=host", "checkpoint.dir=saved"};
  request.out_dir = "run";
  request.overwrite = true;
  request.tasks = strata::all_tasks();
  const auto signals = strata::must(strata::install_signals());
  Printer printer;
  return strata::must(strata::run_training(request, printer, *signals));
}

}  // namespace

int main(int, char** argv) {
  const strata::RunResult run = train(argv[1]);
  std::printf("%s", run.summary.c_str());

  strata::ExportRequest exported;
  exported.items = {run.run};
  exported.out_dir = "exported";
  std::printf("%s", strata::must(strata::export_model(exported, [](std::string_view) {})).c_str());

  // The CPU optimizer alone, for a trainer that has its own states.
  std::vector<float> p(8, 1.0f), m(8), v(8);
  const std::vector<float> g(8, 0.5f);
  strata::must(strata::cpuopt::adamw_update({.lr = 0.125}, p, g, m, v));
  std::printf("a step took a parameter from 1 to %.3f\n", static_cast<double>(p[0]));

  strata::AllocCounter::set_armed(true);
  const std::uint64_t before = strata::AllocCounter::count();
  ::operator delete(::operator new(1));  // the compiler may omit a new expression
  strata::AllocCounter::set_armed(false);
  std::printf("%d allocation counted\n", static_cast<int>(strata::AllocCounter::count() - before));
}
