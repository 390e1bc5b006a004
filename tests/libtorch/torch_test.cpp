// One file, since each that includes LibTorch takes long to compile.
#include <strata/torch.hpp>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/schedulers/step_lr.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace {

using strata::torch::Error;
using strata::torch::StateOptions;
using torch::Tensor;
using torch::optim::AdamWOptions;
using torch::optim::OptimizerParamGroup;
namespace fs = std::filesystem;

// A folder that is removed at the end of the test.
class TempDir {
 public:
  TempDir() {
    std::string pattern = (fs::temp_directory_path() / "strata-libtorch-XXXXXX").string();
    if (mkdtemp(&pattern[0]) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = pattern;
  }
  ~TempDir() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

StateOptions in_ram() { return StateOptions().threads(2); }

// Many small chunks, so that they do move.
StateOptions on_nvme(const TempDir& dir) {
  return in_ram().placement(STRATA_PLACE_NVME).nvme_dirs({dir.path()}).chunk_elems(4096);
}

torch::nn::Sequential make_model() {
  torch::manual_seed(1);
  return torch::nn::Sequential(torch::nn::Linear(16, 96), torch::nn::Tanh(), torch::nn::Linear(96, 96),
                               torch::nn::Tanh(), torch::nn::Linear(96, 4));
}

// Mean square error of one of three batches.
Tensor loss_of(torch::nn::Sequential& model, int step) {
  const Tensor x =
      torch::sin(torch::arange(32 * 16, torch::kFloat).view({32, 16}) * (0.01 + 0.01 * (step % 3)));
  const Tensor y = torch::cos(x.narrow(1, 0, 4) * 2);
  const torch::ScalarType dtype = model->parameters().front().scalar_type();
  return torch::mse_loss(model->forward(x.to(dtype)), y.to(dtype));
}

// Weights decay, biases do not and learn faster.
std::vector<OptimizerParamGroup> two_groups(torch::nn::Sequential& model) {
  std::vector<Tensor> weights, biases;
  for (const Tensor& param : model->parameters()) (param.dim() > 1 ? weights : biases).push_back(param);
  std::vector<OptimizerParamGroup> groups;
  groups.emplace_back(weights, std::make_unique<AdamWOptions>(AdamWOptions(1e-3).weight_decay(0.1)));
  groups.emplace_back(biases,
                      std::make_unique<AdamWOptions>(
                          AdamWOptions(3e-3).weight_decay(0).betas(std::make_tuple(0.8, 0.99)).eps(1e-6)));
  return groups;
}

// `steps` steps, in every third of which the last bias has no gradient. Returns the losses.
std::vector<double> train(torch::nn::Sequential& model, torch::optim::Optimizer& optimizer, int steps,
                          int first = 0) {
  std::vector<double> losses;
  for (int step = first; step < first + steps; ++step) {
    for (Tensor& param : model->parameters()) param.mutable_grad() = Tensor();
    const Tensor loss = loss_of(model, step);
    loss.backward();
    torch::nn::utils::clip_grad_norm_(model->parameters(), 1.0);
    if (step % 3 == 2) model->parameters().back().mutable_grad() = Tensor();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

std::vector<Tensor> values_of(torch::nn::Sequential& model) {
  std::vector<Tensor> values;
  for (const Tensor& param : model->parameters()) values.push_back(param.detach().clone());
  return values;
}

// Bytes in which two lists of tensors differ.
std::int64_t differing_bytes(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  std::int64_t n = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto* const x = static_cast<const unsigned char*>(a[i].data_ptr());
    const auto* const y = static_cast<const unsigned char*>(b[i].data_ptr());
    for (std::size_t at = 0; at < a[i].nbytes(); ++at) n += x[at] != y[at] ? 1 : 0;
  }
  return n;
}

// The largest difference, relative to the largest value of each tensor.
double largest_difference(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, ((a[i] - b[i]).abs().max() / b[i].abs().max()).item<double>());
  return largest;
}

void expect_error(strata_status status, const std::string& text, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown; expected: " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), status) << error.what();
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
}

Tensor param_of(std::vector<float> values) { return torch::tensor(values, torch::kFloat).requires_grad_(); }

void set_gradient(const Tensor& param) { param.mutable_grad() = torch::ones_like(param); }

// The largest relative difference of losses.
double gap(const std::vector<double>& losses, const std::vector<double>& exact) {
  double largest = 0;
  for (std::size_t i = 0; i < exact.size(); ++i)
    largest = std::max(largest, std::abs(losses[i] - exact[i]) / exact[i]);
  return largest;
}

// Both round; how far torch's own rounding takes it from a run in f64 is the measure.
TEST(LibTorchTest, AdamWWithTwoGroupsHasTheLossesOfTorch) {
  torch::nn::Sequential ours = make_model(), theirs = make_model(), exact = make_model();
  exact->to(torch::kDouble);
  strata::torch::AdamW optimizer(two_groups(ours), AdamWOptions(1e-3), in_ram());
  torch::optim::AdamW reference(two_groups(theirs), AdamWOptions(1e-3));
  torch::optim::AdamW in_f64(two_groups(exact), AdamWOptions(1e-3));
  const std::vector<double> losses = train(ours, optimizer, 50), of_torch = train(theirs, reference, 50);
  const std::vector<double> expected = train(exact, in_f64, 50);
  EXPECT_LT(gap(losses, expected), std::max(1e-6, 2 * gap(of_torch, expected)))
      << "torch's is " << gap(of_torch, expected);
  EXPECT_LT(gap(losses, of_torch), 3e-6);
  EXPECT_LT(losses.back(), 0.5 * losses.front());
  EXPECT_LT(largest_difference(values_of(ours), values_of(theirs)), 2e-6);
  EXPECT_EQ(optimizer.steps(), 50);
  RecordProperty("gap", std::to_string(1e6 * gap(losses, expected)) + "e-6, of torch " +
                            std::to_string(1e6 * gap(of_torch, expected)) + "e-6");
}

template <class Ours, class Theirs, class Options>
void expect_same_steps(const Options& options) {
  torch::nn::Sequential ours = make_model(), theirs = make_model();
  Ours optimizer(ours->parameters(), options, in_ram());
  Theirs reference(theirs->parameters(), options);
  train(ours, optimizer, 20);
  train(theirs, reference, 20);
  EXPECT_LT(largest_difference(values_of(ours), values_of(theirs)), 2e-6);
}

TEST(LibTorchTest, OtherOptimizersUpdateAsTheirNamesakes) {
  expect_same_steps<strata::torch::Adam, torch::optim::Adam>(
      torch::optim::AdamOptions(3e-3).weight_decay(0.01));
  expect_same_steps<strata::torch::Adagrad, torch::optim::Adagrad>(torch::optim::AdagradOptions(1e-2));
  expect_same_steps<strata::torch::SGD, torch::optim::SGD>(torch::optim::SGDOptions(1e-2));
  expect_same_steps<strata::torch::SGD, torch::optim::SGD>(
      torch::optim::SGDOptions(1e-2).momentum(0.9).nesterov(true).weight_decay(0.01));
}

TEST(LibTorchTest, LionAndLAMBLowerTheLoss) {
  torch::nn::Sequential with_lion = make_model(), with_lamb = make_model();
  strata::torch::Lion lion(with_lion->parameters(), strata::torch::LionOptions(1e-3), in_ram());
  strata::torch::LAMB lamb(with_lamb->parameters(), strata::torch::LAMBOptions(1e-2), in_ram());
  for (const std::vector<double>& losses : {train(with_lion, lion, 60), train(with_lamb, lamb, 60)})
    EXPECT_LT(losses.back(), 0.5 * losses.front());
}

TEST(LibTorchTest, GroupsKeepOptionsOfClassesThatTorchDoesNotKnow) {
  using strata::torch::LionOptions;
  const Tensor a = param_of({1}), b = param_of({1}), c = param_of({1});
  std::vector<OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<Tensor>{a}, std::make_unique<LionOptions>(0.5));
  groups.emplace_back(std::vector<Tensor>{b});
  strata::torch::Lion optimizer(groups, LionOptions(0.25), in_ram());
  optimizer.add_param_group({std::vector<Tensor>{c}, std::make_unique<LionOptions>(0.125)});
  for (const Tensor& param : {a, b, c}) set_gradient(param);
  optimizer.step();  // Lion steps by the sign of the gradient
  EXPECT_EQ(a.item<float>(), 0.5F);
  EXPECT_EQ(b.item<float>(), 0.75F);
  EXPECT_EQ(c.item<float>(), 0.875F);
  expect_error(STRATA_UNSUPPORTED, "is Double",
               [&] { optimizer.add_param_group(std::vector<Tensor>{torch::ones({1}, torch::kDouble)}); });
  EXPECT_EQ(optimizer.param_groups().size(), 3U);
}

TEST(LibTorchTest, ASchedulerSetsTheRateOfEveryGroup) {
  torch::nn::Sequential ours = make_model(), theirs = make_model();
  strata::torch::AdamW optimizer(two_groups(ours), AdamWOptions(1e-3), in_ram());
  torch::optim::AdamW reference(two_groups(theirs), AdamWOptions(1e-3));
  torch::optim::StepLR schedule(optimizer, 2, 0.5), expected(reference, 2, 0.5);
  for (int step = 0; step < 10; ++step) {
    train(ours, optimizer, 1, step);
    train(theirs, reference, 1, step);
    schedule.step();
    expected.step();
  }
  EXPECT_LT(optimizer.param_groups()[1].options().get_lr(), 3e-3 / 8);
  for (std::size_t g = 0; g < 2; ++g)
    EXPECT_EQ(optimizer.param_groups()[g].options().get_lr(), reference.param_groups()[g].options().get_lr());
  EXPECT_LT(largest_difference(values_of(ours), values_of(theirs)), 2e-6);
}

TEST(LibTorchTest, SixteenBitParametersAreTrainedByF32Masters) {
  for (const torch::ScalarType dtype : {torch::kBFloat16, torch::kHalf}) {
    torch::manual_seed(2);
    const Tensor param = torch::randn({40, 30}).to(dtype).requires_grad_();
    const Tensor master = param.detach().to(torch::kFloat).requires_grad_();
    strata::torch::AdamW optimizer({param}, AdamWOptions(1e-4), in_ram());
    torch::optim::AdamW reference({master}, AdamWOptions(1e-4));
    for (int step = 0; step < 50; ++step) {
      param.mutable_grad() = torch::randn({40, 30}).to(dtype);
      master.mutable_grad() = param.grad().to(torch::kFloat);
      optimizer.step();
      reference.step();
    }
    const Tensor expected = master.detach().to(dtype);
    // The masters differ by a few ulps, so that few values may round to the other neighbour.
    EXPECT_LT((param.detach() != expected).sum().item<std::int64_t>(), 5);
    EXPECT_TRUE(torch::allclose(param.detach().to(torch::kFloat), expected.to(torch::kFloat), 1e-2, 1e-4));
  }
}

TEST(LibTorchTest, StatesOnNvmeGiveTheBitsOfStatesInRam) {
  for (const strata_state_format format : {STRATA_STATES_F32, STRATA_STATES_BF16, STRATA_STATES_INT8}) {
    const TempDir dir;
    torch::nn::Sequential ram = make_model(), nvme = make_model();
    strata::torch::AdamW in_memory(two_groups(ram), AdamWOptions(1e-3),
                                   in_ram().states(format).chunk_elems(4096).rounding_seed(7));
    strata::torch::AdamW on_disk(two_groups(nvme), AdamWOptions(1e-3),
                                 on_nvme(dir).states(format).rounding_seed(7));
    const std::vector<double> losses = train(ram, in_memory, 50);
    train(nvme, on_disk, 50);
    EXPECT_LT(losses.back(), 0.5 * losses.front());
    EXPECT_EQ(differing_bytes(values_of(ram), values_of(nvme)), 0) << "format " << format;
    EXPECT_EQ(in_memory.stats().nvme_written_bytes, 0U);
    EXPECT_GT(on_disk.stats().nvme_written_bytes, 0U);
  }
}

TEST(LibTorchTest, ThePlanSaysWhatTheStatesUse) {
  const TempDir dir;
  torch::nn::Sequential model = make_model();
  strata::torch::AdamW optimizer(model->named_parameters(), AdamWOptions(1e-3), on_nvme(dir));
  const strata_plan plan = optimizer.plan();
  EXPECT_EQ(plan.n_params, 16 * 96 + 96 + 96 * 96 + 96 + 96 * 4 + 4);
  EXPECT_FALSE(optimizer.notes().empty());
  EXPECT_EQ(optimizer.stats().pinned_bytes, 0U);  // nothing is allocated yet
  train(model, optimizer, 2);
  EXPECT_EQ(optimizer.stats().peak_pinned_bytes, plan.pinned_bytes);
  EXPECT_EQ(optimizer.stats().peak_nvme_bytes, plan.nvme_bytes);
  EXPECT_EQ(optimizer.plan().n_params, plan.n_params);
}

TEST(LibTorchTest, ABudgetThatIsTooSmallIsRefusedBeforeTheFirstStep) {
  torch::nn::Sequential model = make_model();
  strata::torch::AdamW optimizer(model->named_parameters(), AdamWOptions(1e-3), in_ram().pinned_bytes(4096));
  expect_error(STRATA_DOES_NOT_FIT, "pinned", [&] { optimizer.plan(); });
  const std::vector<Tensor> before = values_of(model);
  expect_error(STRATA_DOES_NOT_FIT, "pinned", [&] { train(model, optimizer, 1); });
  EXPECT_EQ(differing_bytes(values_of(model), before), 0);
}

TEST(LibTorchTest, ARunThatResumesHasTheBitsOfOneThatDoesNotStop) {
  for (const bool in_bf16 : {false, true}) {
    const TempDir checkpoints, nvme;
    torch::nn::Sequential whole = make_model(), first = make_model(), second = make_model();
    std::vector<Tensor> expected, resumed;
    const auto convert = [&](torch::nn::Sequential& model) {
      if (in_bf16) model->to(torch::kBFloat16);
    };
    const auto steps = [&](torch::nn::Sequential& model, torch::optim::Optimizer& optimizer, int n,
                           int from) {
      for (int step = from; step < from + n; ++step) {
        int i = 0;
        for (Tensor& param : model->parameters())
          param.mutable_grad() =
              step % 2 == 1 && i++ == 0
                  ? Tensor()
                  : torch::sin(param.detach().to(torch::kFloat) * (step + 1)).to(param.dtype());
        optimizer.step();
      }
    };
    for (torch::nn::Sequential* model : {&whole, &first, &second}) convert(*model);
    strata::torch::AdamW never_stops(whole->named_parameters(), AdamWOptions(1e-3), in_ram());
    steps(whole, never_stops, 13, 0);
    std::string folder;
    {
      strata::torch::AdamW stops(first->named_parameters(), AdamWOptions(1e-3), in_ram());
      steps(first, stops, 6, 0);
      folder = stops.save(checkpoints.path());
    }
    EXPECT_EQ(folder, checkpoints.path() + "/step-00000006");
    EXPECT_EQ(strata::torch::newest_checkpoint(checkpoints.path()), folder);
    strata::torch::AdamW resumes(second->named_parameters(), AdamWOptions(1e-3), on_nvme(nvme));
    const std::uint32_t version = second->parameters()[0]._version();
    resumes.load(folder);
    EXPECT_GT(second->parameters()[0]._version(), version);
    EXPECT_EQ(differing_bytes(values_of(second), values_of(first)), 0);
    steps(second, resumes, 7, 6);
    EXPECT_EQ(differing_bytes(values_of(second), values_of(whole)), 0) << "bf16: " << in_bf16;
    EXPECT_EQ(resumes.steps(), 13);
  }
}

TEST(LibTorchTest, KeepRemovesTheOldestCheckpoints) {
  const TempDir dir;
  const Tensor param = param_of({1, 2});
  strata::torch::AdamW optimizer({param}, AdamWOptions(1e-3), in_ram());
  EXPECT_EQ(strata::torch::newest_checkpoint(dir.path() + "/absent"), "");
  for (int step = 0; step < 3; ++step) {
    set_gradient(param);
    optimizer.step();
    optimizer.save(dir.path(), 2);
  }
  EXPECT_FALSE(fs::exists(dir.path() + "/step-00000001"));
  EXPECT_TRUE(fs::exists(dir.path() + "/step-00000002"));
  EXPECT_EQ(strata::torch::newest_checkpoint(dir.path()), dir.path() + "/step-00000003");
  expect_error(STRATA_NOT_FOUND, "step-00000001", [&] { optimizer.load(dir.path() + "/step-00000001"); });
}

TEST(LibTorchTest, AClosureRunsWithGradients) {
  torch::nn::Sequential model = make_model();
  strata::torch::AdamW optimizer(model->parameters(), AdamWOptions(1e-3), in_ram());
  const Tensor loss = optimizer.step([&] {
    optimizer.zero_grad();
    Tensor made = loss_of(model, 0);
    made.backward();
    return made;
  });
  EXPECT_TRUE(loss.requires_grad());
  EXPECT_EQ(optimizer.steps(), 1);
}

TEST(LibTorchTest, AnUpdateIsSeenByAutograd) {
  const Tensor param = param_of({1, 2, 3});
  strata::torch::SGD optimizer({param}, torch::optim::SGDOptions(0.1), in_ram());
  const Tensor stale = (param * param).sum();
  set_gradient(param);
  optimizer.step();
  EXPECT_THROW(stale.backward(), c10::Error);  // saved for the backward pass, and overwritten
}

TEST(LibTorchTest, GradientsInOtherMemoryOrdersAndDtypesAreRead) {
  const Tensor plain = torch::ones({2, 3, 4, 5}).requires_grad_();
  const Tensor last =
      torch::ones({2, 3, 4, 5}).contiguous(torch::MemoryFormat::ChannelsLast).requires_grad_();
  const Tensor gradient = torch::arange(120, torch::kFloat).view({2, 3, 4, 5});
  strata::torch::SGD optimizer({plain, last}, torch::optim::SGDOptions(1), in_ram());
  plain.mutable_grad() = gradient.contiguous(torch::MemoryFormat::ChannelsLast);
  last.mutable_grad() = gradient;
  optimizer.step();
  EXPECT_TRUE(torch::equal(plain.detach(), 1 - gradient));
  EXPECT_TRUE(torch::equal(last.detach(), 1 - gradient));
  plain.mutable_grad() = (-gradient).to(torch::kBFloat16);  // as a trainer that keeps its own may set it
  last.mutable_grad() = Tensor();
  optimizer.step();
  EXPECT_TRUE(torch::equal(plain.detach(), torch::ones({2, 3, 4, 5})));
}

TEST(LibTorchTest, ParametersThatAreAddedLaterGetStates) {
  const TempDir dir;
  const Tensor first = param_of({1, 2}), second = param_of({3, 4}),
               empty = torch::empty({0}).requires_grad_();
  strata::torch::AdamW optimizer({first, empty}, AdamWOptions(0.1), in_ram());
  set_gradient(first);
  optimizer.step();
  optimizer.add_param_group(OptimizerParamGroup({second}, std::make_unique<AdamWOptions>(0.2)));
  set_gradient(second);
  optimizer.step();
  EXPECT_NEAR(second[0].item<float>(), 3 * (1 - 0.2 * 0.01) - 0.2, 1e-5);
  expect_error(STRATA_UNSUPPORTED, "added after the first step", [&] { optimizer.save(dir.path()); });
}

TEST(LibTorchTest, ParametersThatCannotBeUpdatedAreRefusedByName) {
  torch::nn::Sequential of_double = make_model();
  of_double->to(torch::kDouble);
  expect_error(STRATA_UNSUPPORTED, "parameter '0.weight' is Double",
               [&] { strata::torch::AdamW optimizer(of_double->named_parameters()); });
  expect_error(STRATA_UNSUPPORTED, "parameter 'param.1' is on meta", [&] {
    strata::torch::AdamW optimizer({param_of({1}), torch::empty({2}, torch::kMeta)});
  });
  expect_error(STRATA_UNSUPPORTED, "its elements must fill their memory", [&] {
    strata::torch::AdamW optimizer(std::vector<Tensor>{torch::ones({4, 4}).select(1, 0)});
  });

  torch::nn::Sequential model = make_model();
  strata::torch::AdamW optimizer(model->named_parameters(), AdamWOptions(1e-3), in_ram());
  train(model, optimizer, 1);
  model->to(torch::kDouble);
  for (const Tensor& param : model->parameters()) set_gradient(param);
  expect_error(STRATA_UNSUPPORTED, "parameter '0.weight' is Double", [&] { optimizer.step(); });
}

TEST(LibTorchTest, AParameterWhoseMemoryChangedIsRefused) {
  const Tensor param = param_of({1, 2, 3, 4});
  strata::torch::AdamW optimizer({param}, AdamWOptions(1e-3), in_ram());
  set_gradient(param);
  optimizer.step();
  param.set_data(torch::ones({2}));
  set_gradient(param);
  expect_error(STRATA_INVALID, "parameter 'param.0' was Float of [4]", [&] { optimizer.step(); });
  param.set_data(torch::ones({4}));
  set_gradient(param);
  optimizer.step();  // at another address
  EXPECT_EQ(optimizer.steps(), 2);
  param.storage().set_nbytes(4);
  expect_error(STRATA_INVALID, "the storage of parameter 'param.0' has 4 bytes; its elements need 16",
               [&] { optimizer.step(); });
  param.storage().set_nbytes(16);
}

TEST(LibTorchTest, ParametersThatShareMemoryAreRefused) {
  const Tensor whole = torch::ones({8});
  const Tensor a = whole.narrow(0, 0, 4).requires_grad_(), b = whole.narrow(0, 3, 4).requires_grad_();
  const Tensor c = whole.narrow(0, 4, 4).requires_grad_();
  expect_error(STRATA_INVALID, "share memory", [&] { strata::torch::AdamW optimizer({a, b}); });
  expect_error(STRATA_INVALID, "must be given once", [&] { strata::torch::AdamW optimizer({a, a}); });
  strata::torch::AdamW optimizer({a, c}, AdamWOptions(1e-3), in_ram());  // parts of one buffer
  for (const Tensor& param : {a, c}) set_gradient(param);
  optimizer.step();
  c.set_data(a.detach());
  const TempDir folder;
  expect_error(STRATA_INVALID, "'param.0' and 'param.1' share memory",
               [&] { optimizer.save(folder.path()); });
  for (int attempt = 0; attempt < 2; ++attempt)
    expect_error(STRATA_INVALID, "'param.0' and 'param.1' share memory", [&] { optimizer.step(); });
}

// Under its shape a file would have the elements in the wrong order.
TEST(LibTorchTest, AParameterInAnotherMemoryOrderIsNotSaved) {
  const Tensor last =
      torch::ones({2, 3, 4, 5}).contiguous(torch::MemoryFormat::ChannelsLast).requires_grad_();
  strata::torch::AdamW optimizer({last}, AdamWOptions(1e-3), in_ram());
  const TempDir folder;
  expect_error(STRATA_UNSUPPORTED, "a checkpoint needs contiguous parameters",
               [&] { optimizer.save(folder.path()); });
}

TEST(LibTorchTest, GradientsThatCannotBeReadAreRefusedByName) {
  const Tensor table = torch::ones({4, 2}).requires_grad_();
  strata::torch::AdamW optimizer({table}, AdamWOptions(1e-3), in_ram());
  torch::embedding(table, torch::tensor({1, 2}), -1, false, /*sparse=*/true).sum().backward();
  expect_error(STRATA_UNSUPPORTED, "the gradient of parameter 'param.0' is Sparse",
               [&] { optimizer.step(); });
  EXPECT_TRUE(torch::equal(table.detach(), torch::ones({4, 2})));
}

TEST(LibTorchTest, SettingsThatAreNotSupportedAreRefused) {
  const std::vector<Tensor> params = {param_of({1}), param_of({2})};
  expect_error(STRATA_UNSUPPORTED, "amsgrad",
               [&] { strata::torch::AdamW optimizer(params, AdamWOptions().amsgrad(true)); });
  expect_error(STRATA_UNSUPPORTED, "dampening=0.5", [&] {
    strata::torch::SGD optimizer(params, torch::optim::SGDOptions(1).momentum(0.9).dampening(0.5));
  });
  expect_error(STRATA_UNSUPPORTED, "lr_decay=0.1", [&] {
    strata::torch::Adagrad optimizer(params, torch::optim::AdagradOptions(1).lr_decay(0.1));
  });
  expect_error(STRATA_INVALID, "lr is -1", [&] { strata::torch::AdamW optimizer(params, AdamWOptions(-1)); });
  std::vector<OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<Tensor>{params[0]}, std::make_unique<torch::optim::SGDOptions>(1.0));
  expect_error(STRATA_INVALID, "those of another optimizer", [&] { strata::torch::AdamW optimizer(groups); });
  expect_error(STRATA_INVALID, "those of another optimizer", [&] {
    strata::torch::AdamW optimizer(params);
    optimizer.add_param_group(groups[0]);
  });
  groups.emplace_back(std::vector<Tensor>{params[1]},
                      std::make_unique<torch::optim::SGDOptions>(torch::optim::SGDOptions(1).momentum(0.9)));
  expect_error(STRATA_UNSUPPORTED, "some groups have momentum",
               [&] { strata::torch::SGD optimizer(groups); });

