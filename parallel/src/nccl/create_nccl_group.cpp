// How the ranks of a group find each other.
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>

#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>

#include "nccl/nccl_group.h"
#include "nccl/nccl_library.h"

namespace strata::detail {
namespace {

/// What a rank tells the others before any of them waits in NCCL.
struct Hello {
  Code code = Code::ok;  ///< and if it is not, why this rank cannot take part
  std::array<char, 400> error{};
  NcclUniqueId id{};               ///< of rank 0
  std::array<char, 48> machine{};  ///< the same for ranks on one machine only
  std::array<char, 32> gpu{};
  int visible_gpus = 0;
};

template <std::size_t N>
void put(std::array<char, N>& to, std::string_view text) {
  std::memcpy(to.data(), text.data(), std::min(text.size(), N - 1));
}

// The host name is not enough: containers on different machines may have the same.
std::string machine_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  if (!id.empty()) return id;
  std::array<char, 48> host{};
  (void)::gethostname(host.data(), host.size() - 1);
  return host.data();
}

/// All that can go wrong on one rank: the library, the GPU.
Result<std::shared_ptr<const NcclApi>> prepare(const NcclSetup& setup, int rank, Stream& stream,
                                               Hello& hello) {
  STRATA_TRY_ASSIGN(std::shared_ptr<const NcclApi> api, load_nccl(setup.options.library));
  STRATA_TRY_ASSIGN(stream, setup.backend.create_stream(StreamRole::collective));
  STRATA_TRY_ASSIGN(const GpuIdentity gpu, setup.device.identity(stream));
  put(hello.machine, machine_id());
  put(hello.gpu, gpu.bus_id);
  hello.visible_gpus = gpu.visible_gpus;
  if (rank > 0) return api;
  if (const int result = api->get_unique_id(&hello.id); result != kNcclSuccess)
    return Status::error(Code::unsupported,
                         str("ncclGetUniqueId: ", api->error_string(result), ": ", api->last_error(nullptr)));
  return api;
}

Status check_gpus(const std::vector<Hello>& all) {
  for (std::size_t q = 0; q < all.size(); ++q) {
    int here = 0;
    for (const Hello& other : all) here += other.machine == all[q].machine ? 1 : 0;
    for (std::size_t p = 0; p < q; ++p)
      if (all[p].machine == all[q].machine && all[p].gpu == all[q].gpu)
        return Status::error(Code::unsupported,
                             str("ranks ", p, " and ", q, " use the same GPU, ", all[q].gpu.data(),
                                 ", but NCCL needs one for each rank: ", plural(here, "rank"), " and ",
                                 plural(all[q].visible_gpus, "GPU"), " on this machine"));
  }
  return {};
}

Result<std::vector<Hello>> exchange(const Hello& mine, int rank, int size, const GatherTexts& all_gather) {
  STRATA_TRY_ASSIGN(const std::vector<std::string> texts,
                    all_gather({reinterpret_cast<const char*>(&mine), sizeof mine}));
  std::vector<Hello> all(static_cast<std::size_t>(size));
  for (std::size_t q = 0; q < all.size(); ++q) {
    if (texts[q].size() != sizeof(Hello))
      return Status::error(Code::lost_peer, str("rank ", q, " does something else than create a group"));
    std::memcpy(&all[q], texts[q].data(), sizeof(Hello));
    if (all[q].code == Code::ok) continue;
    const std::string why = all[q].error.data();
    return Status::error(all[q].code, static_cast<int>(q) == rank ? why : str("rank ", q, ": ", why));
  }
  STRATA_TRY(check_gpus(all));
  return all;
}

}  // namespace

Result<std::unique_ptr<ProcessGroup>> create_nccl_group(const NcclSetup& setup, int rank, int size,
                                                        const GatherTexts& all_gather) {
  Hello mine;
  Stream stream;  // selects the device, of which NCCL takes the current one
  const Result<std::shared_ptr<const NcclApi>> api = prepare(setup, rank, stream, mine);
  mine.code = api.status().code();
  if (!api.has_value()) put(mine.error, api.status().message());
  STRATA_TRY_ASSIGN(const std::vector<Hello> all, exchange(mine, rank, size, all_gather));
  auto comm = std::make_unique<NcclComm>(*api, rank, size, setup.options.timeout);
  STRATA_TRY(setup.device.stream_handle(stream).status());
  if (const Status joined = comm->join(all.front().id); !joined.is_ok())
    return joined.annotate("creation of a group");
  STRATA_TRY_ASSIGN(std::unique_ptr<NcclGroup> group, NcclGroup::create(setup, std::move(comm)));
  return group;
}

}  // namespace strata::detail
