#include "plan/planning.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>

#include <strata/cpuopt/master.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

#include "execute/activation_store.h"
#include "execute/execution_context.h"
#include "plan/undo_log_plan.h"
#include "plan/update_rules.h"

namespace strata {
namespace {

Status check(const EngineOptions& options) {
  if (options.grad_accum < 1)
    return Status::error(Code::invalid,
                         str("train.grad_accum is ", options.grad_accum, "; it must be at least 1"));
  if (!(options.clip >= 0))
    return Status::error(Code::invalid,
                         str("optim.clip is ", options.clip, "; it must be at least 0 (0: no clipping)"));
  if (options.prefetch.value_or(0) > 64)
    return Status::error(Code::invalid,
                         str("offload.prefetch is ", *options.prefetch, "; it must be at most 64"));
  return Status::ok();
}

// In f16 the loss is scaled through its divisor, which the engine fills.
Status check_loss_scale(const ProgramSet& programs, const EngineOptions& options) {
  if (!LossScale::is_valid(options.loss_scale))
    return Status::error(Code::invalid, str("optim.loss_scale is ", options.loss_scale,
                                            "; it must be a power of two from 1 to ", LossScale::kMax));
  const Program& train = programs.train;
  if (train.code.empty() || train.value(train.params.front().value).dtype != DType::f16) return {};
  if (train.find("divisor") != kNoValue) return {};
  return Status::error(Code::unsupported,
                       "the training program computes in f16 and has no input divisor to scale its loss by");
}

Status check(const Program& train, const EngineOptions& options) {
  if (train.micro_batches != 1 && train.micro_batches != options.grad_accum)
    return Status::error(Code::invalid, str("the training program covers ", train.micro_batches,
                                            " micro-batches, but a step has ", options.grad_accum,
                                            "; it must cover one or all of them"));
  for (const ParamInfo& param : train.params)
    if (param.trainable && param.grad == kNoValue)
      return Status::error(Code::invalid,
                           str("the training program has no gradient of parameter ", param.name));
  return Status::ok();
}

// A working window of a few chunks should take a small part of the device memory that activations leave.
std::int64_t largest_sensible_chunk(std::size_t arena, const EngineOptions& options) {
  if (options.budgets[0] == kUnlimited) return 0;
  const std::uint64_t left = options.budgets[0] > arena ? options.budgets[0] - arena : 0;
  constexpr std::uint64_t kWidest = sizeof(float);  // largest size of an element of any payload
  const std::uint64_t elems = left / 16 / kWidest;
  // Rounded to three significant bits, so that nearly equal budgets give the same layout.
  const int dropped = std::max(0, static_cast<int>(std::bit_width(elems)) - 3);
  return std::max<std::int64_t>(ChunkLayout::kSliceAlign,
                                static_cast<std::int64_t>(elems >> dropped << dropped));
}

// Prefetching a few chunks balances long instructions against chunks that need little computation. Their
// window, and that of gradients on their way out, should be a small part of the device.
std::uint32_t choose_prefetch_depth(const ChunkLayout& layout, std::uint64_t device) {
  constexpr std::uint64_t kMinChunks = 2, kMaxChunks = 6, kSmallPart = 8;
  std::size_t largest = 1;
  for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk)
    largest = std::max(
        largest, layout.payload_bytes(chunk, Payload::param) + layout.payload_bytes(chunk, Payload::grad));
  return static_cast<std::uint32_t>(std::clamp(device / kSmallPart / largest, kMinChunks, kMaxChunks));
}

// The program that represents the model: the first one that exists.
const Program& model_of(const ProgramSet& programs) {
  return !programs.train.code.empty()   ? programs.train
         : !programs.eval.code.empty()  ? programs.eval
         : !programs.infer.code.empty() ? programs.infer
                                        : programs.decode;
}

// Prefill and decode share the cache, so their states must be equal.
Status check_states(const Program& prefill, const Program& decode) {
  const auto list = [](const Program& program) {
    std::string text;
    for (const ValueId id : program.states)
      text += str(" ", program.value(id).name, to_string(program.value(id).shape));
    return text;
  };
  const std::string a = list(prefill), b = list(decode);
  if (prefill.code.empty() != decode.code.empty())
    return Status::error(Code::invalid, "the programs prefill and decode must be given together");
  if (a != b)
    return Status::error(Code::invalid,
                         str("prefill and decode must have equal states: prefill has", a, ", decode has", b));
  return Status::ok();
}

}  // namespace

