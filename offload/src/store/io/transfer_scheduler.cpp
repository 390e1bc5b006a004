#include "store/io/transfer_scheduler.h"

#include <algorithm>
#include <utility>

#include <strata/runtime/assert.h>

namespace strata::detail {

TransferScheduler::TransferScheduler(std::uint32_t table_size, std::uint32_t files, std::size_t block_bytes,
                                     InFlightLimits limits)
    : files_(files),
      block_bytes_(block_bytes),
      limits_(limits),
      entries_(table_size),
      progress_(std::size_t{table_size} * files),
      queues_(std::size_t{2} * files) {
  for (DirectionQueue& each : queues_) each.indices.resize(table_size);
}

void TransferScheduler::push(std::uint32_t index, const Transfer& transfer) {
  if (is_abandoned_) return;
  Entry& entry = entries_[index];
  STRATA_ASSERT(entry.in_flight == 0 && entry.unissued == 0, "transfer ", index, " is still in flight");
  entry = {transfer.write, transfer.data, static_cast<std::uint32_t>(transfer.extents.size()), 0,
           Status::ok()};
  std::size_t at = 0;
  for (const Extent& extent : transfer.extents) {
    progress_of(index, extent.file) = {extent, at, 0};
    at += extent.bytes;
    DirectionQueue& to = queue_of(extent.file, transfer.write);
    to.index_at(to.waiting++) = index;
  }
}

bool TransferScheduler::ready(std::size_t queue) const noexcept {
  const DirectionQueue& own = queues_[queue];
  return own.waiting > 0 && own.in_flight < limits_.per_direction &&
         own.in_flight + queues_[queue ^ 1].in_flight < limits_.per_file;
}

bool TransferScheduler::has_task() const noexcept {
  for (std::size_t queue = 0; queue < queues_.size(); ++queue)
    if (ready(queue)) return true;
  return false;
}

BlockTask TransferScheduler::next_task() {
  while (!ready(next_queue_)) next_queue_ = (next_queue_ + 1) % queues_.size();
  DirectionQueue& from = queues_[next_queue_];
  const auto file = static_cast<std::uint32_t>(next_queue_ / 2);
  next_queue_ = (next_queue_ + 1) % queues_.size();
  const std::uint32_t index = from.index_at(0);
  Entry& entry = entries_[index];
  ExtentProgress& progress = progress_of(index, file);
  const std::size_t bytes = std::min(block_bytes_, progress.extent.bytes - progress.issued);
  const std::size_t at = progress.at + progress.issued;
  const BlockTask task{
      index, at, {entry.write, file, progress.extent.offset + progress.issued, entry.data + at, bytes}};
  progress.issued += bytes;
  ++entry.in_flight;
  ++from.in_flight;
  if (progress.issued == progress.extent.bytes) {
    --entry.unissued;
    from.head = (from.head + 1) % from.indices.size();
    --from.waiting;
  }
  return task;
}

std::optional<Status> TransferScheduler::complete(const BlockTask& task, Status outcome) {
  Entry& entry = entries_[task.index];
  STRATA_ASSERT(entry.in_flight > 0, "transfer ", task.index, " has nothing in flight");
  --entry.in_flight;
  if (is_abandoned_) return std::nullopt;
  if (!outcome.is_ok() && entry.failure.is_ok()) {
    entry.failure = std::move(outcome);
    drop_unissued(task.index);
  }
  if (entry.in_flight > 0 || entry.unissued > 0) return std::nullopt;
  return std::exchange(entry.failure, Status::ok());
}

void TransferScheduler::abandon() noexcept {
  is_abandoned_ = true;
  for (DirectionQueue& queue : queues_) queue.waiting = 0;
}

// The unissued extents wait in the queues of several files, at the head of some and behind other transfers in
// others.
void TransferScheduler::drop_unissued(std::uint32_t index) {
  Entry& entry = entries_[index];
  for (std::uint32_t file = 0; file < files_ && entry.unissued > 0; ++file) {
    DirectionQueue& queue = queue_of(file, entry.write);
    for (std::size_t i = 0; i < queue.waiting; ++i) {
      if (queue.index_at(i) != index) continue;
      for (std::size_t later = i + 1; later < queue.waiting; ++later)
        queue.index_at(later - 1) = queue.index_at(later);
      --queue.waiting;
      --entry.unissued;
      break;
    }
  }
}

}  // namespace strata::detail
