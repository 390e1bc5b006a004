#include "nccl/nccl_group.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "members.h"

namespace strata::detail {

NcclGroup::NcclGroup(const NcclSetup& setup, std::unique_ptr<NcclComm> comm, NcclCalls calls)
    : setup_(setup),
      comm_(std::move(comm)),
      calls_(std::move(calls)),
      work_(setup.backend, *comm_),
      texts_(setup.backend, setup.device, *comm_, work_),
      watch_(*comm_, work_, setup_.options.peer_failure) {}

NcclGroup::~NcclGroup() {
  if (work_.is_idle() || work_.look_whether_idle())
    comm_->close();
  else
    (void)comm_->fail(Status::error(Code::lost_peer, "this rank has left the group"));
  work_.wait();
}

Status NcclGroup::queue(const Collective& call, Stream& stream) {
  STRATA_TRY(comm_->failure());
  STRATA_TRY(check(call, rank(), size()));
  if (const Status queued = queue_all(call, stream); !queued.is_ok()) {
    Status failure = comm_->fail(queued.annotate(to_string(call)));
    // The caller may free its buffers, and a part of the collective may be in the stream.
    (void)setup_.backend.synchronize(stream);
    return failure;
  }
  const CollectiveBytes bytes = wire_bytes(call, rank(), size());
  ++counters_.calls;
  counters_.sent_bytes += bytes.sent;
  counters_.received_bytes += bytes.received;
  return {};
}

Status NcclGroup::queue_all(const Collective& call, Stream& stream) {
  STRATA_TRY(calls_.queue(*comm_, call, stream));
  return work_.queue_end(stream);
}

Result<std::vector<std::string>> NcclGroup::all_gather(std::string_view text) {
  STRATA_TRY(comm_->failure());
  Result<std::vector<std::string>> texts = texts_.all_gather(text);
  if (!texts.has_value()) return comm_->fail(texts.status().annotate("all_gather of texts"));
  return texts;
}

// The exchange of the lists waits for all work that is under way, as NCCL demands of a split.
Result<std::unique_ptr<ProcessGroup>> NcclGroup::split(std::span<const int> members) {
  std::string mine(members.size_bytes(), '\0');
  if (!members.empty()) std::memcpy(mine.data(), members.data(), members.size_bytes());
  STRATA_TRY_ASSIGN(const std::vector<std::string> texts, all_gather(mine));
  std::vector<std::vector<int>> lists;
  for (const std::string& text : texts) {
    std::vector<int>& list = lists.emplace_back(text.size() / sizeof(int));
    if (!text.empty()) std::memcpy(list.data(), text.data(), text.size());
  }
  STRATA_TRY(check_lists(lists));
  STRATA_TRY_ASSIGN(std::unique_ptr<NcclGroup> group, divide(setup_, members));
  return group;
}

Result<std::unique_ptr<NcclGroup>> NcclGroup::duplicate(const NcclSetup& setup) {
  STRATA_TRY(all_gather("").status());
  std::vector<int> all(static_cast<std::size_t>(size()));
  std::iota(all.begin(), all.end(), 0);
  return divide(setup, all);
}

// A rank that fails here ends the group, since the others would wait for it in the new one.
Result<std::unique_ptr<NcclGroup>> NcclGroup::divide(const NcclSetup& setup, std::span<const int> members) {
  const auto position = std::find(members.begin(), members.end(), rank()) - members.begin();
  const int size = static_cast<int>(members.size());
  Result<NcclCalls> calls = NcclCalls::create(setup.device, setup.backend, size, setup.options.piece_bytes);
  if (!calls.has_value()) return comm_->fail(calls.status().annotate("split"));
  Result<std::unique_ptr<NcclComm>> made = comm_->split(members.front(), static_cast<int>(position), size);
  if (!made.has_value()) return comm_->fail(made.status().annotate("split"));
  return std::make_unique<NcclGroup>(setup, *std::move(made), *std::move(calls));
}

}  // namespace strata::detail
