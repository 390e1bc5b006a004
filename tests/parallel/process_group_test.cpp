// The contract of every transport of ProcessGroup; process_group_failures_test.cpp has what goes wrong. Each
// transport has a program that contains both.
#include <gmock/gmock.h>

#include <strata/runtime/memory/alloc_counter.h>
#include <strata/runtime/str.h>

#include "parallel/process_group_fixture.h"

namespace strata {
namespace {

using test::Bytes;
using test::ProcessGroupTest;
using test::Rank;
using test::RankBuffer;
using test::values_of;

template <class T>
void reduce_reference(std::vector<T>& into, const std::vector<T>& from, Reduction reduction) {
  for (std::size_t i = 0; i < into.size(); ++i)
    into[i] = reduction == Reduction::sum ? into[i] + from[i] : std::max(into[i], from[i]);
}
template <class T>
Bytes reduced_as(const std::vector<Bytes>& ranks, Reduction reduction) {
  std::vector<T> sum, next(ranks[0].size() / sizeof(T));
  for (const Bytes& bytes : ranks) {
    if (!bytes.empty()) std::memcpy(next.data(), bytes.data(), bytes.size());
    if (sum.empty())
      sum = next;
    else
      reduce_reference(sum, next, reduction);
  }
  Bytes out(ranks[0].size());
  if (!out.empty()) std::memcpy(out.data(), sum.data(), out.size());
  return out;
}
/// The reduction in ascending rank; 16-bit values in f32 with one rounding.
Bytes reduced(const std::vector<Bytes>& ranks, DType dtype, Reduction reduction) {
  if (dtype == DType::f64) return reduced_as<double>(ranks, reduction);
  if (dtype == DType::i32) return reduced_as<std::int32_t>(ranks, reduction);
  std::vector<float> sum, next(ranks[0].size() / size_of(dtype));
  for (const Bytes& bytes : ranks) {
    must(widen_to_f32(dtype, bytes, next));
    if (sum.empty())
      sum = next;
    else
      reduce_reference(sum, next, reduction);
  }
  Bytes out(ranks[0].size());
  must(narrow_from_f32(sum, dtype, out));
  return out;
}

Bytes part_of(const Bytes& all, std::size_t index, std::size_t bytes) {
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(index * bytes);
  return {begin, begin + static_cast<std::ptrdiff_t>(bytes)};
}

constexpr std::size_t kSizes[] = {0, 1, 1001, 40000};

TEST_P(ProcessGroupTest, DataArrivesInRankOrder) {
  for (const std::size_t elems : kSizes) {
    const std::vector<Bytes> shards = inputs(DType::bf16, elems), wholes = inputs(DType::bf16, elems * n());
    const std::size_t bytes = shards[0].size();
    Bytes gathered;
    for (const Bytes& shard : shards) gathered.insert(gathered.end(), shard.begin(), shard.end());
    must_run([&](Rank& rank) -> Status {
      const auto me = static_cast<std::size_t>(rank.index());
      const RankBuffer shard(rank, shards[me]), whole(rank, Bytes(bytes * n())), mine(rank, wholes[me]),
          exchanged(rank, Bytes(bytes * n()));
      STRATA_TRY(rank.group.all_gather(shard.view(), whole.view(), rank.stream));
      EXPECT_EQ(whole.contents(), gathered);
      STRATA_TRY(rank.group.all_to_all(mine.view(), exchanged.view(), rank.stream));
      Bytes want;
      for (const Bytes& other : wholes) {
        const Bytes part = part_of(other, me, bytes);
        want.insert(want.end(), part.begin(), part.end());
      }
      EXPECT_EQ(exchanged.contents(), want);
      for (int root = 0; root < rank.group.size(); ++root) {
        const RankBuffer data(rank, shards[me]);
        STRATA_TRY(rank.group.broadcast(data.view(), root, rank.stream));
        EXPECT_EQ(data.contents(), shards[static_cast<std::size_t>(root)]);
      }
      for (int step = 0; step < rank.group.size(); ++step) {
        const RankBuffer next(rank, Bytes(bytes));
        STRATA_TRY(rank.group.shift(shard.view(), next.view(), step, rank.stream));
        EXPECT_EQ(next.contents(), shards[(me + static_cast<std::size_t>(step)) % n()]) << step;
      }
      return {};
    });
  }
}

TEST_P(ProcessGroupTest, ReductionsHaveTheBitsOfASumInRankOrder) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32})
    for (const Reduction reduction : {Reduction::sum, Reduction::max})
      for (const std::size_t elems : kSizes) {
        const std::vector<Bytes> data = inputs(dtype, elems), wholes = inputs(dtype, elems * n());
        const Bytes want = reduced(data, dtype, reduction), want_whole = reduced(wholes, dtype, reduction);
        must_run([&](Rank& rank) -> Status {
          const auto me = static_cast<std::size_t>(rank.index());
          const RankBuffer mine(rank, data[me]), whole(rank, wholes[me]), shard(rank, Bytes(data[me].size()));
          STRATA_TRY(rank.group.all_reduce(mine.view(), dtype, reduction, rank.stream));
          EXPECT_EQ(mine.contents(), want) << to_string(dtype) << " x " << elems;
          STRATA_TRY(rank.group.reduce_scatter(whole.view(), shard.view(), dtype, reduction, rank.stream));
          EXPECT_EQ(shard.contents(), part_of(want_whole, me, shard.view().bytes))
              << to_string(dtype) << " x " << elems;
          return {};
        });
      }
}

