#include "nccl/nccl_world.h"

#include <unistd.h>

#include <array>

#include <strata/parallel/agree.h>
#include <strata/runtime/str.h>

#include "nccl/nccl_library.h"

namespace strata::detail {
namespace {

class NcclWorld final : public World {
 public:
  NcclWorld(const NcclDevice& device, std::unique_ptr<ThreadPool> pool, std::unique_ptr<Backend> backend,
            const NcclOptions& options, std::string bus_id)
      : device_(device),
        options_(options),
        bus_id_(std::move(bus_id)),
        pool_(std::move(pool)),
        backend_(std::move(backend)) {}

  /// All texts that ranks exchange go through this group.
  void join(std::unique_ptr<NcclGroup> ranks) { ranks_ = std::move(ranks); }

  int rank() const noexcept override { return ranks_->rank(); }
  int size() const noexcept override { return ranks_->size(); }
  std::string description() const override {
    std::array<char, 256> host{};
    (void)::gethostname(host.data(), host.size() - 1);
    return str("rank ", rank(), " of ", size(), " on host ", host.data(), " (NCCL)");
  }
  Result<std::vector<std::string>> all_gather(std::string_view text) override {
    return ranks_->all_gather(text);
  }
  RankProgress& progress() noexcept override { return progress_; }
  // Ranks have only NCCL to tell each other where they are. Each group has a watch of its own, which waits
  // for NcclOptions::timeout. That ends slow work, too, which a patience may not do, so it is not taken from
  // one.
  void set_watch(const WatchOptions&) override {}
  // Aborts the communicator, which NCCL reports to the ranks of other machines; on this one, they wait for
  // their timeout.
  void give_up(const Status& why) override { ranks_->fail(why); }
  // Each process has one rank.
  Result<std::shared_ptr<void>> share(const Create& create) override { return create(); }

  Result<std::unique_ptr<ProcessGroup>> create_group(Backend& backend) override {
    STRATA_TRY(agree(this, check_gpu(backend)));
    STRATA_TRY_ASSIGN(std::unique_ptr<NcclGroup> group, ranks_->duplicate({device_, backend, options_}));
    return group;
  }

 private:
  // NCCL divides a communicator on the GPU that it has.
  Status check_gpu(Backend& backend) const {
    STRATA_TRY_ASSIGN(Stream stream, backend.create_stream(StreamRole::collective));
    STRATA_TRY_ASSIGN(const GpuIdentity gpu, device_.identity(stream));
    if (gpu.bus_id == bus_id_) return {};
    return Status::error(Code::invalid, str("a group was asked for on GPU ", gpu.bus_id,
                                            ", but LOCAL_RANK gives this rank GPU ", bus_id_));
  }

  const NcclDevice& device_;
  const NcclOptions options_;
  const std::string bus_id_;
  RankProgress progress_;
  const std::unique_ptr<ThreadPool> pool_;
  const std::unique_ptr<Backend> backend_;
  std::unique_ptr<NcclGroup> ranks_;  // last: it uses what is above
};

}  // namespace

Result<std::unique_ptr<World>> create_nccl_world(const TorchrunRank& rank, const NcclDevice& device,
                                                 std::unique_ptr<ThreadPool> pool,
                                                 std::unique_ptr<Backend> backend,
                                                 const NcclOptions& options) {
  STRATA_TRY_ASSIGN(const std::shared_ptr<const NcclApi> api, load_nccl(options.file));
  NcclUniqueId id{};
  if (const int result = api->get_unique_id(&id); result != kNcclSuccess)
    return Status::error(Code::unsupported, str("ncclGetUniqueId for NCCL_COMM_ID=", rank.comm_id, ": ",
                                                api->error_string(result), ": ", api->last_error(nullptr)));
  Backend& on = *backend;
  STRATA_TRY_ASSIGN(Stream stream, on.create_stream(StreamRole::collective));
  STRATA_TRY_ASSIGN(const GpuIdentity gpu, device.identity(stream));  // selects the device, which NCCL takes
  auto world = std::make_unique<NcclWorld>(device, std::move(pool), std::move(backend), options, gpu.bus_id);
  auto comm = std::make_unique<NcclComm>(api, rank.rank, rank.size, options.timeout);
  STRATA_TRY(comm->start(id));
  STRATA_TRY(comm->wait_until_joined(options.peer_failure));
  // No inbox: this group reduces nothing.
  STRATA_TRY_ASSIGN(NcclCalls calls, NcclCalls::create(device, on, 1, options.piece_bytes));
  world->join(std::make_unique<NcclGroup>(NcclSetup{device, on, options}, std::move(comm), std::move(calls)));
  return world;
}

}  // namespace strata::detail
