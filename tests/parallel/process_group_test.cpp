// What every transport of ProcessGroup must do, tested with threads as ranks.
#include <cstring>
#include <limits>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/runtime/convert.h>
#include <strata/runtime/memory/alloc_counter.h>
#include <strata/runtime/str.h>

#include "parallel/rank_threads.h"
#include "support/numeric.h"

namespace strata {
namespace {

using test::RankThreads;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;
using Rank = RankThreads::Rank;

/// Values of one rank in `dtype`; those of f64 are not representable in f32.
Bytes values_of(int rank, DType dtype, std::size_t n) {
  test::Values values(static_cast<std::uint64_t>(rank) * 7919 + 17);
  Bytes out(n * size_of(dtype));
  const std::vector<float> floats = values.floats(static_cast<std::int64_t>(n), 8.0);
  if (dtype == DType::f64 || dtype == DType::i32) {
    for (std::size_t i = 0; i < n; ++i) {
      const double wide = floats[i] / 3.0;
      const auto whole = static_cast<std::int32_t>(floats[i] * 1e6f);
      if (dtype == DType::f64) std::memcpy(out.data() + 8 * i, &wide, 8);
      if (dtype == DType::i32) std::memcpy(out.data() + 4 * i, &whole, 4);
    }
    return out;
  }
  must(narrow_from_f32(floats, dtype, out));
  return out;
}

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

/// A buffer of one rank that is filled, used by collectives and read in stream order.
class RankBuffer {
 public:
  RankBuffer(Rank& rank, const Bytes& contents) : rank_(rank), buffer_(rank.allocate(contents.size())) {
    const BufferView view = buffer_.view().part(0, contents.size());
    if (!contents.empty()) must(rank_.backend.host_access({view.data, view.bytes, true}));
    std::copy(contents.begin(), contents.end(), view.data);
    bytes_ = contents.size();
  }
  BufferView view() const { return buffer_.view().part(0, bytes_); }
  Bytes contents() const {
    must(rank_.backend.synchronize(rank_.stream));
    if (bytes_ > 0) must(rank_.backend.host_access({view().data, bytes_, false}));
    return {view().data, view().data + bytes_};
  }

