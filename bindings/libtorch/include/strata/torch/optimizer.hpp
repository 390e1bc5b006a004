/// The common part of the optimizers of strata/torch.hpp.
#pragma once

#include <strata/torch/params.hpp>

#include <torch/optim/optimizer.h>
#include <torch/ordered_dict.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace strata::torch {

/// The common part of the optimizers. States are made by the first step, save() or load(), of the parameters
/// that require a gradient then; parameters that are added later get states of their own at the next step.
/// Parameters are f32, bf16 or f16; 16-bit ones are trained by f32 masters, which are among the states.
///
/// One thread at a time may use an optimizer. A moved-from one throws STRATA_CLOSED. After an error of NVMe
/// or memory in a step the states belong to no step until load().
class Optimizer : public ::torch::optim::Optimizer {
 public:
  using Tensor = ::torch::Tensor;
  using Named = ::torch::OrderedDict<std::string, Tensor>;
  using Group = ::torch::optim::OptimizerParamGroup;

  Optimizer(Optimizer&&) = default;

  /// Names parameters in errors and checkpoints; those without a name are "param.0", "param.1" and so on,
  /// counted over all groups. Throws STRATA_INVALID when states exist.
  void name_parameters(const Named& named) {
    if (!sealed_.empty())
      detail::fail(STRATA_INVALID, "parameters must be named before their states are made");
    for (const auto& item : named) names_.emplace(item.value().unsafeGetTensorImpl(), item.key());
  }

  /// One step of the parameters that have a gradient, where they lie. Returns what the closure returned.
  /// Settings of groups are read here. Throws Error naming the parameter, before anything has changed.
  Tensor step(LossClosure closure = nullptr) override {
    check_usable();
    Tensor loss;
    if (closure != nullptr) {
      const ::torch::AutoGradMode with_gradients(true);
      loss = closure();
    }
    const ::torch::NoGradGuard without_gradients;
    collect();
    update();
    return loss;
  }

  /// The memory that the states of the parameters that require a gradient will need. Throws
  /// STRATA_DOES_NOT_FIT with the smallest budgets that do.
  strata_plan plan() const {
    strata_plan made{};
    made.struct_size = sizeof made;
    detail::must(strata_session_plan(planned().get(), &made));
    return made;
  }

  /// Says what is planned and why, a sentence per line.
  std::string notes() const {
    const detail::Session session = planned();
    std::size_t needed = 0;
    detail::must(strata_session_notes(session.get(), nullptr, 0, &needed));
    std::string text(needed, '\0');
    detail::must(strata_session_notes(session.get(), &text[0], needed, nullptr));
    text.resize(needed - 1);
    return text;
  }

  /// The memory that the states use; zero before the first step.
  strata_stats stats() const {
    strata_stats total{};
    total.struct_size = sizeof total;
    for (const detail::Sealed& sealed : sealed_) {
      strata_stats of{};
      of.struct_size = sizeof of;
      detail::must(strata_session_stats(sealed.session.get(), &of));
      total.pinned_bytes += of.pinned_bytes;
      total.nvme_bytes += of.nvme_bytes;
      total.peak_pinned_bytes += of.peak_pinned_bytes;
      total.peak_nvme_bytes += of.peak_nvme_bytes;
      total.nvme_read_bytes += of.nvme_read_bytes;
      total.nvme_written_bytes += of.nvme_written_bytes;
      total.nvme_read_seconds += of.nvme_read_seconds;
      total.nvme_write_seconds += of.nvme_write_seconds;
    }
    return total;
  }

  /// Steps done.
  std::int64_t steps() const {
    std::int64_t most = 0;
    for (const detail::Sealed& sealed : sealed_) most = std::max(most, steps_of(sealed));
    return most;
  }

  /// Writes masters, moments and step counts to `dir`/step-NNNNNNNN and returns that path; then removes the
  /// oldest checkpoints beyond `keep` (0: none). Buffers of a model and settings of groups are not in it.
  std::string save(const std::string& dir, std::int32_t keep = 0) {
    const detail::Sealed& sealed = bound();
    detail::must(strata_session_save(sealed.session.get(), dir.c_str(), keep));
    const std::string number = std::to_string(steps_of(sealed));
    return dir + "/step-" + std::string(number.size() < 8 ? 8 - number.size() : 0, '0') + number;
  }

  /// Loads such a folder: states, step counts, and the parameters themselves. It must have the same
  /// parameters by name and shape; where states live and how moments are stored may differ.
  void load(const std::string& folder) {
    const detail::Sealed& sealed = bound();
    detail::must(strata_session_load(sealed.session.get(), folder.c_str()));
    for (const detail::Param& param : sealed.params) param.tensor.unsafeGetTensorImpl()->bump_version();
  }

