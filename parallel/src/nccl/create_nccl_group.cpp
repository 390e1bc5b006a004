// How the ranks of a group find each other.
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>
#include <optional>

#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>

#include "nccl/nccl_group.h"
#include "nccl/nccl_library.h"

namespace strata::detail {
namespace {

/// A rank sends this to the others before any of them waits in NCCL.
struct Hello {
  Code code = Code::ok;  ///< and if it is not, why this rank cannot take part
  std::array<char, 400> error{};
  NcclUniqueId id{};               ///< made by rank 0
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

/// A rank's part of a group that does not exist yet.
struct Part {
  std::shared_ptr<const NcclApi> api;
  Stream stream;  ///< selects the device, of which NCCL takes the current one
  std::optional<NcclCalls> calls;
  std::unique_ptr<NcclComm> comm;
};

/// All that can go wrong on one rank: the library, the GPU, its memory.
Status prepare(const NcclSetup& setup, int rank, int size, Part& part, Hello& hello) {
  STRATA_TRY_ASSIGN(part.api, load_nccl(setup.options.file));
  STRATA_TRY_ASSIGN(part.stream, setup.backend.create_stream(StreamRole::collective));
  STRATA_TRY_ASSIGN(const GpuIdentity gpu, setup.device.identity(part.stream));
  put(hello.machine, machine_id());
  put(hello.gpu, gpu.bus_id);
  hello.visible_gpus = gpu.visible_gpus;
  STRATA_TRY_ASSIGN(NcclCalls calls,
                    NcclCalls::create(setup.device, setup.backend, size, setup.options.piece_bytes));
  part.calls.emplace(std::move(calls));
  if (rank > 0) return {};
  const int result = part.api->get_unique_id(&hello.id);
  if (result == kNcclSuccess) return {};
  return Status::error(Code::unsupported, str("ncclGetUniqueId: ", part.api->error_string(result), ": ",
                                              part.api->last_error(nullptr)));
}

Status start(const NcclSetup& setup, int rank, int size, const NcclUniqueId& id, Part& part) {
  part.comm = std::make_unique<NcclComm>(part.api, rank, size, setup.options.timeout);
  STRATA_TRY(setup.device.stream_handle(part.stream).status());
  return part.comm->start(id);
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

// The error of the first rank that has one, on all ranks.
Result<std::vector<Hello>> exchange(Hello mine, const Status& status, int rank, const GatherTexts& gather) {
  mine.code = status.code();
  if (!status.is_ok()) put(mine.error, status.message());
  STRATA_TRY_ASSIGN(const std::vector<std::string> texts,
                    gather({reinterpret_cast<const char*>(&mine), sizeof mine}));
  std::vector<Hello> all(texts.size());
  for (std::size_t q = 0; q < all.size(); ++q) {
    if (texts[q].size() != sizeof(Hello))
      return Status::error(Code::lost_peer, str("rank ", q, " does something else than create a group"));
    std::memcpy(&all[q], texts[q].data(), sizeof(Hello));
    if (all[q].code == Code::ok) continue;
    const std::string why = all[q].error.data();
    return Status::error(all[q].code, static_cast<int>(q) == rank ? why : str("rank ", q, ": ", why));
  }
  return all;
}

}  // namespace

Result<std::unique_ptr<ProcessGroup>> create_nccl_group(const NcclSetup& setup, int rank, int size,
                                                        const GatherTexts& gather) {
  Part part;
  Hello mine;
  const Status prepared = prepare(setup, rank, size, part, mine);
  STRATA_TRY_ASSIGN(const std::vector<Hello> all, exchange(mine, prepared, rank, gather));
  STRATA_TRY(check_gpus(all));
  const Status started = start(setup, rank, size, all.front().id, part);
  STRATA_TRY(exchange(mine, started, rank, gather).status());
  // The group, whose watch asks for failures of other ranks, does not exist yet.
  STRATA_TRY(part.comm->wait_until_joined(setup.options.peer_failure).annotate("creation of a group"));
  return std::make_unique<NcclGroup>(setup, std::move(part.comm), *std::move(part.calls));
}

}  // namespace strata::detail
