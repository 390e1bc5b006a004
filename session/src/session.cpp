#include <strata/session/session.h>

#include <algorithm>

#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>

#include "checkpoint/frozen_digests.h"
#include "checkpoint/state_access.h"
#include "ranks/rank_facets.h"

namespace strata {

Session::Session(std::unique_ptr<StateContext> context, std::vector<PassSchedule> steps,
                 std::size_t max_params)
    : context_(std::move(context)),
      steps_(std::move(steps)),
      machine_(*context_, steps_, max_params),
      access_(std::make_unique<detail::StateAccess>(*context_)) {
  const StatePlan& plan = context_->plan();
  if (!plan.options.saves_frozen && plan.trains() && plan.n_params(false) > 0)
    frozen_ = std::make_unique<detail::FrozenDigests>(*context_, *access_);
}
Session::~Session() = default;

namespace {

Status check_held(const StateContext& context, Payload payload) {
  const StatePlan& plan = context.plan();
  const auto states = plan.states();
  if (payload == Payload::param && plan.of_trainer() && context.trainer_params().empty())
    return Status::error(Code::invalid,
                         "the parameters are in the trainer's memory, and their addresses are not known");
  if (std::find(states.begin(), states.end(), payload) != states.end()) return {};
  return Status::error(Code::unsupported,
                       str("this run holds no ", to_string(payload),
                           states.size() == 1 ? ": it only does inference" : " between steps"));
}

}  // namespace

void Session::set_param_steps(std::vector<std::int64_t> steps) {
  STRATA_ASSERT(steps.empty() || steps.size() == state_plan().tensors.specs.size());
  param_steps_ = std::move(steps);
}

Status Session::fill_params(const FillState& fill, FrozenFrom frozen) {
  const bool knows_frozen = frozen_ != nullptr && frozen == FrozenFrom::elsewhere;
  if (frozen_ != nullptr && !knows_frozen) frozen_->forget();
  STRATA_TRY(knows_frozen ? frozen_->fill(fill) : access_->fill(Payload::param, fill));
  return access_->start_ema();
}

Status Session::gradient_norms(std::span<double> norms) const {
  const TensorTable& tensors = state_plan().tensors;
  if (norms.size() != tensors.tensor_of_param.size())
    return Status::error(Code::invalid,
                         str("norms of ", norms.size(), " gradients were asked for; there are ",
                             tensors.tensor_of_param.size(), " parameters"));
  if (const ModelParallel& model = state_plan().options.model; model.ranks() > model.pp)
    return Status::error(Code::unsupported,
                         "ranks share the model's tensors, and each has a part of their norms");
  machine_.gradient_norms(norms);
  return {};
}

std::map<std::string, std::string, std::less<>> Session::left_out() const {
  if (frozen_ == nullptr || !frozen_->known()) return {};
  return frozen_->given();
}

Status Session::reset(const FillState& params) {
  STRATA_TRY(check_held(*context_, Payload::param));
  flush_or_discard();
  context_->chunks().abort_pending();  // as in fill()
  Status status = fill_params(params, FrozenFrom::elsewhere);
  if (status.is_ok()) status = access_->clear_moments();
  machine_.set_broken(status.annotate("initializing parameters was interrupted"));
  return machine_.broken();
}

Status Session::visit(Payload payload, const VisitState& visit) {
  STRATA_TRY(check_held(*context_, payload));
  STRATA_TRY(flush());
  return access_->visit(payload, visit);
}

Status Session::visit_part(Payload payload, const VisitState& visit, VisitScope scope) {
  STRATA_TRY(check_held(*context_, payload));
  STRATA_TRY(flush());
  return access_->visit_part(payload, visit, scope);
}

Result<std::vector<bool>> Session::find_tensors(std::span<const std::string> names, Payload payload) const {
  const std::vector<LayoutTensor>& specs = state_plan().tensors.specs;
  std::vector<bool> found(specs.size(), false);
  std::string missing;
  for (const std::string& name : names) {
    const auto at =
        std::find_if(specs.begin(), specs.end(), [&](const LayoutTensor& spec) { return spec.name == name; });
    const auto tensor = static_cast<std::int32_t>(at - specs.begin());
    if (at == specs.end() || !state_plan().holds(tensor, payload))
      missing += str(missing.empty() ? "" : ", ", name);
    else
      found[static_cast<std::size_t>(tensor)] = true;
  }
  if (missing.empty()) return found;
  return Status::error(Code::invalid, str("this run holds no ", to_string(payload), " of ", missing));
}

Status Session::visit_tensors(Payload payload, std::span<const std::string> names, const VisitState& visit) {
  STRATA_TRY(check_held(*context_, payload));
  STRATA_TRY_ASSIGN(const std::vector<bool> tensors, find_tensors(names, payload));
  STRATA_TRY(flush());
  return names.empty() ? Status::ok() : access_->visit_tensors(payload, visit, tensors);
}

// The tensors of these names, if they may be changed.
Result<std::vector<bool>> Session::find_edited(std::span<const std::string> names) const {
  STRATA_TRY(check_held(*context_, Payload::param));
  STRATA_TRY_ASSIGN(std::vector<bool> tensors, find_tensors(names, Payload::param));
  const SessionOptions& options = state_plan().options;
  const std::int32_t ranks = options.ranks.ranks * options.model.ranks();
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    if (!tensors[t]) continue;
    const LayoutTensor& spec = state_plan().tensors.specs[t];
    if (ranks > 1 && (spec.group.trainable || options.model.ranks() > 1))
      return Status::error(Code::unsupported,
                           str("single parameters cannot be changed in a run with ", ranks, " ranks"));
    if (frozen_ != nullptr && !spec.group.saved)
      return Status::error(
          Code::unsupported,
          str(spec.name, " cannot be changed: it is frozen, and checkpoints leave out what is frozen"));
  }
  return tensors;
}

