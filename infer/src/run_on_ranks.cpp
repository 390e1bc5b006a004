#include <strata/infer/run_on_ranks.h>

#include <memory>
#include <thread>
#include <vector>

namespace strata {

Status run_on_ranks(int ranks, const std::function<Status(World& world)>& work,
                    const std::function<void()>& finish) {
  STRATA_TRY_ASSIGN(std::vector<std::unique_ptr<World>> worlds, create_thread_worlds(ranks));
  std::vector<Status> outcomes(worlds.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t r = 0; r < worlds.size(); ++r)
      threads.emplace_back([&, r] {
        outcomes[r] = work(*worlds[r]);
        if (!outcomes[r].is_ok()) worlds[r].reset();  // so that the others do not wait for this rank
      });
  }
  finish();
  for (const Status& outcome : outcomes)
    if (!outcome.is_ok() && outcome.code() != Code::lost_peer) return outcome;
  for (const Status& outcome : outcomes) STRATA_TRY(outcome);
  return {};
}

}  // namespace strata