 private:
  Rank& rank_;
  Buffer buffer_;
  std::size_t bytes_ = 0;
};

class ProcessGroupTest : public ::testing::TestWithParam<std::tuple<StreamSchedule, int>> {
 protected:
  int size() const { return std::get<1>(GetParam()); }
  std::size_t n() const { return static_cast<std::size_t>(size()); }
  std::vector<Bytes> inputs(DType dtype, std::size_t elems) const {
    std::vector<Bytes> all;
    for (int rank = 0; rank < size(); ++rank) all.push_back(values_of(rank, dtype, elems));
    return all;
  }
  RankThreads ranks_{std::get<1>(GetParam()), std::get<0>(GetParam())};
};

constexpr std::size_t kSizes[] = {0, 1, 1001, 40000};

TEST_P(ProcessGroupTest, DataArrivesInRankOrder) {
  for (const std::size_t elems : kSizes) {
    const std::vector<Bytes> shards = inputs(DType::bf16, elems), wholes = inputs(DType::bf16, elems * n());
    const std::size_t bytes = shards[0].size();
    Bytes gathered;
    for (const Bytes& shard : shards) gathered.insert(gathered.end(), shard.begin(), shard.end());
    ranks_.must_run([&](Rank& rank) -> Status {
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
        ranks_.must_run([&](Rank& rank) -> Status {
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
  ranks_.must_run([&](Rank& rank) -> Status {
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
  ranks_.must_run([&](Rank& rank) -> Status {
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
  ranks_.must_run([&](Rank& rank) -> Status {
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
  ranks_.must_run([&](Rank& rank) -> Status {
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
  std::vector<GroupCounters> counted(n());
  ranks_.must_run([&](Rank& rank) -> Status {
    const RankBuffer data(rank, Bytes(4 * 1001)), all(rank, Bytes(4 * 1001 * n()));
    STRATA_TRY(rank.group.all_reduce(data.view(), DType::f32, Reduction::sum, rank.stream));
    STRATA_TRY(rank.group.all_gather(data.view(), all.view(), rank.stream));
    counted[static_cast<std::size_t>(rank.index())] = rank.group.counters();
    return rank.backend.synchronize(rank.stream);
  });
  std::uint64_t sent = 0, received = 0;
  for (const GroupCounters& counters : counted) {
    EXPECT_EQ(counters.calls, 2u);
    sent += counters.sent_bytes;
    received += counters.received_bytes;
  }
  EXPECT_EQ(sent, received);
  EXPECT_EQ(sent, (2 + n()) * (n() - 1) * 4 * 1001);
}

// --- what goes wrong ---

TEST_P(ProcessGroupTest, CallsThatDifferAreNamedByEveryRankAndTheNextOnesWork) {
  if (size() == 1) return;
  const int other = size() - 1;
  ranks_.must_run([&](Rank& rank) -> Status {
    const RankBuffer data(rank, Bytes(64));
    const BufferView view = data.view().part(0, rank.index() == other ? 32 : 64);
    const Status differs = rank.group.all_reduce(view, DType::f32, Reduction::sum, rank.stream);
    EXPECT_EQ(differs.code(), Code::invalid);
    EXPECT_THAT(std::string(differs.message()),
                HasSubstr(str("rank 0 queued all_reduce (sum) of 64 bytes of f32, but rank ", other,
                              " queued all_reduce (sum) of 32 bytes of f32")));
    STRATA_TRY(rank.group.all_reduce(data.view(), DType::f32, Reduction::sum, rank.stream));
    return rank.backend.synchronize(rank.stream);
  });
}

TEST_P(ProcessGroupTest, ACallThatOneRankGetsWrongFailsOnAll) {
  ranks_.must_run([&](Rank& rank) -> Status {
    const RankBuffer data(rank, Bytes(64));
    const BufferView view = data.view().part(0, rank.index() == 0 ? 63 : 64);
    const Status wrong = rank.group.all_reduce(view, DType::f32, Reduction::sum, rank.stream);
    EXPECT_EQ(wrong.message(), "rank 0: all_reduce: 63 bytes are not a whole number of f32");
    STRATA_TRY(rank.group.all_reduce(data.view(), DType::f32, Reduction::sum, rank.stream));
    return rank.backend.synchronize(rank.stream);
  });
}

TEST_P(ProcessGroupTest, FailedWorkOfOneRankFailsTheStreamsOfAll) {
  const std::vector<Status> outcomes = ranks_.run([&](Rank& rank) -> Status {
    const RankBuffer data(rank, Bytes(64));
    if (rank.index() == size() - 1) {
      const auto fail = [](const int&, ThreadPool&) {
        return Status::error(Code::io_error, "the disk of one rank");
      };
      STRATA_TRY(rank.backend.host_call_async(HostCall("fail", fail, 0), rank.stream));
    }
    STRATA_TRY(rank.group.all_reduce(data.view(), DType::f32, Reduction::sum, rank.stream));
    return rank.backend.synchronize(rank.stream);
  });
  for (const Status& status : outcomes) {
    EXPECT_EQ(status.code(), Code::io_error);
    EXPECT_THAT(std::string(status.message()), HasSubstr("the disk of one rank"));
  }
}

TEST_P(ProcessGroupTest, WhoeverWaitsForARankThatHasLeftIsCancelled) {
  if (size() == 1) return;
  const std::vector<Status> outcomes = ranks_.run([&](Rank& rank) -> Status {
    if (rank.index() == 1) {
      ranks_.destroy(1);
      return Status::error(Code::lost_peer, str("rank 1 of ", size(), " has left the group"));
    }
    const RankBuffer data(rank, Bytes(64));
    const Status alone = rank.group.all_reduce(data.view(), DType::f32, Reduction::sum, rank.stream);
    EXPECT_EQ(rank.group.all_reduce(data.view(), DType::f32, Reduction::sum, rank.stream), alone);
    EXPECT_EQ(rank.group.receive(data.view(), 1, rank.stream).code(), Code::lost_peer);
    return alone;
  });
  for (const Status& status : outcomes)
    EXPECT_EQ(status.to_string(), str("lost_peer: rank 1 of ", size(), " has left the group"));
}

TEST_P(ProcessGroupTest, QueueingAllocatesNothing) {
  if (std::get<0>(GetParam()) == StreamSchedule::latest_legal) return;  // its check allocates
  ASSERT_TRUE(AllocCounter::hooked());
  std::vector<std::uint64_t> allocated(n());
  ranks_.must_run([&](Rank& rank) -> Status {
    const RankBuffer data(rank, Bytes(4000)), all(rank, Bytes(4000 * n()));
    const auto step = [&]() -> Status {
      STRATA_TRY(rank.group.all_reduce(data.view(), DType::f32, Reduction::sum, rank.stream));
      return rank.group.all_gather(data.view(), all.view(), rank.stream);
    };
    for (int i = 0; i < 3; ++i) STRATA_TRY(step());
    const std::uint64_t before = AllocCounter::thread_count();
    for (int i = 0; i < 5; ++i) STRATA_TRY(step());
    allocated[static_cast<std::size_t>(rank.index())] = AllocCounter::thread_count() - before;
    return rank.backend.synchronize(rank.stream);
  });
  EXPECT_THAT(allocated, Each(0u));
}

INSTANTIATE_TEST_SUITE_P(Ranks, ProcessGroupTest,
                         ::testing::Combine(::testing::Values(StreamSchedule::threads,
                                                              StreamSchedule::latest_legal),
                                            ::testing::Values(1, 2, 3, 4, 8)),
                         [](const auto& test) {
                           return str(std::get<0>(test.param) == StreamSchedule::threads ? "threads_"
                                                                                         : "latest_legal_",
                                      std::get<1>(test.param));
                         });

TEST(ThreadGroupsTest, SizesAndBackendsThatCannotWorkAreRefused) {
  SteadyClock clock;
  const auto pool = must(ThreadPool::create(1));
  const auto backend = must(create_host_backend({}, *pool, clock));
  EXPECT_EQ(create_thread_groups(0, *backend).status().message(),
            "a group of threads has 1 to 16 ranks, not 0");
  EXPECT_EQ(create_thread_groups(17, *backend).status().code(), Code::invalid);
}

}  // namespace
}  // namespace strata
