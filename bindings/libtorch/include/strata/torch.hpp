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

#include <strata.h>

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/ordered_dict.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
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

/// Of Lion (Chen et al. 2023).
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

/// Of LAMB (You et al. 2020).
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

namespace detail {

using ::torch::Tensor;

inline void must(strata_status status) {
  if (status != STRATA_OK) throw Error(status, strata_last_error());
}

template <class... Parts>
[[noreturn]] void fail(strata_status status, const Parts&... parts) {
  throw Error(status, ::c10::str(parts...));
}

/// Owns a session.
class Session {
 public:
  explicit Session(const strata_session_options& options) { must(strata_session_create(&options, &handle_)); }
  Session(Session&& other) noexcept : handle_(std::exchange(other.handle_, 0)) {}
  Session& operator=(Session&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Session() { close(); }

  strata_session get() const noexcept { return handle_; }
  /// Calls with get() return STRATA_CLOSED from now on.
  void close() const noexcept {
    if (handle_ != 0) strata_session_close(handle_);
  }

 private:
  strata_session handle_ = 0;
};

/// The strata dtype of a tensor, or -1.
inline strata_dtype dtype_of(const Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case ::at::kFloat:
      return STRATA_F32;
    case ::at::kBFloat16:
      return STRATA_BF16;
    case ::at::kHalf:
      return STRATA_F16;
    default:
      return -1;
  }
}

/// Whether two tensors of one shape have their elements in the same order in memory.
inline bool same_order(::at::IntArrayRef sizes, ::at::IntArrayRef a, ::at::IntArrayRef b) {
  for (std::size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] != 1 && a[i] != b[i]) return false;
  return true;
}

/// Throws if a parameter cannot be updated where it is.
inline void check_param(const Tensor& param, const std::string& name) {
  if (!param.defined()) fail(STRATA_INVALID, "parameter '", name, "' is undefined");
  if (!param.device().is_cpu())
    fail(STRATA_UNSUPPORTED, "parameter '", name, "' is on ", param.device(),
         "; only parameters in CPU memory can be updated");
  if (dtype_of(param) < 0)
    fail(STRATA_UNSUPPORTED, "parameter '", name, "' is ", param.scalar_type(),
         "; it must be Float, BFloat16 or Half");
  if (param.layout() != ::at::kStrided || !param.is_non_overlapping_and_dense() || param.is_neg())
    fail(STRATA_UNSUPPORTED, "parameter '", name, "' is ", param.layout(), " with strides ", param.strides(),
         "; its elements must fill their memory");
  const std::int64_t needed =
      (param.storage_offset() + param.numel()) * static_cast<std::int64_t>(param.element_size());
  const auto stored = static_cast<std::int64_t>(param.storage().nbytes());
  if (param.numel() > 0 && stored < needed)
    fail(STRATA_INVALID, "the storage of parameter '", name, "' has ", stored, " bytes; its elements need ",
         needed);
}

/// The gradient in the memory order of its parameter: a copy only if it is in another one.
inline Tensor dense_gradient(const Tensor& param, const std::string& name) {
  const Tensor& gradient = param.grad();
  if (gradient.layout() != ::at::kStrided)
    fail(STRATA_UNSUPPORTED, "the gradient of parameter '", name, "' is ", gradient.layout(),
         "; only dense ones are supported");
  if (!gradient.device().is_cpu() || dtype_of(gradient) < 0)
    fail(STRATA_UNSUPPORTED, "the gradient of parameter '", name, "' is ", gradient.scalar_type(), " on ",
         gradient.device(), "; it must be Float, BFloat16 or Half in CPU memory");
  if (gradient.sizes() != param.sizes())
    fail(STRATA_INVALID, "the gradient of parameter '", name, "' has the shape ", gradient.sizes(),
         ", the parameter ", param.sizes());
  if (same_order(param.sizes(), gradient.strides(), param.strides()) && !gradient.is_neg()) return gradient;
  return ::at::empty_strided(param.sizes(), param.strides(), gradient.options()).copy_(gradient);
}

/// A parameter that has states.
struct Param {
  Tensor tensor;
  std::string name;
  ::at::ScalarType dtype;
  std::vector<std::int64_t> sizes, strides;

  Param(const Tensor& param, std::string param_name)
      : tensor(param),
        name(std::move(param_name)),
        dtype(param.scalar_type()),
        sizes(param.sizes().vec()),
        strides(param.strides().vec()) {}

  /// Throws if the tensor is not what its states were made for: memory would be overwritten.
  void check() const {
    check_param(tensor, name);
    if (tensor.scalar_type() != dtype || tensor.sizes() != sizes ||
        !same_order(sizes, tensor.strides(), strides))
      fail(STRATA_INVALID, "parameter '", name, "' was ", dtype, " of ", ::at::IntArrayRef(sizes),
           " with strides ", ::at::IntArrayRef(strides), " when its states were made, and is ",
           tensor.scalar_type(), " of ", tensor.sizes(), " with strides ", tensor.strides(),
           ": make a new optimizer after changing a model");
  }
};

/// Throws if two parameters have memory in common: each would overwrite what the other has learned.
class OverlapCheck {
 public:
  void add(const Tensor& param, const std::string& name) {
    if (param.numel() == 0) return;
    const auto begin = reinterpret_cast<std::uintptr_t>(param.data_ptr());
    ranges_.push_back({begin, begin + param.nbytes(), &name});
  }
  void check() {
    std::sort(ranges_.begin(), ranges_.end(),
              [](const Range& a, const Range& b) { return a.begin < b.begin; });
    for (std::size_t i = 1; i < ranges_.size(); ++i)
      if (ranges_[i].begin < ranges_[i - 1].end)
        fail(STRATA_INVALID, "parameters '", *ranges_[i - 1].name, "' and '", *ranges_[i].name,
             "' share memory; a shared parameter must be given once");
  }

 private:
  struct Range {
    std::uintptr_t begin, end;
    const std::string* name;
  };
  std::vector<Range> ranges_;
};

/// A session with the parameters that it was made for, and the updates of a step.
struct Sealed {
  Session session;
  std::vector<Param> params;
  std::vector<void*> addresses;  // where the parameters were last found
  std::vector<strata_update> updates;
};

}  // namespace detail

/// What the optimizers have in common. States are made by the first step, save() or load(), of the parameters
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

  /// What the states of the parameters that require a gradient will need. Throws STRATA_DOES_NOT_FIT with the
  /// smallest budgets that do.
  strata_plan plan() const {
    strata_plan made{};
    made.struct_size = sizeof made;
    detail::must(strata_session_plan(planned().get(), &made));
    return made;
  }

  /// What is planned and why, a sentence per line.
  std::string notes() const {
    const detail::Session session = planned();
    std::size_t needed = 0;
    detail::must(strata_session_notes(session.get(), nullptr, 0, &needed));
    std::string text(needed, '\0');
    detail::must(strata_session_notes(session.get(), &text[0], needed, nullptr));
    text.resize(needed - 1);
    return text;
  }

  /// What the states use; zero before the first step.
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
      sealed.params[i].check();
      sealed.addresses[i] = sealed.params[i].tensor.data_ptr();
    }
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

  /// Of what has states, and of `others`.
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
  std::vector<strata_settings> settings_;  // by group
  bool may_overlap_ = false;    // a parameter is at another address than when this was last checked
  std::vector<Tensor> copies_;  // gradients live until they have been read
};

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
  /// Of module->named_parameters(), whose names errors and checkpoints then have.
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
