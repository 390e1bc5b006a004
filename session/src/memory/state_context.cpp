#include <strata/session/state_context.h>

#include <strata/parallel/agree.h>
#include <strata/parallel/paced_group.h>

#include "plan/chunk_tables.h"

namespace strata {

namespace {
std::int32_t all_ranks(const StatePlan& plan) {
  return plan.options.ranks.ranks * plan.options.model.ranks();
}
}  // namespace

StateContext::StateContext(const StatePlan& plan, const SessionEnvironment& environment)
    : plan_(plan),
      environment_(environment),
      phases_(environment.trace == nullptr ? nullptr : &environment.trace->add_track("engine")),
      tables_(std::make_unique<detail::ChunkTables>(
          detail::chunk_tables(plan.tensors, plan.layout, plan.n_trainees()))),
      pinned_layout_(plan_pinned_layout(plan, tables_->n_partials)),
      budgets_(environment.budgets),
      use_schedule_(plan.layout.n_chunks()) {
  if (budgets_ == nullptr) budgets_ = &own_budgets_.emplace(plan.options.budgets);
}

StateContext::~StateContext() {
  // Queued work may still use the memory freed below; its errors have nowhere to go.
  for (Stream* stream : streams_.all())
    if (stream->id() >= 0) (void)backend().synchronize(*stream);
  if (chunks_) chunks_->write_backs().drain();
}

Result<std::unique_ptr<StateContext>> StateContext::create(const StatePlan& plan,
                                                           const SessionEnvironment& environment) {
  std::unique_ptr<StateContext> context(new StateContext(plan, environment));
  if (context->has_data() == environment.synthetic.has_value())
    return Status::error(Code::invalid, context->has_data()
                                            ? "a session over a backend with data computes its norms"
                                            : "a session over a backend without data needs synthetic norms");
  if (all_ranks(plan) > 1 && environment.world == nullptr && context->has_data())
    return Status::error(Code::invalid, "the plan is for several ranks, but the session was given no world");
  // The other ranks learn of a rank's failure before they wait for it.
  STRATA_TRY(agree(context->world(), context->allocate()));
  STRATA_TRY(context->join_ranks());
  return context;
}

Status StateContext::allocate() {
  STRATA_TRY_ASSIGN(streams_.compute, backend().create_stream(StreamRole::compute));
  STRATA_TRY_ASSIGN(streams_.h2d, backend().create_stream(StreamRole::h2d));
  STRATA_TRY_ASSIGN(streams_.d2h, backend().create_stream(StreamRole::d2h));
  STRATA_TRY_ASSIGN(streams_.cpu, backend().create_stream(StreamRole::cpu));
  if (all_ranks(plan_) > 1) {
    STRATA_TRY_ASSIGN(streams_.collective, backend().create_stream(StreamRole::collective));
  }
  // A backend that several ranks share cannot know whose streams these are.
  for (Stream* stream : streams_.all())
    if (environment_.trace != nullptr && stream->id() >= 0) backend().set_trace(*stream, environment_.trace);
  STRATA_TRY_ASSIGN(memory_, RunMemory::create(plan_, pinned_layout_.total(), *budgets_, backend(),
                                               environment_.open_store, environment_.trace));
  mover_ = std::make_unique<TierMover>(backend(), streams_.h2d, streams_.d2h, plan_.layout, plan_.placement,
                                       store());
  STRATA_TRY_ASSIGN(chunks_,
                    ChunkManager::create(
                        plan_.layout, plan_.placement, use_schedule_,
                        {memory_->device_slots(), memory_->pinned_slots()}, backend(), *mover_,
                        {&budgets_->of(Tier::device), &budgets_->of(Tier::pinned), &budgets_->of(Tier::nvme)},
                        environment_.trace));
  return Status::ok();
}

Status StateContext::join_ranks() {
  const DataParallel& ranks = plan_.options.ranks;
  const ModelParallel& model = plan_.options.model;
  if (all_ranks(plan_) == 1) return {};
  if (has_data()) {
    STRATA_TRY_ASSIGN(world_group_, environment_.world->create_group(backend()));
    if (environment_.network.between.bytes_per_s > 0)
      world_group_ = create_paced_group(std::move(world_group_), backend(), environment_.network.between);
  } else {
    const int all = all_ranks(plan_), rank = rank_in_mesh(ranks, model);
    const NetworkRates& network = environment_.network;
    world_group_ = environment_.peers != nullptr
                       ? create_simulated_group(all, rank, *environment_.peers, network)
                       : create_simulated_group(all, rank, backend(), network);
  }
  if (model.ranks() > 1) {
    STRATA_TRY_ASSIGN(model_groups_, ModelGroups::create(*world_group_, ranks, model));
  }
  if (ranks.ranks == 1) return {};
  ProcessGroup& data = model_groups_ ? model_groups_->data() : *world_group_;
  STRATA_TRY_ASSIGN(groups_, RankGroups::create(data, ranks));
  return {};
}

std::span<double> StateContext::step_values() const noexcept {
  return {norm_partials() + tables_->n_partials, step_value_count(plan_)};
}

std::span<double> StateContext::model_values() const noexcept {
  const std::span<double> before = step_values();
  return {before.data() + before.size(), model_value_count(plan_)};
}

BufferView StateContext::undo(ChunkId chunk) const {
  const std::size_t offset =
      pinned_layout_.total() - pinned_layout_.undo + *plan_.undo.offset_of_chunk[chunk];
  return memory_->session_pinned().part(offset, updated_state_bytes(plan_, chunk, Tier::pinned));
}

}  // namespace strata
