/// Errors, and options of strata/torch.hpp.
#pragma once

#include <strata.h>

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

namespace strata::torch {

/// A call that failed; what() names the parameter or option, and the numbers.
class Error : public std::runtime_error {
 public:
  Error(strata_status status, const std::string& what) : std::runtime_error(what), status_(status) {}
  strata_status status() const noexcept { return status_; }

 private:
  strata_status status_;
};

/// How states are stored and where. What is not set has the default of strata_session_options.
struct StateOptions {
  /// How moments are stored.
  TORCH_ARG(strata_state_format, states) = STRATA_STATES_F32;
  /// AUTO: RAM as far as the budget has room, then NVMe.
  TORCH_ARG(strata_placement, placement) = STRATA_PLACE_AUTO;
  /// Budget of RAM; 0: 40 % of what is free if there is NVMe, else all of it.
  TORCH_ARG(std::uint64_t, pinned_bytes) = 0;
  /// Budget of NVMe; 0: as many bytes as needed.
  TORCH_ARG(std::uint64_t, nvme_bytes) = 0;
  /// Folders on NVMe; none: states are in RAM.
  TORCH_ARG(std::vector<std::string>, nvme_dirs);
  /// Elements that are moved and updated as a whole; 0: chosen.
  TORCH_ARG(std::int64_t, chunk_elems) = 0;
  /// Threads that update; 0: the cores of this process.
  TORCH_ARG(std::int32_t, threads) = 0;
  /// For stochastic rounding.
  TORCH_ARG(std::uint64_t, rounding_seed) = 0;
};

/// The options of Lion (Chen et al. 2023).
struct LionOptions : public ::torch::optim::OptimizerCloneableOptions<LionOptions> {
  LionOptions(double lr = 1e-4) : lr_(lr) {}  // NOLINT(google-explicit-constructor): as torch's options
  using betas_t = std::tuple<double, double>;
  TORCH_ARG(double, lr);
  TORCH_ARG(betas_t, betas) = std::make_tuple(0.9, 0.99);
  TORCH_ARG(double, weight_decay) = 0;

 public:
  double get_lr() const override { return lr_; }
  void set_lr(const double lr) override { lr_ = lr; }
};

/// The options of LAMB (You et al. 2020).
struct LAMBOptions : public ::torch::optim::OptimizerCloneableOptions<LAMBOptions> {
  LAMBOptions(double lr = 1e-3) : lr_(lr) {}  // NOLINT(google-explicit-constructor): as torch's options
  using betas_t = std::tuple<double, double>;
  TORCH_ARG(double, lr);
  TORCH_ARG(betas_t, betas) = std::make_tuple(0.9, 0.999);
  TORCH_ARG(double, eps) = 1e-6;
  TORCH_ARG(double, weight_decay) = 0;

 public:
  double get_lr() const override { return lr_; }
  void set_lr(const double lr) override { lr_ = lr; }
};

}  // namespace strata::torch