Status Session::edit_params(std::span<const std::string> names, const FillState& edit) {
  STRATA_TRY_ASSIGN(const std::vector<bool> tensors, find_edited(names));
  return edit_tensors(tensors, edit);
}

Status Session::edit_params(const FillState& edit) {
  if (state_plan().options.edited.empty()) return {};
  if (edited_.empty()) {
    STRATA_TRY_ASSIGN(edited_, find_edited(state_plan().options.edited));
  }
  return edit_tensors(edited_, edit);
}

// The update of what is trained may stay pending while what is frozen changes.
Status Session::edit_tensors(const std::vector<bool>& tensors, const FillState& edit) {
  bool trained = false;
  for (std::size_t t = 0; t < tensors.size(); ++t)
    trained = trained || (tensors[t] && state_plan().tensors.specs[t].group.trainable);
  STRATA_TRY(trained ? flush() : machine_.broken());
  machine_.forget_gathered();
  bool changed = false;
  Status status = access_->edit(tensors, edit, changed);
  if (status.is_ok()) return status;
  context_->chunks().abort_pending();
  if (!changed) return status;
  machine_.set_broken(status.annotate(
      "changing parameters was interrupted, so the states do not belong to any step; load a checkpoint"));
  return machine_.broken();
}

Status Session::check_ranks_agree() { return detail::check_ranks_agree(*context_, steps_.front()); }

GroupCounters Session::group_counters() const {
  GroupCounters all = context_->groups() == nullptr ? GroupCounters{} : context_->groups()->counters();
  if (context_->model_groups() != nullptr) {
    const GroupCounters of_model = context_->model_groups()->counters();
    all.calls += of_model.calls;
    all.sent_bytes += of_model.sent_bytes;
    all.received_bytes += of_model.received_bytes;
  }
  return all;
}

Status Session::fill(Payload payload, const FillState& fill, FrozenFrom frozen) {
  STRATA_TRY(check_held(*context_, payload));
  flush_or_discard();
  context_->chunks()
      .abort_pending();  // a write that failed is no error of this fill: what it wrote is in RAM
  Status status = payload == Payload::param ? fill_params(fill, frozen) : access_->fill(payload, fill);
  if (status.is_ok()) return status;
  machine_.set_broken(status.annotate(
      str("filling ", to_string(payload), " was interrupted, so the states do not belong to any step")));
  return status;
}

// Ranks that are threads of one process share a backend, whose counters are those of all of them.
int Session::ranks_on_backend() const noexcept { return world() != nullptr ? world()->ranks_here() : 1; }

MovedBytes Session::moved() const {
  const BackendCounters counters = context_->backend().counters();
  MovedBytes moved;
  moved.h2d = counters.copied_bytes[static_cast<std::size_t>(StreamRole::h2d)];
  moved.d2h = counters.copied_bytes[static_cast<std::size_t>(StreamRole::d2h)];
  moved = moved / static_cast<std::uint64_t>(ranks_on_backend());
  moved.network = group_counters().sent_bytes;
  if (const ObjectStore* store = context_->store()) {
    moved.nvme_read = store->counters().bytes_read;
    moved.nvme_write = store->counters().bytes_written;
  }
  return moved;
}

LaneBusySeconds Session::lane_busy_seconds() const {
  const BackendCounters counters = context_->backend().counters();
  const auto lane = [&](StreamRole role) {
    return static_cast<double>(counters.busy_ns[static_cast<std::size_t>(role)]) * 1e-9;
  };
  LaneBusySeconds seconds = {lane(StreamRole::compute), lane(StreamRole::h2d), lane(StreamRole::d2h),
                             lane(StreamRole::cpu)};
  seconds.collective = lane(StreamRole::collective);
  seconds = seconds / ranks_on_backend();
  if (const ObjectStore* store = context_->store()) {
    const NvmeCounters io = store->counters();
    seconds.nvme_read = static_cast<double>(io.read_busy_ns) * 1e-9;
    seconds.nvme_write = static_cast<double>(io.write_busy_ns) * 1e-9;
  }
  return seconds;
}

std::string Session::nvme_note() const {
  const ObjectStore* store = context_->store();
  return store == nullptr ? "not used" : store->io_description();
}
std::vector<NvmePath> Session::nvme_paths() const {
  const ObjectStore* store = context_->store();
  return store == nullptr ? std::vector<NvmePath>{} : store->paths();
}
std::uint64_t Session::nvme_endurance_bytes() const {
  const ObjectStore* store = context_->store();
  return store == nullptr ? 0 : store->counters().endurance_bytes;
}
std::uint64_t Session::resources_created() const {
  const BackendCounters counters = context_->backend().counters();
  std::uint64_t made = counters.buffers_created + counters.streams_created + counters.events_created;
  if (const ObjectStore* store = context_->store()) made += store->counters().files_opened;
  return made;
}

}  // namespace strata
