#include <strata/session/ranks/data_parallel.h>

#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>

namespace strata {

std::string_view to_string(GradientReduce reduce) noexcept {
  switch (reduce) {
    case GradientReduce::each:
      return "each";
    case GradientReduce::once:
      return "once";
    case GradientReduce::in_program:
      return "in_program";
  }
  return "?";
}

Result<DeviceMesh> mesh_of(const DataParallel& ranks) {
  return DeviceMesh::create({ranks.replicas(), ranks.shards(), 1, 1, 1, 1, 1}, ranks.ranks);
}

Sharding sharding_of(const DataParallel& ranks) noexcept {
  return {.ranks = ranks.ranks,
          .part = ranks.part(ranks.rank),
          .shards = ranks.shards(),
          .shards_frozen = ranks.zero == 3,
          .sums_locally = ranks.sums_locally(),
          .receives = !ranks.sums_locally() && !ranks.sums_in_program()};
}

Status check(const DataParallel& ranks, std::int32_t grad_accum) {
  const auto invalid = [](std::string message) { return Status::error(Code::invalid, std::move(message)); };
  if (ranks.ranks < 1 || ranks.rank < 0 || ranks.rank >= ranks.ranks)
    return invalid(str("rank ", ranks.rank, " does not exist among ", plural(ranks.ranks, "rank")));
  if (ranks.zero < 0 || ranks.zero > 3)
    return invalid(str("parallel.zero is ", ranks.zero, "; it must be from 0 to 3"));
  if (ranks.shard_ranks < 0 || ranks.shard_ranks > ranks.ranks || ranks.ranks % ranks.shards() != 0)
    return invalid(str("parallel.shard_ranks is ", ranks.shard_ranks, ", which does not divide ",
                       plural(ranks.ranks, "rank")));
  if (ranks.gather_ahead < 0 || ranks.gather_ahead > 16)
    return invalid(str("parallel.gather_ahead is ", ranks.gather_ahead, "; it must be from 0 to 16"));
  if (grad_accum % ranks.ranks != 0)
    return invalid(str("train.grad_accum is ", grad_accum, ", which ", plural(ranks.ranks, "rank"),
                       " cannot share equally: it must be a multiple of the number of ranks"));
  if (ranks.zero == 1 && ranks.ranks > 1 && ranks.reduce == GradientReduce::each)
    return invalid(
        "parallel.zero=1 keeps whole gradients and adds them once a step; it needs parallel.reduce=once");
  return {};
}

}  // namespace strata
