#include "parallel/nccl/nccl_ranks.h"

#include <dlfcn.h>

#include <cstring>
#include <thread>

#include <strata/runtime/assert.h>

namespace strata::test {

const FakeNccl& fake_nccl() {
  static const FakeNccl* const control = [] {
    void* const library = ::dlopen(STRATA_FAKE_NCCL, RTLD_NOW | RTLD_LOCAL);
    STRATA_ASSERT(library != nullptr, ::dlerror());
    void* const symbol = ::dlsym(library, kFakeNcclEntry);
    FakeNcclEntry entry = nullptr;
    std::memcpy(&entry, &symbol, sizeof entry);
    return entry();
  }();
  return *control;
}

NcclOptions fake_nccl_options() {
  NcclOptions options;
  options.timeout = std::chrono::seconds(30);
  options.piece_bytes = 1 << 16;
  options.file = STRATA_FAKE_NCCL;
  return options;
}

NcclRanks::NcclRanks(int size, StreamSchedule schedule, const NcclOptions& options)
    : size_(size), options_(options) {
  for (int rank = 0; rank < size; ++rank) {
    devices_.push_back(make_rank_device(rank, schedule));
    on_fake_cuda_ = devices_.back().on_fake_cuda;
    faults_.push_back(std::make_unique<FaultBackend>(*devices_.back().backend));
  }
}

Status NcclRanks::run_rank(World& world, const Body& body, std::unique_ptr<ProcessGroup>& group) {
  RankDevice& mine = devices_[static_cast<std::size_t>(world.rank())];
  STRATA_TRY_ASSIGN(
      group, detail::create_nccl_group({*mine.device, faults(world.rank()), options_}, world.rank(), size_,
                                       [&](std::string_view text) { return world.all_gather(text); }));
  Rank rank{group, *group, *mine.backend, must(mine.backend->create_stream(StreamRole::collective))};
  Status outcome = body(rank);
  const Status drained = rank.backend.synchronize(rank.stream);
  if (outcome.is_ok()) outcome = drained;
  if (!outcome.is_ok()) rank.leave();
  return outcome;
}

std::vector<Status> NcclRanks::run(const Body& body, const std::function<void(int)>& before) {
  std::vector<std::unique_ptr<World>> worlds = must(create_thread_worlds(size_));
  std::vector<std::unique_ptr<ProcessGroup>> groups(worlds.size());
  std::vector<Status> outcomes(worlds.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < worlds.size(); ++r)
    threads.emplace_back([&, r] {
      before(static_cast<int>(r));
      outcomes[r] = run_rank(*worlds[r], body, groups[r]);
    });
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

void NcclRanks::run_worlds(const std::function<void(World&)>& body) {
  std::vector<std::unique_ptr<World>> worlds = must(create_thread_worlds(size_));
  std::vector<std::thread> threads;
  for (auto& world : worlds) threads.emplace_back([&] { body(*world); });
  for (std::thread& thread : threads) thread.join();
}

std::vector<int> rank_counts() { return {1, 2, 3, 4, 8}; }
std::unique_ptr<Ranks> make_ranks(int size, StreamSchedule schedule) {
  fake_nccl().set_polls(2);
  return std::make_unique<NcclRanks>(size, schedule);
}

}  // namespace strata::test