static std::uint64_t frozen_bytes(const RunPlan& plan) {
  std::uint64_t bytes = 0;
  for (ChunkId chunk = 0; chunk < plan.layout.n_chunks(); ++chunk)
    if (!plan.layout.group_of(chunk).trainable)
      for (const Payload payload : kPersistentPayloads) bytes += plan.layout.payload_bytes(chunk, payload);
  return bytes;
}

void ProgramSet::plan_memory() {
  memory = std::make_shared<const Memory>(
      Memory{strata::plan_memory(train), strata::plan_memory(eval), strata::plan_memory(infer)});
}

static std::size_t arena_of(const ProgramSet& programs) {
  const bool is_known = programs.memory != nullptr && !programs.train.code.empty();
  return is_known ? programs.memory->train.arena_bytes : plan_memory(model_of(programs)).arena_bytes;
}

// Does everything except the placement, for checked options. The search for a chunk size considers sizes up
// to `max_chunk_elems`; 0: no limit.
static Result<std::unique_ptr<RunPlan>> lay_out(const ProgramSet& programs, const EngineOptions& options,
                                                std::int64_t max_chunk_elems) {
  if (!programs.train.code.empty()) {
    STRATA_TRY(check(programs.train, options));
    STRATA_TRY(cpuopt::validate(options.optimizer));
  }
  STRATA_TRY(check_loss_scale(programs, options));
  STRATA_TRY(check_states(programs.prefill, programs.decode));
  const Program& model = model_of(programs);
  auto plan = std::make_unique<RunPlan>();
  plan->options = options;
  plan->tensors = tensors_in_use_order(model);
  // The gradients of several micro-batches are accumulated in f32; a single one is used unchanged.
  const cpuopt::MomentSet moments = cpuopt::moments_of(options.optimizer);
  for (LayoutTensor& tensor : plan->tensors.specs) {
    if (options.grad_accum > 1) tensor.group.accum = DType::f32;
    tensor.group.format = options.states;
    tensor.group.first_moment = moments.first;
    tensor.group.second_moment = moments.second;
    tensor.group.frozen_masters = tensor.group.trainable || options.frozen_masters;
  }
  plan->held_states = {Payload::param};
  if (moments.first) plan->held_states.push_back(Payload::m);
  if (moments.second) plan->held_states.push_back(Payload::v);
  for (const std::int32_t param : plan->tensors.param_of_tensor) {
    const ParamInfo& info = model.params[static_cast<std::size_t>(param)];
    plan->init_of_tensor.push_back(info.init);
    plan->shape_of_tensor.push_back(info.shape);
  }
  if (!programs.train.code.empty()) STRATA_TRY(make_update_rules(*plan, model));
  LayoutOptions layout;
  layout.chunk_elems = options.chunk_elems;
  layout.max_chunk_elems = max_chunk_elems;
  STRATA_TRY_ASSIGN(plan->layout, ChunkLayout::create(plan->tensors.specs, layout));
  plan->notes.push_back("layout: " + plan->layout.explanation());
  if (!options.prefetch) plan->options.prefetch = choose_prefetch_depth(plan->layout, options.budgets[0]);
  if (const std::int64_t frozen = plan->n_params(false); frozen > 0)
    plan->notes.push_back(str("frozen: ", frozen, " parameters in ", format_bytes(frozen_bytes(*plan)),
                              ", which are only read; ", plan->n_params(true), " are trained"));

  const ProgramSet::Memory* const known = programs.memory.get();
  if (!programs.train.code.empty()) {
    STRATA_TRY_ASSIGN(plan->train,
                      lower(programs.train, plan->tensors, plan->layout, known ? &known->train : nullptr));
  }
  if (!programs.eval.code.empty()) {
    STRATA_TRY_ASSIGN(plan->eval,
                      lower(programs.eval, plan->tensors, plan->layout, known ? &known->eval : nullptr));
  }
  if (!programs.infer.code.empty()) {
    STRATA_TRY_ASSIGN(plan->infer,
                      lower(programs.infer, plan->tensors, plan->layout, known ? &known->infer : nullptr));
  }
  if (!programs.decode.code.empty()) {
    STRATA_TRY_ASSIGN(plan->prefill, lower(programs.prefill, plan->tensors, plan->layout));
    STRATA_TRY_ASSIGN(plan->decode, lower(programs.decode, plan->tensors, plan->layout));
  }
  plan->trace = access_trace(plan->train, plan->passes());
  for (const LoweredProgram* other : {&plan->eval, &plan->infer, &plan->prefill, &plan->decode}) {
    const AccessTrace trace = access_trace(*other, 1);
    plan->trace.accesses.insert(plan->trace.accesses.end(), trace.accesses.begin(), trace.accesses.end());
    plan->trace.device_fixed_bytes = std::max(plan->trace.device_fixed_bytes, trace.device_fixed_bytes);
  }
  plan->trace.device_fixed_bytes += plan->state_bytes();
  plan->trace.nvme_fixed_bytes = activation_store_bytes(plan->train);
  plan->trace.training = !plan->train.code.empty();
  plan->trace.pinned_fixed_bytes = plan_pinned_layout(*plan, count_norm_partials(plan->tensors)).total();
  if (const LoweredProgram::Offload& away = plan->train.offload; away.n > 0)
    plan->notes.push_back(str("activations: ", away.n, " of ", format_bytes(away.bytes),
                              " are offloaded in forward and fetched in backward, which takes at most ",
                              format_bytes(away.host_bytes), " of pinned memory",
                              away.stored.empty()
                                  ? std::string()
                                  : str(" and ", format_bytes(plan->trace.nvme_fixed_bytes), " of nvme")));

  return plan;
}

