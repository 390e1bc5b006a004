#include <strata/session/ranks/rank_traffic.h>

#include <algorithm>

#include <strata/parallel/collective.h>
#include <strata/session/ranks/gather_schedule.h>
#include <strata/session/pinned_layout.h>

#include "plan/chunk_tables.h"

namespace strata {
namespace {

std::uint64_t gradient_bytes(const StatePlan& plan, ChunkId chunk) {
  const DataParallel& ranks = plan.options.ranks;
  const GroupKey& group = plan.layout.group_of(chunk);
  const auto part = static_cast<std::uint64_t>(plan.layout.summed(chunk).size());
  const auto to_others = static_cast<std::uint64_t>(ranks.ranks - 1) * part;
  if (ranks.sums_in_program()) return 0;  // see summed_bytes()
  const std::uint64_t added =
      ranks.sums_locally() ? to_others * size_of(group.accum)
                           : static_cast<std::uint64_t>(plan.passes()) * to_others * size_of(group.grad);
  return added + static_cast<std::uint64_t>(ranks.replicas() - 1) * part * size_of(group.accum);
}

// The bytes that the program adds up over ranks.
std::uint64_t summed_bytes(const StatePlan& plan, const UseTrace& uses) {
  std::uint64_t bytes = 0;
  for (const UseTrace::Position& position : uses.positions) bytes += position.summed_bytes;
  return bytes * static_cast<std::uint64_t>(plan.passes());
}

// The bytes of the norms of tensors, which the ranks that hold a chunk's shards exchange chunk by chunk.
std::uint64_t norm_bytes(const StatePlan& plan) {
  const DataParallel& ranks = plan.options.ranks;
  const detail::ChunkTables tables = detail::chunk_tables(plan.tensors, plan.layout);
  std::uint64_t bytes = 0;
  for (ChunkId chunk = 0; chunk < plan.layout.n_chunks(); ++chunk) {
    const std::int64_t n = tables.before_chunk[chunk + 1] - tables.before_chunk[chunk];
    bytes += wire_bytes({.kind = CollectiveKind::all_reduce,
                         .receive = {nullptr, 2 * static_cast<std::size_t>(n) * sizeof(double)},
                         .dtype = DType::f64},
                        ranks.rank % ranks.shards(), ranks.shards())
                 .sent;
  }
  return bytes;
}

// The first position that writes a gradient.
std::int32_t backward_begin(const UseTrace& uses) {
  const auto writes = [](const UseTrace::Position& position) { return !position.grads.empty(); };
  return static_cast<std::int32_t>(std::find_if(uses.positions.begin(), uses.positions.end(), writes) -
                                   uses.positions.begin());
}

}  // namespace

namespace {

std::uint64_t all_reduce_bytes(std::size_t values, std::int32_t rank, std::int32_t ranks) {
  return wire_bytes({.kind = CollectiveKind::all_reduce,
                     .receive = {nullptr, values * sizeof(double)},
                     .dtype = DType::f64},
                    rank, ranks)
      .sent;
}

void add_data_parallel(const StatePlan& plan, const UseTrace& uses, RankTraffic& traffic) {
  const DataParallel& ranks = plan.options.ranks;
  for (ChunkId chunk = 0; chunk < plan.layout.n_chunks(); ++chunk)
    if (plan.layout.group_of(chunk).trainable) traffic.gradients += gradient_bytes(plan, chunk);
  traffic.gradients += summed_bytes(plan, uses);
  const std::int32_t backward = backward_begin(uses);
  for (const GatherSchedule::Gather& gather : gather_schedule(uses, plan.layout, ranks).gathers) {
    const std::uint64_t bytes = static_cast<std::uint64_t>(ranks.shards() - 1) *
                                static_cast<std::uint64_t>(ranks.keeps_gathered() ? 1 : plan.passes()) *
                                plan.layout.payload_bytes(gather.chunk, Payload::param);
    traffic.parameters += bytes;
    if (gather.first < backward) traffic.in_forward += bytes;
  }
  const auto values =
      static_cast<std::size_t>(detail::count_norm_partials(plan.tensors)) + step_value_count(plan);
  traffic.control += all_reduce_bytes(values, ranks.rank, ranks.ranks);
  if (exchanges_norms(plan.options)) traffic.control += norm_bytes(plan);
}

void add_model_parallel(const StatePlan& plan, const UseTrace& uses, RankTraffic& traffic) {
  const ModelParallel& model = plan.options.model;
  for (const UseTrace::Position& position : uses.positions)
    traffic.shared += position.sent_bytes * static_cast<std::uint64_t>(plan.passes());
  traffic.control += all_reduce_bytes(model_value_count(plan), model.rank, model.ranks());
  traffic.control += all_reduce_bytes(static_cast<std::size_t>(detail::count_norm_partials(plan.tensors)),
                                      model.place(MeshAxis::pp), model.pp);
}

}  // namespace

RankTraffic rank_traffic(const StatePlan& plan, const UseTrace& uses) {
  RankTraffic traffic;
  if (!plan.trains()) return traffic;
  if (plan.options.ranks.ranks > 1) add_data_parallel(plan, uses, traffic);
  if (plan.options.model.ranks() > 1) add_model_parallel(plan, uses, traffic);
  return traffic;
}

}  // namespace strata
