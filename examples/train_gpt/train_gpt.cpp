// Trains the demo model, five million parameters over three tiers, through the public C++ API, and prints the
// loss. Arguments are settings of the run: train_gpt train.steps=100 memory.device=64MiB
#include <cstdio>
#include <string>
#include <string_view>

#include <strata/runtime/signals.h>
#include <strata/train/run.h>

namespace {

/// Receives the reports of the session. Every method is optional; a notebook or a logger would implement the
/// same ones.
class Printer final : public strata::Observer {
 public:
  void on_step(const strata::StepProgress& step) noexcept override {
    if (step.step % 10 == 0 || step.step == step.steps)
      std::printf("step %4lld of %lld  loss %.4f  %8.0f tokens/s\n", static_cast<long long>(step.step),
                  static_cast<long long>(step.steps), step.loss, step.tokens_per_s);
  }
  void on_message(std::string_view text) override { std::printf("%.*s\n", int(text.size()), text.data()); }
  void on_warning(std::string_view text) override {
    std::fprintf(stderr, "train_gpt: %.*s\n", int(text.size()), text.data());
  }
};

}  // namespace

int main(int argc, char** argv) {
  strata::RunRequest request;
  request.preset =
      "austen-5m";  // a model, its data and the budgets of three tiers; `items` override its values
  request.items.assign(argv + 1, argv + argc);
  request.out_dir = "runs/train_gpt";
  request.overwrite = true;

  const auto signals = strata::install_signals();  // Ctrl-C finishes the step, saves, and ends
  if (!signals.has_value()) {
    std::fprintf(stderr, "train_gpt: %s\n", std::string(signals.status().message()).c_str());
    return 1;
  }
  Printer printer;
  const auto result = strata::run_training(request, printer, **signals);
  if (!result.has_value()) {  // the configuration is wrong, the run does not fit, a file cannot be read, ...
    std::fprintf(stderr, "train_gpt: %s\n", std::string(result.status().message()).c_str());
    return 1;
  }
  std::printf("%s", result->summary.c_str());
  return 0;
}
