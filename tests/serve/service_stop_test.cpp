// A service that is told to stop lets answers end, for a while.
#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/serve/service.h>

#include "serve/api_answers.h"
#include "serve/served_tiny.h"

namespace strata {
namespace {

using test::events_of;
using test::message_of;
using test::ServedTiny;
using test::text_of;
using ::testing::HasSubstr;

constexpr const char* kStopCompletions = "/v1/completions";

TEST(ServiceStopTest, AStopLetsAnswersEndAndRefusesOthers) {
  ServedTiny tiny({.places = 1, .max_waiting = 1});
  const std::string body = R"({"prompt": "cat", "max_tokens": 40, "temperature": 0, "stream": true})";
  const ApiResponse stream = tiny.post(kStopCompletions, body);
  tiny.stop();
  EXPECT_TRUE(tiny.outcome.is_ok());
  EXPECT_EQ(message_of(tiny.post(kStopCompletions, R"({"prompt": "cat"})"), 503), "the server is stopping");
  EXPECT_EQ(tiny.get("/health").status, 503);
  EXPECT_EQ(text_of(events_of(stream)), tiny.generated({"cat", {}}, 40, {.temperature = 0}, 1));
}

TEST(ServiceStopTest, ATransportThatGivesUpEndsItWithTheReason) {
  ServedTiny tiny({.places = 1, .max_waiting = 1});
  const std::string body = R"({"prompt": "cat", "max_tokens": 40, "temperature": 0, "stream": true})";
  const ApiResponse stream = tiny.post(kStopCompletions, body);
  tiny.service.give_up(Status::error(Code::io_error, "no more connections"));
  EXPECT_EQ(tiny.post(kStopCompletions, R"({"prompt": "cat"})").status, 503);
  EXPECT_EQ(text_of(events_of(stream)), tiny.generated({"cat", {}}, 40, {.temperature = 0}, 1));
  tiny.join();
  EXPECT_EQ(tiny.outcome.message(), "no more connections");
}

TEST(ServiceStopTest, RequestsThatWaitWhenItStopsAreRefused) {
  ServedTiny tiny({.places = 1, .max_waiting = 1, .context = 48, .runs = false});
  ApiResponse refused;
  {
    const std::jthread client(
        [&] { refused = tiny.post(kStopCompletions, R"({"prompt": "cat", "stream": true})"); });
    while (tiny.service.load().waiting < 1) std::this_thread::yield();
    tiny.signals.request_stop(15);
    tiny.start();
  }
  EXPECT_THAT(message_of(refused, 503), HasSubstr("the server is stopping"));
}

/// Requests a stop when it is asked for the third time: two passes have been done then.
class StopAtThird final : public Signals {
 public:
  int signal_number() const noexcept override { return ++asked_ < 3 ? 0 : 15; }

 private:
  mutable int asked_ = 0;
};

/// The answer of 40 tokens to a request that is there before `run` begins.
ApiResponse answer_while(ServedTiny& tiny, const std::function<void()>& run) {
  ApiResponse answer;
  std::jthread client([&] {
    answer = tiny.post(kStopCompletions, R"({"prompt": "cat", "max_tokens": 40, "temperature": 0})");
  });
  while (tiny.service.load().waiting < 1) std::this_thread::yield();
  run();
  client.join();
  return answer;
}

TEST(ServiceStopTest, AnswersThatHaveNotEndedInTimeAreCutAndTheirClientsTold) {
  ServedTiny tiny({.places = 1, .max_waiting = 1, .context = 48, .runs = false});
  const ApiResponse answer = answer_while(
      tiny, [&] { EXPECT_TRUE(tiny.service.run(StopAtThird(), std::chrono::seconds(0)).is_ok()); });
  EXPECT_EQ(message_of(answer, 503), "the server is stopping");
  EXPECT_EQ(answer.retry_after_s, 1) << "another server may answer";
  EXPECT_EQ(tiny.service.n_cut(), 1U);
  EXPECT_EQ(tiny.service.load().active, 0U);
  EXPECT_EQ(tiny.service.load().done.tokens, 2U);
}

TEST(ServiceStopTest, AnswersThatEndInTimeAreWhole) {
  ServedTiny tiny({.places = 1, .max_waiting = 1, .context = 48, .runs = false});
  const ApiResponse answer = answer_while(
      tiny, [&] { EXPECT_TRUE(tiny.service.run(StopAtThird(), std::chrono::hours(1)).is_ok()); });
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(tiny.service.n_cut(), 0U);
  EXPECT_EQ(tiny.service.load().done.tokens, 40U);
}

}  // namespace
}  // namespace strata