static PlacementRequest request_of(const EngineOptions& options) {
  return {options.budgets, options.policy, *options.prefetch, options.gradients, options.capacity};
}

// Places the run beside the undo log if there is room for both, else as if there were no log.
static std::optional<Placement> place(const RunPlan& plan) {
  const PlacementRequest request = request_of(plan.options);
  PlacementRequest beside_log = request;
  std::uint64_t& pinned = beside_log.budgets[static_cast<std::size_t>(Tier::pinned)];
  const std::uint64_t reserve = undo_reserve(plan);
  if (reserve > 0 && pinned != kUnlimited && pinned > reserve) {
    pinned -= reserve;
    if (std::optional<Placement> placement = find_placement(plan.layout, plan.trace, beside_log))
      return placement;
  }
  return find_placement(plan.layout, plan.trace, request);
}

// Whether parameters and moments alone fit into all tiers together: a cheap test for callers that ask many
// times.
static bool states_may_fit(const ProgramSet& programs, const EngineOptions& options) {
  double room = 0, need = 0;
  for (const std::uint64_t bytes : options.budgets) room += static_cast<double>(bytes);
  const cpuopt::MomentSet moments = cpuopt::moments_of(options.optimizer);
  const Program& model = model_of(programs);
  for (const ParamInfo& param : model.params) {
    const DType compute = model.value(param.value).dtype;
    std::size_t bytes = size_of(compute);
    if (&model == &programs.train && param.trainable)
      bytes +=
          cpuopt::master_bytes(cpuopt::master_layout(compute)) +
          moment_value_bytes(options.states) * (std::size_t{moments.first} + std::size_t{moments.second});
    need += static_cast<double>(bytes) * static_cast<double>(param.shape.n_elems());
  }
  return need <= room;
}