// `send` of all_gather and `receive` of reduce_scatter may be the rank's part of the other buffer.
TEST_P(ProcessGroupTest, PartsMayBeInPlace) {
  const std::vector<Bytes> wholes = inputs(DType::f32, 300 * n());
  const Bytes want = reduced(wholes, DType::f32, Reduction::sum);
  must_run([&](Rank& rank) -> Status {
    const RankBuffer whole(rank, wholes[static_cast<std::size_t>(rank.index())]);
    const BufferView mine = whole.view().part(static_cast<std::size_t>(rank.index()) * 1200, 1200);
    STRATA_TRY(rank.group.reduce_scatter(whole.view(), mine, DType::f32, Reduction::sum, rank.stream));
    STRATA_TRY(rank.group.all_gather(mine, whole.view(), rank.stream));
    EXPECT_EQ(whole.contents(), want);
    return {};
  });
}

// Work queued after a collective may overwrite what the others have read, at once and again and again.
TEST_P(ProcessGroupTest, BuffersCanBeOverwrittenByTheNextWorkOfTheStream) {
  constexpr int kRounds = 40;
  std::vector<Bytes> data;
  for (int round = 0; round < kRounds; ++round) data.push_back(values_of(round, DType::f32, 500));
  must_run([&](Rank& rank) -> Status {
    std::vector<RankBuffer> sources;
    for (const Bytes& contents : data) sources.emplace_back(rank, contents);
    const RankBuffer work(rank, Bytes(2000)), gathered(rank, Bytes(2000 * n()));
    for (int round = 0; round < kRounds; ++round) {
      const RankBuffer& source = sources[static_cast<std::size_t>((round + rank.index()) % kRounds)];
      STRATA_TRY(rank.backend.copy_async(work.view(), source.view(), rank.stream));
      STRATA_TRY(rank.group.all_gather(work.view(), gathered.view(), rank.stream));
      STRATA_TRY(rank.group.all_reduce(work.view(), DType::f32, Reduction::max, rank.stream));
    }
    Bytes want;
    for (std::size_t q = 0; q < n(); ++q) {
      const Bytes& last = data[(kRounds - 1 + q) % kRounds];
      want.insert(want.end(), last.begin(), last.end());
    }
    EXPECT_EQ(gathered.contents(), want);
    return {};
  });
}

TEST_P(ProcessGroupTest, ARingOfSendsAndReceivesTurnsOnce) {
  if (size() == 1) return;
  must_run([&](Rank& rank) -> Status {
    const int me = rank.index(), next = (me + 1) % size(), previous = (me + size() - 1) % size();
    const RankBuffer mine(rank, values_of(me, DType::f32, 100)), other(rank, Bytes(400));
    // Rank 0 receives first, since a send waits for its receiver.
    for (const bool sends : {me != 0, me == 0})
      STRATA_TRY(sends ? rank.group.send(mine.view(), next, rank.stream)
                       : rank.group.receive(other.view(), previous, rank.stream));
    EXPECT_EQ(other.contents(), values_of(previous, DType::f32, 100));
    return {};
  });
}

TEST_P(ProcessGroupTest, SplitGroupsAreIndependent) {
  must_run([&](Rank& rank) -> Status {
    const int me = rank.index(), color = me % 2;
    // Key: descending rank.
    std::vector<int> members;
    for (int q = size() - 1; q >= 0; --q)
      if (q % 2 == color) members.push_back(q);
    STRATA_TRY_ASSIGN(const std::unique_ptr<ProcessGroup> part, rank.group.split(members));
    EXPECT_EQ(part->size(), static_cast<int>(members.size()));
    EXPECT_EQ(members[static_cast<std::size_t>(part->rank())], me);
    Bytes want;
    for (const int q : members) {
      const Bytes of_q = values_of(q, DType::f32, 10);
      want.insert(want.end(), of_q.begin(), of_q.end());
    }
    const RankBuffer mine(rank, values_of(me, DType::f32, 10)), all(rank, Bytes(40 * members.size()));
    // The halves of the group queue different numbers of collectives.
    for (int i = 0; i <= color; ++i) STRATA_TRY(part->all_gather(mine.view(), all.view(), rank.stream));
    EXPECT_EQ(all.contents(), want);
    return {};
  });
}

