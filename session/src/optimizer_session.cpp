#include <strata/session/optimizer_session.h>

#include <algorithm>
#include <array>
#include <utility>

#include <strata/runtime/convert.h>
#include <strata/runtime/str.h>

#include "step/queue_update.h"

namespace strata {

struct OptimizerSession::Step {
  explicit Step(const StatePlan& plan) : constants(plan), tensors(plan.tensors.specs.size()) {}
  detail::StepConstants constants;
  std::vector<detail::TrainerTensor> tensors;  // by parameter; without a gradient between steps
};

namespace {

// What a chunk holds, as far as the parameters' dtype and the optimizer need it.
constexpr std::array<Payload, 3> kStates = {Payload::master, Payload::m, Payload::v};

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

OptimizerSession::OptimizerSession(std::unique_ptr<StateContext> context)
    : Session(std::move(context), {}, 0), step_(std::make_unique<Step>(state_plan())) {
  set_param_steps(std::vector<std::int64_t>(state_plan().tensors.specs.size()));
}
OptimizerSession::~OptimizerSession() = default;

Result<std::unique_ptr<OptimizerSession>> OptimizerSession::create(const StatePlan& plan,
                                                                   const SessionEnvironment& environment,
                                                                   std::span<void* const> values) {
  STRATA_TRY_ASSIGN(auto context, StateContext::create(plan, environment));
  std::unique_ptr<OptimizerSession> session(new OptimizerSession(std::move(context)));
  const PassSchedule schedule = schedule_of(plan);
  session->context().use_schedule().set_uses(schedule.uses, schedule.cycle);
  STRATA_TRY(session->bind(values));
  STRATA_TRY(session->clear());
  return session;
}

Status OptimizerSession::bind(std::span<void* const> values) {
  const std::size_t n = state_plan().tensors.specs.size();
  if (!values.empty() && values.size() != n)
    return Status::error(Code::invalid,
                         str("there are ", values.size(), " addresses for ", n, " parameters"));
  std::vector<std::byte*> params;
  for (void* const value : values) {
    if (value == nullptr)
      return Status::error(Code::invalid, str("the address of parameter '",
                                              state_plan().tensors.specs[params.size()].name, "' is null"));
    params.push_back(static_cast<std::byte*>(value));
  }
  context().set_trainer_params(std::move(params));
  return {};
}

Status OptimizerSession::clear() {
  const ChunkLayout& layout = state_plan().layout;
  bool has_masters = false;  // which parameters lack bits
  for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk)
    has_masters = has_masters || layout.has(chunk, Payload::master);
  const FillState unchanged = [&](const StatePiece& piece, std::span<float> values) {
    const DType dtype = state_plan().tensors.specs[static_cast<std::size_t>(piece.tensor)].group.compute;
    const std::byte* const from = context().trainer_params()[static_cast<std::size_t>(piece.tensor)] +
                                  static_cast<std::size_t>(piece.offset) * size_of(dtype);
    return widen_to_f32(dtype, {from, values.size() * size_of(dtype)}, values);
  };
  const FillState zeros = [](const StatePiece&, std::span<float> values) {
    std::fill(values.begin(), values.end(), 0.0f);
    return Status::ok();
  };
  for (const Payload payload : state_plan().states())
    if (payload != Payload::param || has_masters)
      STRATA_TRY(fill(payload, payload == Payload::param ? unchanged : zeros));
  return context().chunks().status();
}

Status OptimizerSession::check(std::span<const ParamUpdate> updates) {
  const cpuopt::OptimizerParams& planned = state_plan().options.optimizer;
  for (const ParamUpdate& update : updates) {
    if (update.param < 0 || update.param >= std::ssize(step_->tensors))
      return Status::error(Code::invalid, str("there is no parameter ", update.param, ": ",
                                              step_->tensors.size(), " are registered"));
    const auto i = static_cast<std::size_t>(update.param);
    const auto refuse = [&](const auto&... why) {
      return Status::error(Code::invalid,
                           str("parameter '", state_plan().tensors.specs[i].name, "' ", why...));
    };
    detail::TrainerTensor& tensor = step_->tensors[i];
    if (tensor.grad != nullptr) return refuse("is updated twice in one step");
    if (update.values == nullptr || update.gradient == nullptr)
      return refuse("has no ", update.values == nullptr ? "values" : "gradient");
    if (!is_stored_dtype(update.gradient_dtype))
      return refuse("has a gradient of ", to_string(update.gradient_dtype), "; it must be f32, bf16 or f16");
    cpuopt::OptimizerParams settings = update.settings;
    if (settings.optimizer != planned.optimizer ||
        cpuopt::moments_of(settings) != cpuopt::moments_of(planned))
      return refuse("is updated by ", cpuopt::to_string(settings.optimizer), " with momentum ",
                    settings.momentum, ", but the session was planned for ",
                    cpuopt::to_string(planned.optimizer), " with momentum ", planned.momentum);
    settings.step = param_steps()[i] + 1;
    if (Status valid = cpuopt::validate(settings); !valid.is_ok())
      return refuse("has settings that are not valid: ", valid.message());
    step_->constants.by_rule[i] = cpuopt::make_update_step(settings);
    tensor = {static_cast<std::byte*>(update.values), static_cast<const std::byte*>(update.gradient),
              update.gradient_dtype};
  }
  return {};
}

// While a chunk is updated, the states of those after it are read.
Status OptimizerSession::update_chunks() {
  ChunkManager& chunks = context().chunks();
  const auto n_chunks = static_cast<ChunkId>(state_plan().layout.n_chunks());
  const auto is_used = [&](ChunkId chunk) {
    const std::vector<std::int32_t>& tensors = state_plan().layout.chunk(chunk).tensors;
    return std::any_of(tensors.begin(), tensors.end(), [&](std::int32_t tensor) {
      return step_->tensors[static_cast<std::size_t>(tensor)].grad != nullptr;
    });
  };
  ChunkId fetched = 0;
  for (ChunkId chunk = 0; chunk < n_chunks; ++chunk) {
    if (!is_used(chunk)) continue;
    context().use_schedule().set_position(static_cast<std::int32_t>(chunk));
    if (Status status =
            detail::queue_update(context(), chunk, step_->constants, UndoAction::none, step_->tensors.data());
        !status.is_ok())
      return std::move(status).annotate(str("updating chunk ", chunk));
    STRATA_TRY(detail::write_back_states(context(), chunk));
    for (fetched = std::max(fetched, chunk + 1); fetched < n_chunks; ++fetched) {
      if (!is_used(fetched)) continue;
      STRATA_TRY_ASSIGN(const bool begun, detail::prefetch_for_update(context(), fetched, kStates));
      if (!begun) break;
    }
    STRATA_TRY(chunks.write_backs().pump());
  }
  STRATA_TRY(context().backend().synchronize(context().streams().cpu));
  return chunks.status();
}

Status OptimizerSession::step(std::span<const ParamUpdate> updates) {
  STRATA_TRY(machine().broken());
  step_->constants.rounding_seed = state_plan().options.rounding_seed;
  step_->constants.step = steps() + 1;
  Status status = check(updates);
  if (status.is_ok() && !(status = update_chunks()).is_ok()) {
    (void)context().backend().synchronize(context().streams().cpu);  // it uses the trainer's memory
    context().chunks().abort_pending();
    status = std::move(status).annotate(
        str("step ", steps() + 1, " was interrupted, so parameters and states do not belong to any step"));
    machine().set_broken(status);
  }
  if (status.is_ok()) {
    for (const ParamUpdate& update : updates) count_step(update.param);
    set_steps(steps() + 1);
  }
  std::fill(step_->tensors.begin(), step_->tensors.end(), detail::TrainerTensor{});
  return status;
}

}  // namespace strata