// Upper bounds for the search for a chunk size, largest first. The search ignores windows, so if its choice
// does not fit, smaller chunks may. `arena` is the size of the model's activations on the device.
static bool searches_chunk(const EngineOptions& options) {
  return options.chunk_elems == 0 && options.budgets[0] != kUnlimited;
}
static std::vector<std::int64_t> chunk_bounds(std::size_t arena, const EngineOptions& options) {
  if (!searches_chunk(options)) return {0};
  const std::int64_t largest = largest_sensible_chunk(arena, options);
  return {largest, largest / 2, largest / 4};
}

Result<std::unique_ptr<RunPlan>> draft_plan(
    const ProgramSet& programs, const EngineOptions& options,
    const std::function<void(const ChunkLayout&, Placement&)>& choose) {
  STRATA_TRY(check(options));
  const std::size_t arena = searches_chunk(options) ? arena_of(programs) : 0;
  if (choose || states_may_fit(programs, options))
    for (const std::int64_t bound : chunk_bounds(arena, options)) {
      STRATA_TRY_ASSIGN(std::unique_ptr<RunPlan> plan, lay_out(programs, options, bound));
      std::optional<Placement> placement;
      if (choose) {
        placement.emplace();
        placement->classes = slot_classes(plan->layout);
        placement->homes.resize(plan->layout.n_chunks());
        choose(plan->layout, *placement);
        set_minimum_windows(plan->layout, plan->trace, *placement);
      } else {
        placement = place(*plan);
      }
      if (!placement) continue;
      plan->placement = *std::move(placement);
      plan_undo_log(*plan);
      return plan;
    }
  return Status::error(Code::does_not_fit, "the run does not fit its budgets");
}

namespace {

/// Tests many budgets: everything that does not depend on them is computed once.
class Fitting {
 public:
  Fitting(std::span<const ProgramSet> choices, const EngineOptions& options)
      : choices_(choices), options_(options) {
    for (const ProgramSet& programs : choices) arenas_.push_back(arena_of(programs));
  }

  bool fits(const TierBytes& budgets) {
    options_.budgets = budgets;
    for (std::size_t choice = choices_.size(); choice-- > 0;)  // the last ones need the least memory
      if (fits(choice)) return true;
    return false;
  }

 private:
  bool fits(std::size_t choice) {
    if (!states_may_fit(choices_[choice], options_)) return false;
    for (const std::int64_t bound : chunk_bounds(arenas_[choice], options_)) {
      RunPlan* const plan = laid_out(choice, bound);
      if (plan == nullptr) return false;
      plan->options.budgets = options_.budgets;
      if (!options_.prefetch)
        plan->options.prefetch = choose_prefetch_depth(plan->layout, options_.budgets[0]);
      if (place(*plan)) return true;
    }
    return false;
  }

  RunPlan* laid_out(std::size_t choice, std::int64_t max_chunk_elems) {
    const auto found = plans_.find({choice, max_chunk_elems});
    if (found != plans_.end()) return found->second.get();
    auto plan = lay_out(choices_[choice], options_, max_chunk_elems);
    return plans_.emplace(std::pair{choice, max_chunk_elems}, plan.has_value() ? *std::move(plan) : nullptr)
        .first->second.get();
  }

  std::span<const ProgramSet> choices_;
  EngineOptions options_;
  std::vector<std::size_t> arenas_;
  std::map<std::pair<std::size_t, std::int64_t>, std::unique_ptr<RunPlan>> plans_;
};

}  // namespace

Status explain_refusal(std::span<const ProgramSet> choices, const EngineOptions& options) {
  const std::size_t arena = arena_of(choices.back());
  STRATA_TRY_ASSIGN(const std::unique_ptr<RunPlan> plan,
                    lay_out(choices.back(), options, chunk_bounds(arena, options).back()));
  const PlacementRequest request = request_of(plan->options);
  Fitting fitting(choices, options);
  return placement_error(
      plan->layout, plan->trace, request,
      suggest_budgets(request, [&](const TierBytes& budgets) { return fitting.fits(budgets); }));
}

}  // namespace strata
