#include "commit.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <strata/cpuopt/norm.h>
#include <strata/runtime/profiler_range.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

constexpr std::array<Payload, 5> kRead = {Payload::accum, Payload::param, Payload::master, Payload::m,
                                          Payload::v};

std::string name_of_bad_tensor(const Machine& machine) {
  for (std::size_t t = 0; t < machine.tables.leaf_of_tensor.size(); ++t) {
    if (!machine.plan.tensors.specs[t].group.trainable) continue;
    const std::int64_t n = cpuopt::norm_partial_count(machine.plan.tensors.specs[t].n_elems);
    for (std::int64_t i = 0; i < n; ++i)
      if (!std::isfinite(machine.leaves()[machine.tables.leaf_of_tensor[t] + i]))
        return machine.plan.tensors.specs[t].name;
  }
  return "their sum";
}

}  // namespace

Commit::Commit(Machine& machine, Speculation& speculation, const PassSchedule& schedule)
    : machine_(machine),
      speculation_(speculation),
      schedule_(schedule),
      until_(machine.plan.layout.n_chunks(), 0),
      undo_(machine.plan.layout.n_chunks(), Undo::none),
      done_(machine.plan.layout.n_chunks(), false),
      next_(schedule.commits.size()) {
  for (std::size_t i = 0; i < schedule.commits.size(); ++i) until_[schedule.commits[i].second] = i + 1;
}

Commit::~Commit() {
  for (Stream* stream : {&machine_.compute, &machine_.cpu})
    (void)machine_.backend.synchronize(*stream);  // nothing is left to report to
}

Result<double> Commit::gradient_norm(std::int32_t micro_batches, double loss_scale) {
  STRATA_TRY(machine_.chunks->submit_write_backs());  // the slow tier goes on while the host waits
  STRATA_TRY(machine_.backend.synchronize(machine_.compute));
  STRATA_TRY(machine_.backend.synchronize(machine_.cpu));
  if (machine_.dry()) return imagined_norm(loss_scale);
  const auto n = static_cast<std::size_t>(machine_.tables.n_leaves);
  STRATA_TRY(machine_.backend.host_access(
      {reinterpret_cast<const std::byte*>(machine_.leaves()), n * sizeof(double), false}));
  return std::sqrt(cpuopt::tree_sum(std::span<const double>(machine_.leaves(), n))) / micro_batches;
}

// A plan holds for steps that clip and for steps that do not; a simulation is told how many do.
double Commit::imagined_norm(double loss_scale) noexcept {
  ++imagined_;
  const double share = machine_.rehearses() ? 1.0 / 3 : machine_.clipped;
  const auto clipped_by = [&](std::int64_t steps) {
    return std::floor(share * static_cast<double>(steps) + 1e-9);
  };
  return clipped_by(imagined_) > clipped_by(imagined_ - 1) ? loss_scale * (2 * machine_.plan.options.clip + 1)
                                                           : 0.0;
}

Status Commit::not_finite() const {
  return Status::error(Code::diverged, str("the gradient of ", name_of_bad_tensor(machine_),
                                           " is not finite; nothing was updated"));
}

Status Commit::begin(const cpuopt::OptimizerParams& params) {
  STRATA_TRY_ASSIGN(step_, step_constants(machine_, params));
  const bool right = speculation_.is_right(params);
  for (ChunkId chunk = 0; chunk < undo_.size(); ++chunk) {
    done_[chunk] = speculation_.made(chunk) && right;
    undo_[chunk] = speculation_.made(chunk) && !right ? Undo::redo : Undo::none;
  }
  speculation_.end(right);
  changed_states_ = false;
  next_ = fetched_ = fetched_early_ = 0;
  return Status::ok();
}

Status Commit::finish() {
  while (is_pending()) {
    machine_.chunks->set_position(schedule_.commits[next_].first);
    STRATA_TRY(advance(next_ + 1));
  }
  return machine_.chunks->status();
}

Status Commit::advance(std::size_t end) {
  for (; next_ < end; ++next_) {
    if (const Status status = commit_next(); !status.is_ok())
      return status.annotate(str("updating chunk ", schedule_.commits[next_].second));
    STRATA_TRY(fetch_ahead().annotate("updating what is due"));
    STRATA_TRY(machine_.chunks->pump());
  }
  return Status::ok();
}

Status Commit::commit_next() {
  const ProfilerRange range("commit chunk");
  const ChunkId chunk = schedule_.commits[next_].second;
  if (!done_[chunk]) STRATA_TRY(queue_update(machine_, chunk, step_, undo_[chunk]));
  changed_states_ = done_[chunk] = true;  // never twice, also where what follows fails and is tried again
  STRATA_TRY(send_states_home(machine_, chunk));
  return machine_.chunks->drop({chunk, Payload::accum});
}

Status Commit::fetch_ahead() {
  fetched_ = std::max(fetched_, next_ + 1);
  for (; fetched_ < schedule_.commits.size(); ++fetched_) {
    const ChunkId chunk = schedule_.commits[fetched_].second;
    if (done_[chunk]) continue;
    STRATA_TRY_ASSIGN(const bool begun, fetch_for_update(machine_, chunk, kRead));
    if (!begun) break;
  }
  return Status::ok();
}

// The gradient is yet to come.
Status Commit::fetch_early() {
  if (machine_.plan.options.step_mode == StepMode::serial) return Status::ok();
  STRATA_TRY_ASSIGN(const bool updates_first, speculation_.fetch_early());
  for (; updates_first && fetched_early_ < schedule_.commits.size(); ++fetched_early_) {
    const ChunkId chunk = schedule_.commits[fetched_early_].second;
    if (speculation_.takes(chunk)) continue;
    STRATA_TRY_ASSIGN(const bool begun, fetch_for_update(machine_, chunk, std::span(kRead).subspan(1)));
    if (!begun) break;
  }
  return Status::ok();
}

}  // namespace strata
