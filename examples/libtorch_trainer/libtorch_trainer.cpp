// A trainer with LibTorch whose optimizer states strata holds: a network learns to predict the next character
// of a text. Run again with more steps, it resumes from its newest checkpoint.
//
//   libtorch_trainer TEXT CHECKPOINTS [STEPS [FOLDER]]     FOLDER on NVMe: states are there, not in RAM
#include <strata/torch.hpp>

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr std::int64_t kContext = 16, kWidth = 16, kHidden = 128, kBytes = 256, kBatch = 64;

struct CharModel : torch::nn::Module {
  torch::nn::Embedding embedding{kBytes, kWidth};
  torch::nn::Linear hidden{kContext * kWidth, kHidden}, out{kHidden, kBytes};
  CharModel() {
    register_module("embedding", embedding);
    register_module("hidden", hidden);
    register_module("out", out);
  }
  // context: [batch, kContext] of bytes as int64. Returns logits [batch, kBytes].
  torch::Tensor forward(const torch::Tensor& context) {
    return out(torch::relu(hidden(embedding(context).flatten(1))));
  }
};

torch::Tensor read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (bytes.size() <= kContext) throw std::runtime_error("cannot read a text from " + path);
  return torch::tensor(std::vector<std::uint8_t>(bytes.begin(), bytes.end()));
}

// The loss of a batch that the number of the step alone chooses, so that a run may resume anywhere.
torch::Tensor loss_of(CharModel& model, const torch::Tensor& text, std::int64_t step) {
  torch::manual_seed(static_cast<std::uint64_t>(step));
  const torch::Tensor starts = torch::randint(text.size(0) - kContext, {kBatch, 1});
  const torch::Tensor windows = text.index({starts + torch::arange(kContext + 1)}).to(torch::kLong);
  return torch::nn::functional::cross_entropy(model.forward(windows.narrow(1, 0, kContext)),
                                              windows.select(1, kContext));
}

// Matrices decay, biases do not.
std::vector<torch::optim::OptimizerParamGroup> groups_of(const CharModel& model) {
  std::vector<torch::Tensor> matrices, biases;
  for (const torch::Tensor& param : model.parameters())
    (param.dim() > 1 ? matrices : biases).push_back(param);
  using torch::optim::AdamWOptions;
  return {{matrices, std::make_unique<AdamWOptions>(AdamWOptions(2e-3).weight_decay(0.1))},
          {biases, std::make_unique<AdamWOptions>(AdamWOptions(2e-3).weight_decay(0))}};
}

void train(const std::string& text_path, const std::string& checkpoints, std::int64_t steps,
           const std::string& folder) {
  torch::manual_seed(0);
  CharModel model;
  const torch::Tensor text = read_bytes(text_path);
  strata::torch::StateOptions states;
  if (!folder.empty()) states.placement(STRATA_PLACE_NVME).nvme_dirs({folder});
  strata::torch::AdamW optimizer(groups_of(model), torch::optim::AdamWOptions(2e-3), states);
  optimizer.name_parameters(model.named_parameters());

  const strata_plan plan = optimizer.plan();
  std::printf("%lld parameters; the states need %llu bytes of RAM and %llu on NVMe\n",
              static_cast<long long>(plan.n_params), static_cast<unsigned long long>(plan.pinned_bytes),
              static_cast<unsigned long long>(plan.nvme_bytes));
  const std::string newest = strata::torch::newest_checkpoint(checkpoints);
  if (!newest.empty()) {
    optimizer.load(newest);  // the parameters, too
    std::printf("resumed from %s\n", newest.c_str());
  }

  double sum = 0;
  int n = 0;
  for (std::int64_t step = optimizer.steps() + 1; step <= steps; ++step) {
    optimizer.zero_grad();
    const torch::Tensor loss = loss_of(model, text, step);
    loss.backward();
    torch::nn::utils::clip_grad_norm_(model.parameters(), 1.0);
    optimizer.step();
    sum += loss.item<double>();
    ++n;
    if (step % 50 == 0) {
      std::printf("step %4lld of %lld  loss %.4f\n", static_cast<long long>(step),
                  static_cast<long long>(steps), sum / n);
      sum = n = 0;
    }
  }
  std::printf("saved %s\n", optimizer.save(checkpoints, /*keep=*/2).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 5) {
    std::fprintf(stderr, "usage: libtorch_trainer TEXT CHECKPOINTS [STEPS [FOLDER]]\n");
    return 2;
  }
  try {
    train(argv[1], argv[2], argc > 3 ? std::atoll(argv[3]) : 300, argc > 4 ? argv[4] : "");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "libtorch_trainer: %s\n", error.what());
    return 1;
  }
  return 0;
}
