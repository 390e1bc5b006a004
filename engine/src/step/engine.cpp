#include <strata/engine/engine.h>

#include <algorithm>

#include <strata/runtime/str.h>

#include "step/engine_impl.h"

namespace strata {

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::create(const RunPlan& plan, const Environment& environment) {
  STRATA_TRY_ASSIGN(std::unique_ptr<ExecutionContext> context, ExecutionContext::create(plan, environment));
  return std::unique_ptr<Engine>(new Engine(std::make_unique<Impl>(std::move(context))));
}

Status Engine::initialize(std::uint64_t seed) {
  impl_->flush_or_discard();
  impl_->broken = impl_->states().initialize(seed).annotate("initializing parameters was interrupted");
  return impl_->broken;
}
Status Engine::train_step(BatchSource& source, double lr, StepReport& report) {
  return impl_->train_step(source, lr, report);
}
Result<double> Engine::evaluate(BatchSource& source, std::int64_t n) { return impl_->evaluate(source, n); }
Result<std::span<const float>> Engine::infer(std::span<const std::int32_t> tokens, std::int64_t row) {
  return impl_->infer(tokens, row);
}
Result<std::span<const float>> Engine::extend(std::span<const SequenceToken> tokens,
                                              std::span<const std::int32_t> wanted) {
  return impl_->extend(tokens, wanted);
}
std::int64_t Engine::steps() const noexcept { return impl_->steps; }
const LossScale& Engine::loss_scale() const noexcept { return impl_->loss_scale; }
void Engine::set_loss_scale(const LossScale& scale) noexcept { impl_->loss_scale = scale; }
void Engine::set_steps(std::int64_t steps) noexcept {
  impl_->steps = steps;
  impl_->broken = Status::ok();
}
namespace {

Status check_held(const RunPlan& plan, Payload payload) {
  const auto states = plan.states();
  if (std::find(states.begin(), states.end(), payload) != states.end()) return {};
  return Status::error(Code::unsupported,
                       str("this run holds no ", to_string(payload),
                           states.size() == 1 ? ": it only does inference" : " between steps"));
}

}  // namespace

Status Engine::visit(Payload payload, const Visit& visit) {
  STRATA_TRY(check_held(plan(), payload));
  STRATA_TRY(impl_->flush_pending_update());
  return impl_->states().visit(payload, visit);
}
Status Engine::fill(Payload payload, const Fill& fill) {
  STRATA_TRY(check_held(plan(), payload));
  impl_->flush_or_discard();
  Status status = impl_->states().fill(payload, fill);
  if (!status.is_ok())
    impl_->broken = status.annotate(
        str("filling ", to_string(payload), " was interrupted, so the states do not belong to any step"));
  return status;
}
const RunPlan& Engine::plan() const noexcept { return impl_->plan(); }

MovedBytes Engine::moved() const {
  const BackendCounters counters = impl_->context().backend.counters();
  MovedBytes moved;
  moved.h2d = counters.copied_bytes[static_cast<std::size_t>(StreamRole::h2d)];
  moved.d2h = counters.copied_bytes[static_cast<std::size_t>(StreamRole::d2h)];
  if (const ObjectStore* store = impl_->context().store.get()) {
    moved.nvme_read = store->counters().bytes_read;
    moved.nvme_write = store->counters().bytes_written;
  }
  return moved;
}

LaneBusySeconds Engine::lane_busy_seconds() const {
  const BackendCounters counters = impl_->context().backend.counters();
  const auto lane = [&](StreamRole role) {
    return static_cast<double>(counters.busy_ns[static_cast<std::size_t>(role)]) * 1e-9;
  };
  LaneBusySeconds seconds = {lane(StreamRole::compute), lane(StreamRole::h2d), lane(StreamRole::d2h),
                             lane(StreamRole::cpu)};
  if (const ObjectStore* store = impl_->context().store.get()) {
    const NvmeCounters io = store->counters();
    seconds.nvme_read = static_cast<double>(io.read_busy_ns) * 1e-9;
    seconds.nvme_write = static_cast<double>(io.write_busy_ns) * 1e-9;
  }
  return seconds;
}

TierBytes Engine::used_bytes() const {
  TierBytes bytes{};
  for (std::size_t t = 0; t < kTiers; ++t)
    bytes[t] = impl_->context().budgets[t]->used_bytes() + impl_->context().budgets[t]->reserved_bytes();
  return bytes;
}
TierBytes Engine::peak_bytes() const {
  TierBytes bytes{};
  for (std::size_t t = 0; t < kTiers; ++t) bytes[t] = impl_->context().budgets[t]->peak_bytes();
  return bytes;
}
std::string Engine::nvme_note() const {
  const ObjectStore* store = impl_->context().store.get();
  return store == nullptr ? "not used" : store->io_description();
}
std::vector<NvmePath> Engine::nvme_paths() const {
  const ObjectStore* store = impl_->context().store.get();
  return store == nullptr ? std::vector<NvmePath>{} : store->paths();
}
std::uint64_t Engine::nvme_endurance_bytes() const {
  const ObjectStore* store = impl_->context().store.get();
  return store == nullptr ? 0 : store->counters().endurance_bytes;
}
std::uint64_t Engine::resources_created() const {
  const BackendCounters counters = impl_->context().backend.counters();
  std::uint64_t made = counters.buffers_created + counters.streams_created + counters.events_created;
  if (const ObjectStore* store = impl_->context().store.get()) made += store->counters().files_opened;
  return made;
}

}  // namespace strata
