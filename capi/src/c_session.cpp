#include "c_session.h"

#include <strata/offload/nvme_store.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/runtime/memory/host_memory.h>
#include <strata/runtime/str.h>

#include "c_values.h"

namespace strata::capi {
namespace {

// The elements of a session: no machine has room for more.
constexpr std::int64_t kMaxElems = std::int64_t{1} << 45;
constexpr std::int32_t kMaxDims = 8;

Status check(const strata_session_options& options) {
  std::string problems;
  const auto problem = [&](const auto&... what) { problems += str(problems.empty() ? "" : "\n", what...); };
  if (!optimizer_of(options.optimizer)) problem("optimizer is ", options.optimizer, "; it must be 0 to 5");
  if (!states_of(options.states)) problem("states is ", options.states, "; it must be 0 to 2");
  if (!placement_of(options.placement)) problem("placement is ", options.placement, "; it must be 0 to 2");
  if (!holds_of(options.holds)) problem("holds is ", options.holds, "; it must be 0 or 1");
  if (const std::string dirs = problems_of_dirs(options.nvme_dirs, options.n_nvme_dirs, options.nvme_bytes);
      !dirs.empty())
    problem(dirs);
  if (options.nvme_dirs == nullptr && options.placement == STRATA_PLACE_NVME)
    problem("placement is STRATA_PLACE_NVME, but there is no folder in nvme_dirs");
  if (options.chunk_elems < 0) problem("chunk_elems is ", options.chunk_elems, "; it must be at least 0");
  if (options.threads < 0 || options.threads > 1024)
    problem("threads is ", options.threads, "; it must be 0 to 1024");
  if (options.rank != 0 || options.ranks < 0 || options.ranks > 1)
    problem("rank ", options.rank, " of ", options.ranks, ": sessions of several ranks are not supported");
  return problems.empty() ? Status() : Status::error(Code::invalid, problems);
}

}  // namespace

Result<std::unique_ptr<CSession>> CSession::create(const strata_session_options& options) {
  STRATA_TRY(check(options));
  std::unique_ptr<CSession> session(new CSession);
  session->threads_ = options.threads;
  session->holds_ = *holds_of(options.holds);
  SessionOptions& to = session->options_;
  to.optimizer.optimizer = *optimizer_of(options.optimizer);
  to.optimizer.momentum =
      options.has_momentum != 0 ? 0.9 : 0;  // whether there is a moment; steps have the value
  to.states = *states_of(options.states);
  to.policy = *placement_of(options.placement);
  to.chunk_elems = options.chunk_elems;
  to.rounding_seed = options.rounding_seed;
  for (std::size_t i = 0; i < options.n_nvme_dirs; ++i) to.nvme.dirs.emplace_back(options.nvme_dirs[i]);
  const bool has_nvme = !to.nvme.dirs.empty() && to.policy != PlacementPolicy::pinned;
  const std::uint64_t pinned = options.pinned_bytes != 0 ? options.pinned_bytes
                               : has_nvme                ? default_ram_budget(read_host_facts())
                                                         : kUnlimited;  // sealing checks what is free
  const std::uint64_t nvme = !has_nvme ? 0 : options.nvme_bytes != 0 ? options.nvme_bytes : kUnlimited;
  to.budgets = {0, pinned, nvme};
  return session;
}

Status CSession::add(const strata_param& param) {
  if (session_ != nullptr)
    return Status::error(Code::invalid, "the session is sealed, so no parameter can be added");
  TrainerParam added;
  if (param.name == nullptr)
    return Status::error(Code::invalid, str("the name of parameter ", params_.size(), " is null"));
  added.name = param.name;
  const auto refuse = [&](const auto&... why) {
    return Status::error(Code::invalid, str("parameter '", added.name, "' ", why...));
  };
  if (param.reserved != 0) return refuse("has reserved = ", param.reserved, "; it must be 0");
  added.trainable = param.is_frozen == 0;
  const std::optional<DType> dtype = dtype_of(param.dtype);
  if (!dtype) return refuse("has the dtype ", param.dtype, "; it must be 0 to 2");
  added.dtype = *dtype;
  if (param.n_dims < 0 || param.n_dims > kMaxDims)
    return refuse("has ", param.n_dims, " dimensions; it must have 0 to ", kMaxDims);
  if (param.n_dims > 0 && param.dims == nullptr) return refuse("has no dims");
  std::int64_t n = 1;
  added.shape.rank = 1;
  added.shape.dims[0] = 1;
  for (std::int32_t i = 0; i < param.n_dims; ++i) {
    if (param.dims[i] < 1) return refuse("has the extent ", param.dims[i], "; it must be at least 1");
    if (__builtin_mul_overflow(n, param.dims[i], &n) || n > kMaxElems - n_elems_)
      return refuse("is too large: a session holds at most ", kMaxElems, " elements");
    // The innermost dimensions beyond those of a Shape become one.
    added.shape.rank = std::min(i + 1, kMaxRank);
    std::int64_t& extent = added.shape.dims[static_cast<std::size_t>(added.shape.rank - 1)];
    extent = i < kMaxRank ? param.dims[i] : extent * param.dims[i];
  }
  n_elems_ += n;
  params_.push_back(std::move(added));
  plan_.reset();
  return {};
}

Result<const StatePlan*> CSession::plan() {
  if (plan_ == nullptr) {
    STRATA_TRY_ASSIGN(plan_, plan_trainer_states(params_, options_, holds_));
  }
  return plan_.get();
}

Status CSession::seal(std::span<void* const> params) {
  if (session_ != nullptr) return Status::error(Code::invalid, "the session is already sealed");
  STRATA_TRY(plan().status());
  if (params.size() != params_.size())
    return Status::error(Code::invalid,
                         str("there are ", params.size(), " addresses for ", params_.size(), " parameters"));
  STRATA_TRY_ASSIGN(auto pool, ThreadPool::create(threads_));
  STRATA_TRY(
      check_host_memory(plan_->planned_peak[index_of(Tier::pinned)], pool->threads(), read_host_facts()));
  STRATA_TRY_ASSIGN(auto backend, create_host_backend({}, *pool, clock_));
  SessionEnvironment environment{*backend, *pool, clock_};
  environment.open_store = [](const NvmeOptions& nvme) -> Result<StorePtr<ObjectStore>> {
    if (nvme.classes.empty()) return StorePtr<ObjectStore>();
    STRATA_TRY_ASSIGN(StorePtr<NvmeStore> store, NvmeStore::create(posix_io(), nvme));
    return StorePtr<ObjectStore>(std::move(store));
  };
  STRATA_TRY_ASSIGN(session_, TrainerSession::create(*plan_, environment, params));
  backend_ = std::move(backend);
  pool_ = std::move(pool);
  return {};
}

Status CSession::rename(std::span<const char* const> names) {
  if (names.size() != params_.size())
    return Status::error(Code::invalid,
                         str("there are ", names.size(), " names for ", params_.size(), " parameters"));
  std::vector<TrainerParam> renamed = params_;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == nullptr)
      return Status::error(Code::invalid, str("the name of parameter ", i, " is null"));
    renamed[i].name = names[i];
  }
  STRATA_TRY(check_trainer_params(renamed, holds_));
  if (plan_ != nullptr)
    for (std::size_t i = 0; i < names.size(); ++i) plan_->tensors.specs[i].name = renamed[i].name;
  params_ = std::move(renamed);
  return {};
}

Result<TrainerSession*> CSession::sealed() const {
  if (session_ != nullptr) return session_.get();
  return Status::error(Code::invalid, "the session is not sealed yet");
}

}  // namespace strata::capi
