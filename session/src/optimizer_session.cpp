#include <strata/session/optimizer_session.h>

#include <algorithm>
#include <array>
#include <utility>

#include <strata/cpuopt/master.h>
#include <strata/runtime/convert.h>
#include <strata/runtime/str.h>

#include "plan/chunk_tables.h"
#include "step/queue_update.h"

namespace strata {

using detail::TensorBlock;

struct OptimizerSession::Step {
  explicit Step(const StatePlan& plan)
      : constants(plan), tensors(plan.tensors.specs.size()), steps(plan.tensors.specs.size()) {}
  detail::StepConstants constants;
  std::vector<detail::TrainerTensor> tensors;  // by parameter; without a gradient between steps
  std::vector<std::int64_t> steps;             // by parameter
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
    : Session(std::move(context), {}, 0), step_(std::make_unique<Step>(state_plan())) {}
OptimizerSession::~OptimizerSession() = default;

Result<std::unique_ptr<OptimizerSession>> OptimizerSession::create(const StatePlan& plan,
                                                                   const SessionEnvironment& environment,
                                                                   std::span<const void* const> values) {
  if (values.size() != plan.tensors.specs.size())
    return Status::error(Code::invalid, str("there are ", values.size(), " values for ",
                                            plan.tensors.specs.size(), " parameters"));
  STRATA_TRY_ASSIGN(auto context, StateContext::create(plan, environment));
  std::unique_ptr<OptimizerSession> session(new OptimizerSession(std::move(context)));
  const PassSchedule schedule = schedule_of(plan);
  session->context().use_schedule().set_uses(schedule.uses, schedule.cycle);
  STRATA_TRY(session->clear(values));
  return session;
}

namespace {

// What masters have beyond the parameters.
Status fill_masters(StateContext& context, ChunkId chunk, std::span<const void* const> values) {
  const PayloadKey key{chunk, Payload::master};
  Stream& stream = context.streams().cpu;
  STRATA_TRY_ASSIGN(const ChunkPin pin, context.chunks().pin(key, Tier::pinned, Intent::overwrite, stream));
  STRATA_TRY(context.backend().synchronize(stream));
  STRATA_TRY(context.backend().host_access({pin.view().data, pin.view().bytes, true}));
  const DType dtype = context.plan().layout.group_of(chunk).compute;
  const cpuopt::MasterLayout layout = cpuopt::master_layout(dtype);
  std::vector<float> masters(TensorBlock::kBlockElems);
  std::vector<std::byte> params(masters.size() * size_of(dtype));
  for (const TensorBlock& block : context.tables().blocks[chunk]) {
    const auto n = static_cast<std::size_t>(block.n);
    const auto* const from = static_cast<const std::byte*>(values[static_cast<std::size_t>(block.tensor)]) +
                             static_cast<std::size_t>(block.at) * size_of(dtype);
    STRATA_TRY(widen_to_f32(dtype, {from, n * size_of(dtype)}, {masters.data(), n}));
    cpuopt::split_masters(
        {masters.data(), n}, layout, params.data(),
        pin.view().data + static_cast<std::size_t>(block.offset) * cpuopt::master_bytes(layout));
  }
  return {};
}

}  // namespace

Status OptimizerSession::clear(std::span<const void* const> values) {
  for (const Payload payload : state_plan().states())
    STRATA_TRY(fill(payload, [](const StatePiece&, std::span<float> zeros) {
      std::fill(zeros.begin(), zeros.end(), 0.0f);
      return Status::ok();
    }));
  for (ChunkId chunk = 0; chunk < state_plan().layout.n_chunks(); ++chunk) {
    if (!state_plan().layout.has(chunk, Payload::master)) continue;
    STRATA_TRY(fill_masters(context(), chunk, values));
    STRATA_TRY(context().chunks().write_back({chunk, Payload::master}));
  }
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
    settings.step = step_->steps[i] + 1;
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
    for (const ParamUpdate& update : updates) ++step_->steps[static_cast<std::size_t>(update.param)];
    set_steps(steps() + 1);
  }
  std::fill(step_->tensors.begin(), step_->tensors.end(), detail::TrainerTensor{});
  return status;
}

std::span<const std::int64_t> OptimizerSession::param_steps() const noexcept { return step_->steps; }

}  // namespace strata
