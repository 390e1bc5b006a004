#include <strata/parallel/thread_groups.h>
#include <strata/parallel/world.h>

#include <strata/runtime/str.h>

#include "threads/thread_group.h"

namespace strata {
namespace {

class ThreadWorld final : public World {
 public:
  ThreadWorld(std::shared_ptr<detail::Meeting> meeting, detail::WatchedRanks all, int rank)
      : meeting_(std::move(meeting)),
        all_(std::move(all)),
        rank_(rank),
        size_(static_cast<int>(all_.world_ranks.size())) {}
  ~ThreadWorld() override { meeting_->leave(rank_); }
  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  bool in_one_process() const noexcept override { return true; }
  std::string description() const override { return str("rank ", rank_, " of ", size_, " (threads)"); }
  void give_up(const Status& why) override {
    all_.watch->note_failure(
        rank_, str(why.to_string(), "; it was ", to_string(all_.watch->progress(rank_).position())));
    meeting_->leave(rank_);
  }
  RankProgress& progress() noexcept override { return all_.watch->progress(rank_); }
  void set_watch(const WatchOptions& options) override { all_.watch->set(options); }

  Result<std::vector<std::string>> all_gather(std::string_view text) override {
    STRATA_TRY_ASSIGN(const auto all, meet({.rank = rank_, .doing = "all_gather", .text = text}));
    std::vector<std::string> texts;
    for (const detail::Contribution& other : all) texts.emplace_back(other.text);
    // Others may still be reading `text`.
    STRATA_TRY(meet({.rank = rank_, .doing = "all_gather"}).status());
    return texts;
  }

  // The first rank creates the object.
  Result<std::shared_ptr<void>> share(const Create& create) override {
    detail::Contribution mine{.rank = rank_, .doing = "share"};
    if (rank_ == 0) {
      Result<std::shared_ptr<void>> made = create();
      mine.status = made.status();
      if (made.has_value()) mine.shared = *std::move(made);
    }
    STRATA_TRY_ASSIGN(const auto all, meet(mine));
    const Status status = all[0].status;
    std::shared_ptr<void> shared = all[0].shared;
    for (int i = 0; i < 2; ++i)  // so that the meeting, which remembers two, does not keep the object alive
      STRATA_TRY(meet({.rank = rank_, .doing = "share"}).status());
    if (!status.is_ok()) return status;
    return shared;
  }

  Result<std::unique_ptr<ProcessGroup>> create_group(Backend& backend) override {
    std::vector<std::unique_ptr<ProcessGroup>> groups;
    STRATA_TRY_ASSIGN(const std::shared_ptr<void> shared, share([&]() -> Result<std::shared_ptr<void>> {
                        STRATA_TRY_ASSIGN(auto made, detail::create_watched_groups(size_, backend, all_));
                        return std::shared_ptr<void>(
                            std::make_shared<std::vector<std::unique_ptr<ProcessGroup>>>(std::move(made)));
                      }));
    auto& made = *std::static_pointer_cast<std::vector<std::unique_ptr<ProcessGroup>>>(shared);
    return std::move(made[static_cast<std::size_t>(rank_)]);
  }

 private:
  // Ranks that have failed in different places make different calls.
  Result<std::span<const detail::Contribution>> meet(const detail::Contribution& mine) {
    STRATA_TRY_ASSIGN(const auto all, meeting_->meet(rank_, mine));
    for (const detail::Contribution& other : all)
      if (other.doing != mine.doing) {
        meeting_->leave(rank_);
        return Status::error(Code::lost_peer, str("rank ", other.rank, " is at ", other.doing, " and rank ",
                                                  rank_, " at ", mine.doing, ", so one of them has failed"));
      }
    return all;
  }

  const std::shared_ptr<detail::Meeting> meeting_;
  const detail::WatchedRanks all_;
  const int rank_, size_;
};

}  // namespace

Result<std::vector<std::unique_ptr<World>>> create_thread_worlds(int size) {
  if (size < 1 || size > detail::kMaxThreadRanks)
    return Status::error(Code::invalid,
                         str("a world of threads has 1 to ", detail::kMaxThreadRanks, " ranks, not ", size));
  detail::WatchedRanks all{std::make_shared<detail::ThreadWatch>(size), {}};
  for (int rank = 0; rank < size; ++rank) all.world_ranks.push_back(rank);
  const auto meeting = std::make_shared<detail::Meeting>(size, all);
  std::vector<std::unique_ptr<World>> worlds;
  for (int rank = 0; rank < size; ++rank) worlds.push_back(std::make_unique<ThreadWorld>(meeting, all, rank));
  return worlds;
}

}  // namespace strata