  /// Not supported: an archive would need all states in memory.
  void save(::torch::serialize::OutputArchive&) const override { refuse_archive(); }
  void load(::torch::serialize::InputArchive&) override { refuse_archive(); }

  /// Gives back memory and files of the states; the parameters stay. Other calls then throw STRATA_CLOSED.
  void close() noexcept {
    for (const detail::Sealed& sealed : sealed_) sealed.session.close();
    is_closed_ = true;
  }

 protected:
  Optimizer(std::unique_ptr<::torch::optim::OptimizerOptions> defaults, strata_optimizer optimizer,
            StateOptions states)
      : ::torch::optim::Optimizer(std::vector<Group>(), std::move(defaults)),
        optimizer_(optimizer),
        states_(std::move(states)) {}

  /// Throws what step() would: for constructors.
  void check() const {
    detail::OverlapCheck overlap;
    const std::vector<detail::Param> params = checked_params(/*only_new=*/false);
    for (const detail::Param& param : params) overlap.add(param.tensor, param.name);
    overlap.check();
    has_momentum();
  }

 private:
  /// Throws if the options of a group have the wrong type or ask for what strata does not do.
  virtual strata_settings settings_of(const Group& group) const = 0;

  void check_usable() const {
    if (!defaults_) detail::fail(STRATA_CLOSED, "the optimizer was moved to another one");
    if (is_closed_) detail::fail(STRATA_CLOSED, "the optimizer was closed");
  }

  [[noreturn]] static void refuse_archive() {
    detail::fail(STRATA_UNSUPPORTED,
                 "states are saved by save(dir) and loaded by load(folder), not by archives");
  }

  bool has_momentum() const {
    std::size_t with = 0;
    for (const auto& group : param_groups_) with += settings_of(group).momentum > 0 ? 1 : 0;
    if (with > 0 && with < param_groups_.size())
      detail::fail(STRATA_UNSUPPORTED, "SGD: some groups have momentum and some have none");
    return with > 0;
  }

  static std::int64_t steps_of(const detail::Sealed& sealed) {
    std::int64_t steps = 0;
    detail::must(strata_session_steps(sealed.session.get(), &steps, nullptr, 0));
    return steps;
  }

  /// All parameters of the groups, checked, or those that need states and have none yet: they require a
  /// gradient, or still have one, with which torch would update them, too.
  std::vector<detail::Param> checked_params(bool only_new) const {
    std::vector<detail::Param> found;
    std::size_t number = 0;
    for (const auto& group : param_groups_)
      for (const Tensor& param : group.params()) {
        const auto named = names_.find(param.unsafeGetTensorImpl());
        const std::string name = named != names_.end() ? named->second : "param." + std::to_string(number);
        ++number;
        if (only_new && (place_of_.count(param.unsafeGetTensorImpl()) != 0 || param.numel() == 0 ||
                         !(param.requires_grad() || param.grad().defined())))
          continue;
        detail::check_param(param, name);
        found.emplace_back(param, name);
      }
    return found;
  }

  detail::Session session_of(const std::vector<detail::Param>& params) const {
    std::vector<const char*> dirs;
    for (const std::string& dir : states_.nvme_dirs()) dirs.push_back(dir.c_str());
    strata_session_options options{};
    options.struct_size = sizeof options;
    options.optimizer = optimizer_;
    options.has_momentum = has_momentum() ? 1 : 0;
    options.states = states_.states();
    options.placement = states_.placement();
    options.pinned_bytes = states_.pinned_bytes();
    options.nvme_bytes = states_.nvme_bytes();
    options.nvme_dirs = dirs.empty() ? nullptr : dirs.data();
    options.n_nvme_dirs = dirs.size();
    options.chunk_elems = states_.chunk_elems();
    options.threads = states_.threads();
    options.rounding_seed = states_.rounding_seed();
    detail::Session session(options);
    for (const detail::Param& param : params) {
      strata_param added{};
      added.struct_size = sizeof added;
      added.name = param.name.c_str();
      added.dtype = detail::dtype_of(param.tensor);
      added.n_dims = static_cast<std::int32_t>(param.sizes.size());
      added.dims = param.sizes.data();
      detail::must(strata_session_add(session.get(), &added));
    }
    return session;
  }

  /// A session that is not sealed, of what has states or will get them at the next step.
  detail::Session planned() const {
    check_usable();
    std::vector<detail::Param> params = checked_params(/*only_new=*/true);
    for (const detail::Sealed& sealed : sealed_)
      params.insert(params.end(), sealed.params.begin(), sealed.params.end());
    return session_of(params);
  }