  strata::torch::AdamW optimizer(params, AdamWOptions(1e-3), in_ram());
  for (const Tensor& param : params) set_gradient(param);
  optimizer.step();
  auto& options = static_cast<AdamWOptions&>(optimizer.param_groups()[0].options());
  options.betas(std::make_tuple(0.9, 1.5));
  expect_error(STRATA_INVALID, "param.0", [&] { optimizer.step(); });
  expect_error(STRATA_INVALID, "before their states are made",
               [&] { optimizer.name_parameters(strata::torch::Optimizer::Named()); });
  torch::serialize::OutputArchive archive;
  expect_error(STRATA_UNSUPPORTED, "not by archives", [&] { optimizer.save(archive); });
}

TEST(LibTorchTest, AMovedOptimizerGoesOnAndItsFormerSelfRefuses) {
  torch::nn::Sequential model = make_model(), other = make_model();
  strata::torch::AdamW first(model->named_parameters(), AdamWOptions(1e-3), in_ram());
  strata::torch::AdamW stays(other->named_parameters(), AdamWOptions(1e-3), in_ram());
  train(model, first, 3);
  strata::torch::AdamW second(std::move(first));
  train(model, second, 3, 3);
  train(other, stays, 6);
  EXPECT_EQ(differing_bytes(values_of(model), values_of(other)), 0);
  // NOLINTNEXTLINE(bugprone-use-after-move): what is tested
  expect_error(STRATA_CLOSED, "was moved", [&] { first.step(); });
  second.close();
  expect_error(STRATA_CLOSED, "was closed", [&] { second.step(); });
}

}  // namespace
