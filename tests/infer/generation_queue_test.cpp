// Sequences of many threads share a batcher that one thread drives.
#include <strata/infer/generation_queue.h>

#include <atomic>
#include <memory>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "infer/cached_model.h"

namespace strata {
namespace {

using Admission = GenerationQueue::Admission;
using test::CachedModel;
using test::RecordingReceiver;
using ::testing::SizeIs;
using namespace std::chrono_literals;

struct QueuedModel {
  QueuedModel(std::int64_t places, std::size_t max_waiting, std::int64_t cached_tokens = 16)
      : model(test::tiny_of_family("llama"), {.sequences = places, .context = cached_tokens}),
        batcher(*model.run.engine, {.context = 16, .vocab = 50}),
        queue(batcher, max_waiting) {}
  /// Submits a sequence that begins with `id`.
  Admission submit(std::int32_t id, const std::shared_ptr<RecordingReceiver>& receiver, std::int64_t n = 3) {
    BatchSequence sequence;
    sequence.prompt = {id, id + 1};
    sequence.max_tokens = n;
    sequence.sampling.temperature = 0;
    std::vector<GenerationQueue::Entry> entries;
    entries.push_back({std::move(sequence), receiver});
    return queue.submit(std::move(entries));
  }
  void turn_to_end() {
    while (must(queue.turn(0ms))) {
    }
  }

  CachedModel model;
  Batcher batcher;
  GenerationQueue queue;
};

std::vector<std::shared_ptr<RecordingReceiver>> receivers(std::size_t n) {
  std::vector<std::shared_ptr<RecordingReceiver>> made;
  while (made.size() < n) made.push_back(std::make_shared<RecordingReceiver>());
  return made;
}

TEST(GenerationQueueTest, MoreThanTheLimitAreRefusedAndThoseThatWaitHaveTheirTurn) {
  QueuedModel queued(2, 1);
  const auto got = receivers(4);
  EXPECT_EQ(queued.queue.capacity(), 3U);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_EQ(queued.submit(static_cast<std::int32_t>(i), got[i]), Admission::accepted);
  EXPECT_EQ(queued.submit(3, got[3]), Admission::full);
  EXPECT_TRUE(must(queued.queue.turn(0ms)));
  EXPECT_EQ(queued.queue.load().active, 2U);
  EXPECT_EQ(queued.queue.load().waiting, 1U);
  EXPECT_EQ(queued.submit(3, got[3]), Admission::full);
  queued.turn_to_end();
  EXPECT_EQ(queued.submit(3, got[3]), Admission::accepted);
  queued.turn_to_end();
  for (const auto& receiver : got) EXPECT_THAT(receiver->ids, SizeIs(3));
  EXPECT_EQ(queued.queue.load().done.tokens, 12U);
}

TEST(GenerationQueueTest, EntriesOfOneCallAreTakenTogetherOrNotAtAll) {
  QueuedModel queued(1, 1);
  std::vector<GenerationQueue::Entry> entries;
  BatchSequence sequence;
  sequence.prompt = {1};
  for (const auto& receiver : receivers(3)) entries.push_back({sequence, receiver});
  EXPECT_EQ(queued.queue.submit(std::move(entries)), Admission::full);
  EXPECT_EQ(queued.queue.load().waiting, 0U);
}

TEST(GenerationQueueTest, OneThatIsCancelledWhileItWaitsMakesRoomForAnother) {
  QueuedModel queued(1, 1);
  const auto got = receivers(3);
  EXPECT_EQ(queued.submit(1, got[0], 8), Admission::accepted);
  EXPECT_EQ(queued.submit(2, got[1]), Admission::accepted);
  must(queued.queue.turn(0ms));
  got[1]->cancelled = true;
  must(queued.queue.turn(0ms));
  EXPECT_EQ(got[1]->status.code(), Code::cancelled);
  EXPECT_EQ(queued.submit(3, got[2]), Admission::accepted);
  queued.turn_to_end();
  EXPECT_THAT(got[0]->ids, SizeIs(8));
  EXPECT_THAT(got[1]->ids, SizeIs(0));
  EXPECT_THAT(got[2]->ids, SizeIs(3));
}

TEST(GenerationQueueTest, AfterItIsClosedTheBatchGoesOnAndNothingElseBegins) {
  QueuedModel queued(1, 2);
  const auto got = receivers(3);
  EXPECT_EQ(queued.submit(1, got[0]), Admission::accepted);
  EXPECT_EQ(queued.submit(2, got[1]), Admission::accepted);
  must(queued.queue.turn(0ms));
  queued.queue.close();
  EXPECT_EQ(queued.submit(3, got[2]), Admission::closed);
  queued.turn_to_end();
  EXPECT_THAT(got[0]->ids, SizeIs(3));
  EXPECT_EQ(got[1]->status.code(), Code::cancelled);
  EXPECT_EQ(got[1]->ends, 1);
}

TEST(GenerationQueueTest, AnErrorOfTheEngineIsToldToAllAndClosesIt) {
  QueuedModel queued(1, 2, 1);  // the cache is too short for any prompt
  const auto got = receivers(3);
  EXPECT_EQ(queued.submit(5, got[0]), Admission::accepted);
  EXPECT_EQ(queued.submit(1, got[1]), Admission::accepted);
  const Status status = queued.queue.turn(0ms).status();
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_EQ(got[0]->status, status);
  EXPECT_EQ(got[1]->status, status);
  EXPECT_EQ(queued.submit(1, got[2]), Admission::closed);
}

TEST(GenerationQueueTest, ThoseThatAreLeftAtItsEndAreToldSo) {
  const auto got = receivers(2);
  {
    QueuedModel queued(1, 2);
    EXPECT_EQ(queued.submit(1, got[0]), Admission::accepted);
    EXPECT_EQ(queued.submit(2, got[1]), Admission::accepted);
    must(queued.queue.turn(0ms));
  }
  for (const auto& receiver : got) EXPECT_EQ(receiver->status.code(), Code::cancelled);
}

TEST(GenerationQueueTest, TextsOfManyThreadsAreThoseOfTheirPrompts) {
  constexpr std::int32_t kThreads = 4, kEach = 12;
  QueuedModel queued(3, kThreads * kEach);
  std::vector<std::shared_ptr<RecordingReceiver>> got = receivers(kThreads * kEach);
  {
    std::atomic<int> submitting = kThreads;
    std::vector<std::jthread> threads;
    for (std::int32_t t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        for (std::int32_t i = 0; i < kEach; ++i)
          EXPECT_EQ(queued.submit(i, got[static_cast<std::size_t>(t * kEach + i)]), Admission::accepted);
        --submitting;
      });
    while (submitting > 0 || must(queued.queue.turn(1ms))) (void)queued.queue.load();
  }
  queued.turn_to_end();
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_THAT(got[i]->ids, SizeIs(3));
    EXPECT_EQ(got[i]->ids, got[i % kEach]->ids) << "the same prompt";
  }
}

}  // namespace
}  // namespace strata
