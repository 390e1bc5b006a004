#include "mpi/mpi_world.h"

#include <cstdint>
#include <numeric>

#include <strata/parallel/nccl_group.h>
#include <strata/runtime/str.h>

#include "mpi/gather_texts.h"
#include "mpi/mpi_group.h"
#include "mpi/watch/resident_memory.h"

namespace strata::detail {
namespace {

class MpiWorld final : public World {
 public:
  MpiWorld(std::shared_ptr<MpiThread> thread, std::unique_ptr<World> local)
      : thread_(std::move(thread)), local_(std::move(local)) {}
  ~MpiWorld() override { thread_->leave(thread_->world()); }
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;
  int rank() const noexcept override { return thread_->info().rank; }
  int size() const noexcept override { return thread_->info().size; }
  int ranks_here() const noexcept override { return thread_->info().ranks_here; }
  std::string description() const override {
    return str("rank ", rank(), " of ", size(), " on host ", thread_->info().host, " (MPI)");
  }

  Result<std::vector<std::string>> all_gather(std::string_view text) override {
    return gather_texts(*thread_, thread_->world(), next_tag(), text);
  }

  RankProgress& progress() noexcept override { return thread_->progress(); }
  void set_watch(const WatchOptions& options) override { thread_->set_watch(options); }
  void give_up(const Status& why) override {
    thread_->leave_all(str("on host ", thread_->info().host, ", ", why.to_string(), "; it was ",
                           to_string(thread_->progress().position())));
  }
  // The first rank of a process reports the memory that the process has once.
  std::uint64_t transport_bytes() const override {
    return thread_->memory() + (thread_->info().here == 0 ? resident_bytes().shared : 0);
  }
  CollectiveBytes control_bytes() const noexcept override { return thread_->control_bytes(); }

  /// Tells the others which process this rank is.
  Status introduce() {
    STRATA_TRY_ASSIGN(const auto texts, all_gather(detail::to_text(this_process(thread_->info().host))));
    std::vector<ProcessIdentity> identities;
    for (const std::string& text : texts) identities.push_back(identity_from(text));
    thread_->start_watch(std::move(identities));
    return {};
  }

  Result<std::shared_ptr<void>> share(const Create& create) override {
    return local_ == nullptr ? create() : local_->share(create);
  }

  Result<std::unique_ptr<ProcessGroup>> create_group(Backend& backend) override {
    if (backend.info().kind == DeviceKind::cuda)
      return create_nccl_group(*this, backend,
                               {.peer_failure = [thread = thread_] { return thread->peer_failure(); }});
    std::vector<int> all(static_cast<std::size_t>(size()));
    std::iota(all.begin(), all.end(), 0);
    STRATA_TRY_ASSIGN(Peers* const peers, create_peers(*thread_, thread_->world(), next_tag(), all));
    return std::make_unique<MpiGroup>(thread_, *peers, backend);
  }

 private:
  int next_tag() { return thread_->world().tag(sequence_++, false); }

  const std::shared_ptr<MpiThread> thread_;
  const std::unique_ptr<World> local_;  // null if the process has one rank
  std::uint64_t sequence_ = 0;
};

}  // namespace

Result<std::unique_ptr<World>> create_mpi_world(std::shared_ptr<MpiThread> thread,
                                                std::unique_ptr<World> local) {
  auto world = std::make_unique<MpiWorld>(std::move(thread), std::move(local));
  STRATA_TRY(world->introduce());
  return std::unique_ptr<World>(std::move(world));
}

}  // namespace strata::detail