TEST_P(ProcessGroupTest, CountersAreTheWireBytes) {
  must_run([&](Rank& rank) -> Status {
    const RankBuffer data(rank, Bytes(4 * 1001)), all(rank, Bytes(4 * 1001 * n()));
    CollectiveBytes want;
    for (const Collective& call :
         {Collective{CollectiveKind::all_reduce, {}, data.view(), DType::f32, Reduction::sum, 0},
          Collective{.kind = CollectiveKind::all_gather, .send = data.view(), .receive = all.view()},
          Collective{.kind = CollectiveKind::broadcast, .receive = data.view(), .peer = size() - 1}}) {
      STRATA_TRY(rank.group.queue(call, rank.stream));
      want.sent += wire_bytes(call, rank.index(), size()).sent;
      want.received += wire_bytes(call, rank.index(), size()).received;
    }
    EXPECT_EQ(rank.group.counters().calls, 3u);
    EXPECT_EQ(rank.group.counters().sent_bytes, want.sent);
    EXPECT_EQ(rank.group.counters().received_bytes, want.received);
    return rank.backend.synchronize(rank.stream);
  });
}

// The order of the calls, not that of the streams, says which calls of the ranks belong together.
TEST_P(ProcessGroupTest, GroupsAndStreamsCanBeInterleaved) {
  if (std::get<0>(GetParam()) == StreamSchedule::latest_legal) return;  // it runs one stream at a time
  must_run([&](Rank& rank) -> Status {
    std::vector<int> reversed;
    for (int q = size() - 1; q >= 0; --q) reversed.push_back(q);
    STRATA_TRY_ASSIGN(const std::unique_ptr<ProcessGroup> other, rank.group.split(reversed));
    Stream second = must(rank.backend.create_stream(StreamRole::collective));
    std::vector<std::unique_ptr<RankBuffer>> results;
    for (int i = 0; i < 12; ++i) {
      const RankBuffer& data = *results.emplace_back(
          std::make_unique<RankBuffer>(rank, values_of(rank.index() + 100 * i, DType::f32, 100)));
      STRATA_TRY((i % 2 == 0 ? rank.group : *other)
                     .all_reduce(data.view(), DType::f32, Reduction::max, i % 3 == 0 ? second : rank.stream));
    }
    STRATA_TRY(rank.backend.synchronize(second));
    for (int i = 0; i < 12; ++i) {
      std::vector<Bytes> all;
      for (int q = 0; q < size(); ++q) all.push_back(values_of(q + 100 * i, DType::f32, 100));
      EXPECT_EQ(results[static_cast<std::size_t>(i)]->contents(), reduced(all, DType::f32, Reduction::max))
          << i;
    }
    return {};
  });
}

// Parts of several pieces, of which the last are of different lengths.
TEST_P(ProcessGroupTest, LongReductionsHaveTheBitsOfASumInRankOrder) {
  if (std::get<0>(GetParam()) == StreamSchedule::latest_legal) return;  // slow
  const std::size_t elems = n() * (2 * 262144 + 5) + n() / 2;
  const std::vector<Bytes> data = inputs(DType::f32, elems);
  const Bytes want = reduced(data, DType::f32, Reduction::sum);
  must_run([&](Rank& rank) -> Status {
    const RankBuffer mine(rank, data[static_cast<std::size_t>(rank.index())]);
    STRATA_TRY(rank.group.all_reduce(mine.view(), DType::f32, Reduction::sum, rank.stream));
    EXPECT_TRUE(mine.contents() == want);
    return {};
  });
}

TEST_P(ProcessGroupTest, QueueingAllocatesNothing) {
  if (std::get<0>(GetParam()) == StreamSchedule::latest_legal) return;  // its check allocates
  if (ranks_->on_fake_cuda()) GTEST_SKIP() << "the fake CUDA runtime allocates";
  ASSERT_TRUE(AllocCounter::hooked());
  must_run([&](Rank& rank) -> Status {
    const RankBuffer data(rank, Bytes(4000)), all(rank, Bytes(4000 * n()));
    const auto step = [&]() -> Status {
      STRATA_TRY(rank.group.all_reduce(data.view(), DType::f32, Reduction::sum, rank.stream));
      return rank.group.all_gather(data.view(), all.view(), rank.stream);
    };
    // The backend's pool of events grows until it has as many as are ever in flight, which depends on the
    // time.
    std::uint64_t least = ~std::uint64_t{0};
    for (int round = 0; round < 20; ++round) {
      const std::uint64_t before = AllocCounter::thread_count();
      for (int i = 0; i < 5; ++i) STRATA_TRY(step());
      least = std::min(least, AllocCounter::thread_count() - before);
      STRATA_TRY(rank.backend.synchronize(rank.stream));
    }
    EXPECT_EQ(least, 0u);
    return rank.backend.synchronize(rank.stream);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ProcessGroupTest,
                         ::testing::Combine(::testing::Values(StreamSchedule::threads,
                                                              StreamSchedule::latest_legal),
                                            ::testing::ValuesIn(test::rank_counts())),
                         [](const auto& test) {
                           return str(std::get<0>(test.param) == StreamSchedule::threads ? "threads_"
                                                                                         : "latest_legal_",
                                      std::get<1>(test.param));
                         });

}  // namespace
}  // namespace strata
