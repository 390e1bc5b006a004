#include "mpi/mpi_group.h"

#include <algorithm>
#include <cstring>
#include <string>

#include <strata/runtime/str.h>

#include "members.h"
#include "mpi/gather_texts.h"

namespace strata::detail {
namespace {

/// The state of a HostCall.
struct QueuedCall {
  MpiCalls* calls;
  Collective call;
  int tag;
};
Status run_queued(const QueuedCall& queued, ThreadPool& pool) {
  return queued.calls->run(queued.call, queued.tag, pool);
}

std::string to_text(int next_group, std::span<const int> members) {
  std::string text(sizeof(int) * (members.size() + 1), '\0');
  std::memcpy(text.data(), &next_group, sizeof(int));
  if (!members.empty()) std::memcpy(text.data() + sizeof(int), members.data(), members.size_bytes());
  return text;
}
std::vector<int> from_text(const std::string& text) {
  std::vector<int> numbers(text.size() / sizeof(int));
  if (!numbers.empty()) std::memcpy(numbers.data(), text.data(), numbers.size() * sizeof(int));
  return numbers;
}

}  // namespace

Result<Peers*> create_peers(MpiThread& thread, Peers& parent, int tag, std::span<const int> members) {
  STRATA_TRY_ASSIGN(const std::vector<std::string> texts,
                    gather_texts(thread, parent, tag, to_text(thread.next_group(), members)));
  int id = 0;
  std::vector<std::vector<int>> lists;
  for (const std::string& text : texts) {
    std::vector<int>& list = lists.emplace_back(from_text(text));
    if (list.empty())
      return Status::error(Code::invalid,
                           str("rank ", lists.size() - 1, " does something else than create a group"));
    id = std::max(id, list.front());
    list.erase(list.begin());
  }
  STRATA_TRY(check_lists(lists));
  if (id >= kMaxGroups)
    return Status::error(Code::unsupported, str("a process can create ", kMaxGroups - 1, " groups over MPI"));
  std::vector<int> world_ranks;
  for (const int member : members) world_ranks.push_back(parent.world_rank(member));
  const auto position = std::find(members.begin(), members.end(), parent.rank()) - members.begin();
  return &thread.add_group(id, static_cast<int>(position), std::move(world_ranks));
}

MpiGroup::MpiGroup(std::shared_ptr<MpiThread> thread, Peers& peers, Backend& backend)
    : thread_(std::move(thread)),
      peers_(peers),
      backend_(backend),
      calls_(std::make_shared<MpiCalls>(*thread_, peers)),
      sends_(static_cast<std::size_t>(peers.size())),
      receives_(sends_.size()) {}

MpiGroup::~MpiGroup() {
  thread_->leave(peers_);
  thread_->keep(calls_);
}

int MpiGroup::next_tag(const Collective& call) {
  const auto peer = static_cast<std::size_t>(call.peer);
  if (call.kind == CollectiveKind::send) return peers_.tag(sends_[peer]++, true);
  if (call.kind == CollectiveKind::receive) return peers_.tag(receives_[peer]++, true);
  return peers_.tag(sequence_++, false);
}

Status MpiGroup::queue(const Collective& call, Stream& stream) {
  STRATA_TRY(thread_->failure(peers_));
  STRATA_TRY(check(call, rank(), size()));
  HostCall work(to_string(call.kind).data(), run_queued, QueuedCall{calls_.get(), call, next_tag(call)});
  if (call.send.bytes > 0) work.reads(call.send.data, call.send.bytes);
  if (call.receive.bytes > 0) work.writes(call.receive.data, call.receive.bytes);
  STRATA_TRY(backend_.host_call_async(work, stream));
  const CollectiveBytes bytes = wire_bytes(call, rank(), size());
  ++counters_.calls;
  counters_.sent_bytes += bytes.sent;
  counters_.received_bytes += bytes.received;
  return {};
}

Result<std::unique_ptr<ProcessGroup>> MpiGroup::split(std::span<const int> members) {
  STRATA_TRY_ASSIGN(Peers* const made,
                    create_peers(*thread_, peers_, peers_.tag(sequence_++, false), members));
  return std::make_unique<MpiGroup>(thread_, *made, backend_);
}

}  // namespace strata::detail
