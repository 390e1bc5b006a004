#include "step/commit.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <strata/simd/norm.h>
#include <strata/runtime/trace/profiler_range.h>
#include <strata/runtime/str.h>

#include "plan/chunk_tables.h"

namespace strata::detail {
namespace {

constexpr std::array<Payload, 6> kUpdatePayloads = {Payload::accum, Payload::param, Payload::master,
                                                    Payload::m,     Payload::v,     Payload::ema};

// Searches the trainee's tensors in this rank's part of the model; returns the number of all tensors if all
// are finite.
std::size_t first_non_finite_param(const StateContext& context, std::int32_t trainee) {
  const std::vector<std::int32_t>& tensor_of_param = context.plan().tensors.tensor_of_param;
  for (std::size_t p = 0; p < tensor_of_param.size(); ++p) {
    const auto t = static_cast<std::size_t>(tensor_of_param[p]);
    const GroupKey& group = context.plan().tensors.specs[t].group;
    if (!group.trainable || group.trainee != trainee) continue;
    const std::int64_t n = count_norm_partials(context.plan().tensors, t);
    for (std::int64_t i = 0; i < n; ++i)
      if (!std::isfinite(context.norm_partials()[context.tables().first_partial_of_tensor[t] + i])) return p;
  }
  return tensor_of_param.size();
}

}  // namespace

Commit::Commit(StateContext& context, Speculation& speculation, const PassSchedule& schedule)
    : context_(context),
      speculation_(speculation),
      schedule_(schedule),
      until_(context.plan().layout.n_chunks(), 0),
      undo_(context.plan().layout.n_chunks(), UndoAction::none),
      done_(context.plan().layout.n_chunks(), false),
      next_(schedule.commits.size()),
      step_(context.plan()),
      model_(context) {
  for (std::size_t i = 0; i < schedule.commits.size(); ++i) until_[schedule.commits[i].second] = i + 1;
}

Commit::~Commit() {
  for (Stream* stream : {&context_.streams().compute, &context_.streams().cpu})
    (void)context_.backend().synchronize(*stream);  // there is nobody to report errors to
}

Status Commit::wait_for_gradients() {
  // So that the slow tier works while the host waits.
  STRATA_TRY(context_.chunks().write_backs().submit_all());
  for (Stream* stream : context_.streams().of_gradients())
    if (stream->id() >= 0) STRATA_TRY(context_.backend().synchronize(*stream));
  return {};
}

Result<double> Commit::gradient_norm(double loss_scale, std::uint32_t& flags) {
  if (context_.synthetic()) return synthetic_norm(loss_scale, context_.synthetic()->clipped);
  const auto n = static_cast<std::size_t>(context_.tables().n_partials);
  const auto& uncounted = context_.tables().uncounted;
  STRATA_TRY(context_.backend().host_access({reinterpret_cast<const std::byte*>(context_.norm_partials()),
                                             n * sizeof(double), !uncounted.empty()}));
  for (const auto& [begin, end] : uncounted)
    std::fill(context_.norm_partials() + begin, context_.norm_partials() + end, 0.0);
  STRATA_TRY(model_.add_stages(n));
  const std::int64_t* const own =
      &context_.tables().first_partial_of_trainee[static_cast<std::size_t>(schedule_.trainee)];
  double square_sum = simd::tree_sum(
      std::span<const double>(context_.norm_partials() + own[0], static_cast<std::size_t>(own[1] - own[0])));
  STRATA_TRY(model_.run(square_sum, flags));
  return std::sqrt(square_sum) / context_.plan().micro_batches(schedule_.trainee);
}

// A norm that is clipped in the given share of the steps.
double Commit::synthetic_norm(double loss_scale, double share) noexcept {
  ++n_synthetic_norms_;
  const auto clipped_by = [&](std::int64_t steps) {
    return std::floor(share * static_cast<double>(steps) + 1e-9);
  };
  return clipped_by(n_synthetic_norms_) > clipped_by(n_synthetic_norms_ - 1)
             ? loss_scale * (2 * context_.plan().clip(schedule_.trainee) + 1)
             : 0.0;
}

void Commit::gradient_norms(std::span<double> norms) const {
  const TensorTable& tensors = context_.plan().tensors;
  for (std::size_t param = 0; param < norms.size(); ++param) {
    const auto tensor = static_cast<std::size_t>(tensors.tensor_of_param[param]);
    norms[param] = 0;
    const GroupKey& group = tensors.specs[tensor].group;
    if (!group.trainable || group.trainee != schedule_.trainee || context_.synthetic()) continue;
    const auto n = static_cast<std::size_t>(count_norm_partials(tensors, tensor));
    norms[param] = std::sqrt(simd::tree_sum(std::span<const double>(
        context_.norm_partials() + context_.tables().first_partial_of_tensor[tensor], n)));
  }
}

Status Commit::non_finite_error() {
  auto first = static_cast<double>(first_non_finite_param(context_, schedule_.trainee));
  STRATA_TRY(model_.least(first));
  const auto param = static_cast<std::size_t>(first);
  const TensorTable& tensors = context_.plan().tensors;
  return Status::error(Code::diverged,
                       str("the gradient of ",
                           param < tensors.tensor_of_param.size()
                               ? tensors.specs[static_cast<std::size_t>(tensors.tensor_of_param[param])].name
                               : std::string("all tensors together"),
                           " is not finite; nothing was updated"));
}

Status Commit::begin(const cpuopt::OptimizerParams& params) {
  STRATA_TRY(set_constants(context_, params, step_));
  const bool right = speculation_.guess_matches(params);
  for (ChunkId chunk = 0; chunk < undo_.size(); ++chunk) {
    done_[chunk] = speculation_.has_updated(chunk) && right;
    undo_[chunk] =
        speculation_.has_updated(chunk) && !right ? UndoAction::rollback_then_update : UndoAction::none;
  }
  speculation_.resolve(right);
  changed_states_ = false;
  next_ = fetched_ = fetched_early_ = 0;
  return Status::ok();
}

Status Commit::finish() {
  while (is_pending()) {
    context_.use_schedule().set_position(schedule_.commits[next_].first);
    STRATA_TRY(advance(next_ + 1));
  }
  return context_.chunks().status();
}

Status Commit::advance(std::size_t end) {
  for (; next_ < end; ++next_) {
    if (const Status status = commit_next(); !status.is_ok())
      return status.annotate(str("updating chunk ", schedule_.commits[next_].second));
    STRATA_TRY(fetch_ahead().annotate("prefetching states for pending updates"));
    STRATA_TRY(context_.chunks().write_backs().pump());
  }
  return Status::ok();
}

Status Commit::commit_next() {
  const ProfilerRange range("commit chunk");
  const ChunkId chunk = schedule_.commits[next_].second;
  if (!done_[chunk]) STRATA_TRY(queue_update(context_, chunk, step_, undo_[chunk]));
  changed_states_ = done_[chunk] = true;  // never updated twice, even if what follows fails and is retried
  STRATA_TRY(write_back_states(context_, chunk));
  return context_.chunks().drop({chunk, Payload::accum});
}

Status Commit::fetch_ahead() {
  fetched_ = std::max(fetched_, next_ + 1);
  for (; fetched_ < schedule_.commits.size(); ++fetched_) {
    const ChunkId chunk = schedule_.commits[fetched_].second;
    if (done_[chunk]) continue;
    STRATA_TRY_ASSIGN(const bool begun, prefetch_for_update(context_, chunk, kUpdatePayloads));
    if (!begun) break;
  }
  return Status::ok();
}

// The gradient does not exist yet, so it is not prefetched.
Status Commit::prefetch_states() {
  if (context_.plan().options.step_mode == StepMode::serial) return Status::ok();
  STRATA_TRY_ASSIGN(const bool updates_first, speculation_.prefetch_states());
  for (; updates_first && fetched_early_ < schedule_.commits.size(); ++fetched_early_) {
    const ChunkId chunk = schedule_.commits[fetched_early_].second;
    if (speculation_.covers(chunk)) continue;
    STRATA_TRY_ASSIGN(const bool begun,
                      prefetch_for_update(context_, chunk, std::span(kUpdatePayloads).subspan(1)));
    if (!begun) break;
  }
  return Status::ok();
}

}  // namespace strata::detail