  /// Makes states of the parameters that need them and have none.
  void seal() {
    std::vector<detail::Param> params = checked_params(/*only_new=*/true);
    if (params.empty()) return;
    check_overlap(params);
    detail::Session session = session_of(params);
    std::vector<void*> addresses;
    for (const detail::Param& param : params) addresses.push_back(param.tensor.data_ptr());
    detail::must(strata_session_seal(session.get(), addresses.data(), addresses.size()));
    sealed_.push_back({std::move(session), std::move(params), std::move(addresses), {}});
    for (std::size_t i = 0; i < sealed_.back().params.size(); ++i)
      place_of_[sealed_.back().params[i].tensor.unsafeGetTensorImpl()] = {sealed_.size() - 1, i};
  }

  /// The session of all parameters, which knows where they are.
  const detail::Sealed& bound() {
    check_usable();
    seal();
    if (sealed_.size() != 1)
      detail::fail(STRATA_UNSUPPORTED,
                   sealed_.empty() ? "no parameter requires a gradient, so that there are no states"
                                   : "parameters were added after the first step; a checkpoint must have all "
                                     "parameters of the optimizer from its first step on");
    detail::Sealed& sealed = sealed_.front();
    for (std::size_t i = 0; i < sealed.params.size(); ++i) {
      const detail::Param& param = sealed.params[i];
      param.check();
      if (!param.tensor.is_contiguous())
        detail::fail(STRATA_UNSUPPORTED, "parameter '", param.name, "' has strides ", param.tensor.strides(),
                     "; a checkpoint needs contiguous parameters");
      sealed.addresses[i] = param.tensor.data_ptr();
    }
    may_overlap_ = true;  // until it is known that they do not
    check_overlap();
    may_overlap_ = false;
    detail::must(strata_session_bind(sealed.session.get(), sealed.addresses.data(), sealed.addresses.size()));
    return sealed;
  }

  /// Sets the updates of a step.
  void collect() {
    for (detail::Sealed& sealed : sealed_) sealed.updates.clear();
    copies_.clear();
    settings_.clear();
    settings_.reserve(param_groups_.size());  // updates point to its elements
    for (const auto& group : param_groups_) {
      settings_.push_back(settings_of(group));
      for (const Tensor& param : group.params()) {
        if (!param.defined() || !param.grad().defined() || param.numel() == 0) continue;
        auto place = place_of_.find(param.unsafeGetTensorImpl());
        if (place == place_of_.end()) {
          seal();
          place = place_of_.find(param.unsafeGetTensorImpl());
        }
        detail::Sealed& sealed = sealed_[place->second.first];
        add_update(sealed, place->second.second);
      }
    }
    if (may_overlap_) check_overlap();
    may_overlap_ = false;
  }

  void add_update(detail::Sealed& sealed, std::size_t index) {
    const detail::Param& param = sealed.params[index];
    param.check();
    copies_.push_back(detail::dense_gradient(param.tensor, param.name));
    strata_update update{};
    update.struct_size = sizeof update;
    update.param = static_cast<std::int64_t>(index);
    update.values = param.tensor.data_ptr();
    update.gradient = copies_.back().data_ptr();
    update.gradient_dtype = detail::dtype_of(copies_.back());
    update.settings = &settings_.back();
    sealed.updates.push_back(update);
    if (std::exchange(sealed.addresses[index], update.values) != update.values) may_overlap_ = true;
  }

  /// Checks parameters that have states, and `others`, for memory that overlaps.
  void check_overlap(const std::vector<detail::Param>& others = {}) const {
    detail::OverlapCheck overlap;
    for (const detail::Param& param : others) overlap.add(param.tensor, param.name);
    for (const detail::Sealed& sealed : sealed_)
      for (const detail::Param& param : sealed.params) overlap.add(param.tensor, param.name);
    overlap.check();
  }

  void update() {
    for (const detail::Sealed& sealed : sealed_) {
      if (sealed.updates.empty()) continue;
      detail::must(strata_session_step(sealed.session.get(), sealed.updates.data(), sealed.updates.size()));
      // Autograd must know that values were overwritten, lest it uses them for a graph from before.
      for (const strata_update& written : sealed.updates)
        sealed.params[static_cast<std::size_t>(written.param)].tensor.unsafeGetTensorImpl()->bump_version();
    }
    copies_.clear();
  }

  using Place = std::pair<std::size_t, std::size_t>;  // number of a session, and of a parameter in it

  strata_optimizer optimizer_;
  StateOptions states_;
  bool is_closed_ = false;
  std::unordered_map<const ::c10::TensorImpl*, std::string> names_;
  std::vector<detail::Sealed> sealed_;
  std::unordered_map<const ::c10::TensorImpl*, Place> place_of_;
  std::vector<strata_settings> settings_;  // indexed by group
  bool may_overlap_ = false;    // a parameter is at another address than when this was last checked
  std::vector<Tensor> copies_;  // gradients live until they have been read
};

}  // namespace strata::torch
