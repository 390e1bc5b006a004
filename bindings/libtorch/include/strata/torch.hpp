/// strata for LibTorch 1.13 and later: the optimizers of torch::optim with states in RAM and on NVMe.
///
///   strata::torch::AdamW optimizer(model->named_parameters(), torch::optim::AdamWOptions(1e-4),
///                                  strata::torch::StateOptions().nvme_dirs({"/mnt/nvme/strata"}));
///
/// They are torch::optim::Optimizers: parameter groups, schedulers, closures, clipping and zero_grad() work
/// as with torch. Parameters and gradients stay in tensors of the program, in CPU memory.
///
/// C++17, headers alone, over strata.h: whatever libstdc++ ABI a LibTorch was built for.
#pragma once

#include <strata/torch/optimizer.hpp>

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace strata::torch {

namespace detail {

struct AdamWKind {
  using Options = ::torch::optim::AdamWOptions;
  static constexpr strata_optimizer kOptimizer = STRATA_ADAMW;
  static constexpr const char* kName = "AdamW";
  static constexpr bool kHasOwnOptions = false;
  static Options defaults() { return {}; }
  template <class AdamOptions>
  static void read(const AdamOptions& options, strata_settings& settings) {
    if (options.amsgrad()) fail(STRATA_UNSUPPORTED, "AdamW and Adam: amsgrad is not supported");
    std::tie(settings.beta1, settings.beta2) = options.betas();
    settings.eps = options.eps();
  }
};

struct AdamKind {
  using Options = ::torch::optim::AdamOptions;
  static constexpr strata_optimizer kOptimizer = STRATA_ADAM;
  static constexpr const char* kName = "Adam";
  static constexpr bool kHasOwnOptions = false;
  static Options defaults() { return {}; }
  static void read(const Options& options, strata_settings& settings) { AdamWKind::read(options, settings); }
};

struct LionKind {
  using Options = LionOptions;
  static constexpr strata_optimizer kOptimizer = STRATA_LION;
  static constexpr const char* kName = "Lion";
  static constexpr bool kHasOwnOptions = true;
  static Options defaults() { return {}; }
  static void read(const Options& options, strata_settings& settings) {
    std::tie(settings.beta1, settings.beta2) = options.betas();
  }
};

struct LAMBKind {
  using Options = LAMBOptions;
  static constexpr strata_optimizer kOptimizer = STRATA_LAMB;
  static constexpr const char* kName = "LAMB";
  static constexpr bool kHasOwnOptions = true;
  static Options defaults() { return {}; }
  static void read(const Options& options, strata_settings& settings) {
    std::tie(settings.beta1, settings.beta2) = options.betas();
    settings.eps = options.eps();
  }
};

struct AdagradKind {
  using Options = ::torch::optim::AdagradOptions;
  static constexpr strata_optimizer kOptimizer = STRATA_ADAGRAD;
  static constexpr const char* kName = "Adagrad";
  static constexpr bool kHasOwnOptions = false;
  static Options defaults() { return {}; }
  static void read(const Options& options, strata_settings& settings) {
    if (options.lr_decay() != 0 || options.initial_accumulator_value() != 0)
      fail(STRATA_UNSUPPORTED, "Adagrad: lr_decay=", options.lr_decay(),
           " and initial_accumulator_value=", options.initial_accumulator_value(),
           " are not supported; both must be 0");
    settings.eps = options.eps();
  }
};

struct SGDKind {
  using Options = ::torch::optim::SGDOptions;
  static constexpr strata_optimizer kOptimizer = STRATA_SGD;
  static constexpr const char* kName = "SGD";
  static constexpr bool kHasOwnOptions = false;
  static Options defaults() { return {1e-3}; }
  static void read(const Options& options, strata_settings& settings) {
    if (options.dampening() != 0)
      fail(STRATA_UNSUPPORTED, "SGD: dampening=", options.dampening(), " is not supported; it must be 0");
    settings.momentum = options.momentum();
    settings.nesterov = options.nesterov() ? 1 : 0;
  }
};

/// The optimizer of a kind, with the constructors of torch's.
template <class Kind>
class OptimizerOf final : public Optimizer {
 public:
  using Options = typename Kind::Options;

  /// Throws Error, naming the parameter, if one cannot be updated where it is, or if two share memory.
  explicit OptimizerOf(const std::vector<Group>& groups, const Options& defaults = Kind::defaults(),
                       StateOptions states = {})
      : Optimizer(std::make_unique<Options>(defaults), Kind::kOptimizer, std::move(states)) {
    for (const Group& group : groups) add(group);
    check();
  }
  /// The same, of one group.
  explicit OptimizerOf(std::vector<Tensor> params, const Options& defaults = Kind::defaults(),
                       StateOptions states = {})
      : OptimizerOf(std::vector<Group>{Group(std::move(params))}, defaults, std::move(states)) {}
  /// Takes module->named_parameters(), whose names errors and checkpoints then have.
  explicit OptimizerOf(const Named& params, const Options& defaults = Kind::defaults(),
                       StateOptions states = {})
      : Optimizer(std::make_unique<Options>(defaults), Kind::kOptimizer, std::move(states)) {
    name_parameters(params);
    add(Group(params.values()));
    check();
  }

  /// Throws as the constructors do; the group is then not added.
  void add_param_group(const Group& group) {
    add(group);
    try {
      check();
    } catch (...) {
      param_groups_.pop_back();
      throw;
    }
  }

 private:
  void add(const Group& group) {
    if (group.has_options()) read(group);
    ::torch::optim::Optimizer::add_param_group(group);
    // LibTorch 2.15 keeps options of its own classes alone, and replaces others by the optimizer's defaults.
    if (Kind::kHasOwnOptions && group.has_options())
      param_groups_.back().set_options(
          std::make_unique<Options>(static_cast<const Options&>(group.options())));
  }

  strata_settings settings_of(const Group& group) const override { return read(group); }

  static strata_settings read(const Group& group) {
    const auto* const options = dynamic_cast<const Options*>(&group.options());
    if (options == nullptr)
      fail(STRATA_INVALID, Kind::kName, ": the options of a group are those of another optimizer");
    strata_settings settings{};
    settings.struct_size = sizeof settings;
    settings.lr = options->lr();
    settings.weight_decay = options->weight_decay();
    settings.grad_factor = 1;
    Kind::read(*options, settings);
    if (!(settings.lr >= 0) || std::isinf(settings.lr))
      fail(STRATA_INVALID, Kind::kName, ": lr is ", settings.lr, "; it must be at least 0");
    return settings;
  }
};

}  // namespace detail

/// Each has the options, defaults and rule of its namesake in torch::optim. Refused with STRATA_UNSUPPORTED:
/// amsgrad, dampening, lr_decay, initial_accumulator_value, sparse gradients.
using AdamW = detail::OptimizerOf<detail::AdamWKind>;
using Adam = detail::OptimizerOf<detail::AdamKind>;
using Adagrad = detail::OptimizerOf<detail::AdagradKind>;
using SGD = detail::OptimizerOf<detail::SGDKind>;
using Lion = detail::OptimizerOf<detail::LionKind>;
using LAMB = detail::OptimizerOf<detail::LAMBKind>;

/// The newest checkpoint in `dir`, for Optimizer::load(); empty if there is none.
inline std::string newest_checkpoint(const std::string& dir) {
  std::string newest;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(dir, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool is_checkpoint =
        name.size() >= 13 && name.compare(0, 5, "step-") == 0 &&
        std::all_of(name.begin() + 5, name.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
    if (is_checkpoint && std::make_pair(name.size(), name) > std::make_pair(newest.size(), newest))
      newest = name;
  }
  return newest.empty() ? newest : dir + "/" + newest;
}

}  // namespace strata::torch
