#include <strata/session/trainer_session.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include <strata/runtime/convert.h>
#include <strata/runtime/str.h>

#include "step/queue_update.h"
#include "trainer/accumulated_gradients.h"
#include "trainer/refuse_param.h"

namespace strata {

struct TrainerSession::Step {
  explicit Step(StateContext& context)
      : constants(context.plan()),
        tensors(context.plan().tensors.specs.size()),
        is_pending(context.plan().layout.n_chunks()),
        gradients(context) {}
  bool is_updated(ChunkId chunk, const ChunkLayout& layout) const {
    const std::vector<Slice>& of_chunk = layout.chunk(chunk).slices;
    return std::any_of(of_chunk.begin(), of_chunk.end(), [&](const Slice& slice) {
      return tensors[static_cast<std::size_t>(slice.tensor)].is_updated;
    });
  }
  detail::StepConstants constants;
  std::vector<detail::TrainerTensor> tensors;  // indexed by parameter; empty unless an update is pending
  std::vector<bool> is_pending;                // whether each chunk's update of the last step is pending
  detail::AccumulatedGradients gradients;
};

namespace {

// The payloads that a chunk holds, as far as the parameters' dtype and the optimizer need them.
constexpr std::array<Payload, 4> kStates = {Payload::param, Payload::master, Payload::m, Payload::v};

template <class Function>
struct OnExit {
  Function function;
  ~OnExit() { function(); }
};
template <class Function>
OnExit(Function) -> OnExit<Function>;

// A step uses the states of one chunk after the other.
PassSchedule schedule_of(const StatePlan& plan) {
  PassSchedule schedule;
  schedule.cycle = static_cast<std::int32_t>(plan.layout.n_chunks());
  for (ChunkId chunk = 0; chunk < plan.layout.n_chunks(); ++chunk)
    for (const Payload payload : kStates)
      if (plan.layout.has(chunk, payload))
        schedule.uses.push_back({static_cast<std::int32_t>(chunk), {chunk, payload}, Tier::pinned});
  return schedule;
}

}  // namespace

TrainerSession::TrainerSession(std::unique_ptr<StateContext> of)
    : Session(std::move(of), std::vector<PassSchedule>(1), 0), step_(std::make_unique<Step>(context())) {
  set_param_steps(std::vector<std::int64_t>(state_plan().tensors.specs.size()));
}
TrainerSession::~TrainerSession() = default;

Result<std::unique_ptr<TrainerSession>> TrainerSession::create(const StatePlan& plan,
                                                               const SessionEnvironment& environment,
                                                               std::span<void* const> values) {
  STRATA_TRY_ASSIGN(auto context, StateContext::create(plan, environment));
  std::unique_ptr<TrainerSession> session(new TrainerSession(std::move(context)));
  const PassSchedule schedule = schedule_of(plan);
  session->context().use_schedule().set_uses(schedule.uses, schedule.cycle);
  STRATA_TRY(session->set_initial(values));
  return session;
}

Status TrainerSession::check_param(std::int32_t param) const {
  if (param >= 0 && param < std::ssize(step_->tensors)) return {};
  return Status::error(Code::invalid,
                       str("there is no parameter ", param, ": ", step_->tensors.size(), " are registered"));
}

bool TrainerSession::is_trained(std::int32_t param) const {
  return state_plan().tensors.specs[static_cast<std::size_t>(param)].group.trainable;
}

// --- parameters and gradients ---

Status TrainerSession::read(std::span<const ParamCopy> copies) {
  STRATA_TRY(machine().broken());
  if (!holds_params())
    return Status::error(Code::invalid, "the trainer holds the parameters, not the session");
  const ChunkLayout& layout = state_plan().layout;
  for (const ParamCopy& copy : copies) {
    STRATA_TRY(check_param(copy.param));
    if (copy.into == nullptr)
      return detail::refuse_param(state_plan(), copy.param, "is to be copied to a null address");
  }
  for (const ParamCopy& copy : copies) {
    const Slice& slice = layout.slice(copy.param);
    const std::size_t width = size_of(layout.group_of(slice.chunk).compute);
    context().use_schedule().set_position(static_cast<std::int32_t>(slice.chunk));
    STRATA_TRY(update(slice.chunk));
    Stream& stream = context().streams().cpu;
    STRATA_TRY_ASSIGN(const ChunkPin pin, context().chunks().pin({slice.chunk, Payload::param}, Tier::pinned,
                                                                 Intent::read, stream));
    STRATA_TRY(context().backend().synchronize(stream));
    const std::size_t bytes = static_cast<std::size_t>(slice.n_elems) * width;
    const std::byte* const from = pin.view().data + static_cast<std::size_t>(slice.offset) * width;
    STRATA_TRY(context().backend().host_access({from, bytes, false}));
    constexpr std::size_t kPiece = std::size_t{1} << 20;
    context().pool().parallel_for(
        static_cast<std::int64_t>((bytes + kPiece - 1) / kPiece), [&](std::int64_t i) {
          const std::size_t at = static_cast<std::size_t>(i) * kPiece;
          std::memcpy(static_cast<std::byte*>(copy.into) + at, from + at, std::min(kPiece, bytes - at));
        });
  }
  return context().chunks().status();
}

Status TrainerSession::prefetch(std::int32_t param) {
  STRATA_TRY(check_param(param));
  const ChunkId chunk = state_plan().layout.slice(param).chunk;
  const std::size_t n = step_->is_pending[chunk] ? kStates.size() : 1;
  return detail::prefetch_for_update(context(), chunk, std::span(kStates).first(n)).status();
}

Status TrainerSession::accumulate(std::int32_t param, const void* gradient, DType dtype) {
  STRATA_TRY(machine().broken());
  STRATA_TRY(check_param(param));
  if (!holds_params())
    return Status::error(Code::invalid,
                         "gradients are accumulated only by a session that holds the parameters");
  if (gradient == nullptr) return detail::refuse_param(state_plan(), param, "has no gradient");
  if (!is_trained(param))
    return detail::refuse_param(state_plan(), param, "is not trained, but has a gradient");
  if (!is_stored_dtype(dtype))
    return detail::refuse_param(state_plan(), param, "has a gradient of ", to_string(dtype),
                                "; it must be f32, bf16 or f16");
  const ChunkId chunk = state_plan().layout.slice(param).chunk;
  Status added = update(chunk);  // which needs the gradient of the step before
  if (added.is_ok()) added = step_->gradients.add(param, static_cast<const std::byte*>(gradient), dtype);
  if (added.is_ok()) return {};
  discard();
  return std::move(added).annotate(str("accumulating the gradient of parameter '",
                                       state_plan().tensors.specs[static_cast<std::size_t>(param)].name,
                                       "'"));
}

double TrainerSession::square_sum(std::int32_t param) const {
  return check_param(param).is_ok() ? step_->gradients.square_sum(param) : 0;
}
Result<std::span<const float>> TrainerSession::gradient(std::int32_t param) {
  STRATA_TRY(check_param(param));
  const Slice& slice = state_plan().layout.slice(param);
  if (!step_->gradients.has(param) || step_->is_pending[slice.chunk])
    return detail::refuse_param(state_plan(), param, "has no accumulated gradient");
  Stream& stream = context().streams().cpu;
  STRATA_TRY_ASSIGN(const ChunkPin pin, context().chunks().pin({slice.chunk, Payload::accum}, Tier::pinned,
                                                               Intent::read, stream));
  STRATA_TRY(context().backend().synchronize(stream));
  STRATA_TRY(context().backend().host_access({pin.view().data, pin.view().bytes, false}));
  return std::span(reinterpret_cast<const float*>(pin.view().data) + slice.offset,
                   static_cast<std::size_t>(slice.n_elems));
}
double TrainerSession::norm() const { return step_->gradients.norm(); }

Status TrainerSession::discard(std::int32_t param) {
  STRATA_TRY(check_param(param));
  if (!step_->is_pending[state_plan().layout.slice(param).chunk]) step_->gradients.forget(param);
  return {};
}

// Keeps the gradients of pending updates, which belong to the last step.
void TrainerSession::discard() noexcept {
  for (ChunkId chunk = 0; chunk < step_->is_pending.size(); ++chunk)
    if (!step_->is_pending[chunk]) (void)step_->gradients.drop(chunk);
}

// --- the step ---

Status TrainerSession::check(const ParamUpdate& update) const {
  STRATA_TRY(check_param(update.param));
  const auto no = [&](const auto&... why) {
    return detail::refuse_param(state_plan(), update.param, why...);
  };
  const auto i = static_cast<std::size_t>(update.param);
  if (step_->tensors[i].is_updated) return no("is updated twice in one step");
  if (!is_trained(update.param)) return no("is not trained, so it cannot be updated");
  if (holds_params() && update.values != nullptr) return no("is held by the session, but has values");
  if (!holds_params() && update.values == nullptr) return no("has no values");
  if (update.gradient == nullptr && !step_->gradients.has(update.param)) return no("has no gradient");
  if (update.gradient != nullptr && step_->gradients.has(update.param))
    return no("has a gradient beside the one that was accumulated");
  if (!is_stored_dtype(update.gradient_dtype))
    return no("has a gradient of ", to_string(update.gradient_dtype), "; it must be f32, bf16 or f16");
  const cpuopt::OptimizerParams& planned = state_plan().options.optimizer;
  const cpuopt::OptimizerParams& settings = update.settings;
  if (settings.optimizer != planned.optimizer || cpuopt::moments_of(settings) != cpuopt::moments_of(planned))
    return no("is updated by ", cpuopt::to_string(settings.optimizer), " with momentum ", settings.momentum,
              ", but the session was planned for ", cpuopt::to_string(planned.optimizer), " with momentum ",
              planned.momentum);
  return {};
}

Status TrainerSession::set_updates(std::span<const ParamUpdate> updates) {
  for (const ParamUpdate& update : updates) {
    STRATA_TRY(check(update));
    const auto i = static_cast<std::size_t>(update.param);
    cpuopt::OptimizerParams settings = update.settings;
    settings.step = param_steps()[i] + 1;
    if (Status valid = cpuopt::validate(settings); !valid.is_ok())
      return detail::refuse_param(state_plan(), update.param,
                                  "has settings that are not valid: ", valid.message());
    step_->constants.by_rule[i] = cpuopt::make_update_step(settings);
    step_->tensors[i] = {static_cast<std::byte*>(update.values),
                         static_cast<const std::byte*>(update.gradient), update.gradient_dtype, true};
  }
  return {};
}

// Whether a chunk's update reads nothing of the trainer's.
bool TrainerSession::may_wait(ChunkId chunk) const {
  if (!holds_params()) return false;
  const std::vector<Slice>& slices = state_plan().layout.chunk(chunk).slices;
  return std::all_of(slices.begin(), slices.end(), [&](const Slice& slice) {
    return step_->tensors[static_cast<std::size_t>(slice.tensor)].grad == nullptr;
  });
}

// If this fails, the update is still pending.
Status TrainerSession::update(ChunkId chunk) {
  if (!step_->is_pending[chunk]) return {};
  context().use_schedule().set_position(static_cast<std::int32_t>(chunk));
  if (Status status =
          detail::queue_update(context(), chunk, step_->constants, UndoAction::none, step_->tensors.data());
      !status.is_ok())
    return std::move(status).annotate(str("updating chunk ", chunk));
  step_->is_pending[chunk] = false;  // whatever happens from here on, it must not be queued again
  fetch_for_updates(chunk + 1);
  // Tables and gradients are the next step's, too.
  if (Status status = context().backend().synchronize(context().streams().cpu); !status.is_ok()) {
    machine().set_broken(status);
    return status;
  }
  for (const Slice& slice : state_plan().layout.chunk(chunk).slices)
    step_->tensors[static_cast<std::size_t>(slice.tensor)] = {};
  STRATA_TRY(step_->gradients.drop(chunk));
  return detail::write_back_states(context(), chunk);
}

// While one chunk is updated, or computed with, the states of those from `first` on are read. An error comes
// back when they are needed.
void TrainerSession::fetch_for_updates(ChunkId first) noexcept {
  if (context().store() == nullptr) return;
  try {
    for (ChunkId next = first; next < step_->is_pending.size(); ++next) {
      if (!step_->is_pending[next]) continue;
      Result<bool> begun = detail::prefetch_for_update(context(), next, kStates);
      constexpr std::array<Payload, 1> kAccum = {Payload::accum};
      if (begun.has_value() && *begun && step_->gradients.has_any(next))
        begun = detail::prefetch_for_update(context(), next, kAccum);
      if (!begun.has_value() || !*begun) break;
    }
    (void)context().chunks().write_backs().pump();
  } catch (const std::bad_alloc&) {  // it is only ahead of time
  }
}

// After an error, or an exception, in the middle of a step.
void TrainerSession::interrupt(const Status& why) noexcept {
  (void)context().backend().synchronize(context().streams().cpu);  // it uses the trainer's memory
  context().chunks().abort_pending();
  machine().set_broken(why);
  std::fill(step_->tensors.begin(), step_->tensors.end(), detail::TrainerTensor{});
  std::fill(step_->is_pending.begin(), step_->is_pending.end(), false);
}

Status TrainerSession::update_chunks() {
  for (ChunkId chunk = 0; chunk < step_->is_pending.size(); ++chunk)
    if (step_->is_pending[chunk] && !may_wait(chunk)) STRATA_TRY(update(chunk));
  return context().chunks().status();
}

Status TrainerSession::step(std::span<const ParamUpdate> updates) {
  STRATA_TRY(flush());
  step_->constants.rounding_seed = state_plan().options.rounding_seed;
  step_->constants.step = steps() + 1;
  bool has_begun = false;
  const OnExit forget{[&] {
    if (!has_begun) std::fill(step_->tensors.begin(), step_->tensors.end(), detail::TrainerTensor{});
  }};
  STRATA_TRY(set_updates(updates));
  const std::string interrupted =
      str("step ", steps() + 1, " was interrupted, so parameters and states do not belong to any step");
  // Unless it gets to its end; the library throws nothing else.
  Status status = Status::error(Code::out_of_memory, str(interrupted, ": the heap is exhausted"));
  has_begun = true;
  {
    const OnExit guard{[&] {
      if (!status.is_ok()) interrupt(status);
    }};
    for (ChunkId chunk = 0; chunk < step_->is_pending.size(); ++chunk)
      step_->is_pending[chunk] = step_->is_updated(chunk, state_plan().layout);
    discard();  // the gradients of parameters that are not updated
    status = update_chunks().annotate(interrupted);
  }
  if (!status.is_ok()) return status;
  for (ChunkId chunk = 0; chunk < step_->is_pending.size(); ++chunk)
    if (step_->is_pending[chunk]) step_->gradients.clear_norms(chunk);  // they are not the next step's
  for (const ParamUpdate& update : updates) count_step(update.param);
  set_steps(steps() + 1);
  fetch_for_updates(0);
  return {};
}

Status TrainerSession::flush() {
  STRATA_TRY(machine().broken());
  for (ChunkId chunk = 0; chunk < step_->is_pending.size(); ++chunk) STRATA_TRY(update(chunk));
  return {};
}

void TrainerSession::flush_or_discard() noexcept {
  if (flush().is_ok()) return discard();
  std::fill(step_->is_pending.begin(), step_->is_pending.end(), false);
  std::fill(step_->tensors.begin(), step_->tensors.end(), detail::TrainerTensor{});
  step_->gradients.clear();
  context().chunks().abort_pending();
  if (machine().broken().is_ok())
    machine().set_broken(Status::error(
        Code::internal,
        str("the update of step ", steps(), " was given up, and not all states have been set anew since")));
}

}  // namespace strata
