// Tests whom the HTTP server answers, and when, while other connections are idle, slow, half closed or many.
#include <strata/serve/http_server.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/runtime/str.h>

#include "serve/served_tiny.h"
#include "serve/raw_client.h"

namespace strata {
namespace {

using test::RawClient;
using test::ServedTiny;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr std::chrono::hours kLong{1};
constexpr const char* kHealth = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
constexpr const char* kModels = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

std::string posted(const std::string& body) {
  return str("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n",
             "Content-Length: ", body.size(), "\r\n\r\n", body);
}
/// Two threads, and limits of time that no test reaches.
HttpServer::Options options() {
  return {.port = 0, .max_connections = 2, .request_limit = kLong, .idle_limit = kLong};
}
std::string answer(const HttpServer& server, const std::string& bytes) {
  const RawClient client(server.port());
  client.send(bytes);
  return client.read_all();
}

#define START_OR_SKIP(name, tiny, options)                                                \
  const auto name##_started = HttpServer::start((tiny).service, options);                 \
  if (!name##_started.has_value() && name##_started.status().code() == Code::unsupported) \
    GTEST_SKIP() << name##_started.status().message();                                    \
  ASSERT_TRUE(name##_started.has_value()) << name##_started.status().message();           \
  HttpServer& name = **name##_started

TEST(HttpConnectionsTest, IdleConnectionsDoNotDelayARequest) {
  ServedTiny tiny;
  START_OR_SKIP(server, tiny, options());
  std::vector<std::unique_ptr<RawClient>> idle;
  for (int i = 0; i < 20; ++i) idle.push_back(std::make_unique<RawClient>(server.port()));
  EXPECT_THAT(answer(server, kModels), StartsWith("HTTP/1.1 200"));
}

TEST(HttpConnectionsTest, ConnectionsThatHaveBeenServedAndAreKeptDoNotDelayARequest) {
  ServedTiny tiny;
  START_OR_SKIP(server, tiny, options());
  std::vector<std::unique_ptr<RawClient>> kept;
  for (int i = 0; i < 5; ++i) {
    kept.push_back(std::make_unique<RawClient>(server.port()));
    kept.back()->send("GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_THAT(kept.back()->read_until("owned_by"), StartsWith("HTTP/1.1 200"));
  }
  kept.front()->send("GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(kept.front()->read_until("owned_by"), HasSubstr("HTTP/1.1 200"));
}

TEST(HttpConnectionsTest, HeadsThatAreNeverCompleteDoNotDelayARequest) {
  ServedTiny tiny;
  START_OR_SKIP(server, tiny, options());
  std::vector<std::unique_ptr<RawClient>> slow;
  for (int i = 0; i < 20; ++i) {
    slow.push_back(std::make_unique<RawClient>(server.port()));
    slow.back()->send("GET /v1/models HTTP/1.1\r\nHost: loc");
  }
  EXPECT_THAT(answer(server, kModels), StartsWith("HTTP/1.1 200"));
}

TEST(HttpConnectionsTest, RequestsThatArriveTogetherAreAnsweredInTheirOrder) {
  ServedTiny tiny;
  START_OR_SKIP(server, tiny, options());
  const RawClient client(server.port());
  client.send(posted(R"({"prompt": "cat", "max_tokens": 2})") + kModels);
  const std::string all = client.read_all();
  EXPECT_LT(all.find("text_completion"), all.find("owned_by"));
  EXPECT_NE(all.find("owned_by"), std::string::npos);
}

TEST(HttpConnectionsTest, AClientThatSendsNoMoreStillGetsItsAnswer) {
  ServedTiny tiny;
  START_OR_SKIP(server, tiny, options());
  for (const char* stream : {"false", "true"}) {
    const RawClient client(server.port());
    client.send(
        posted(str(R"({"prompt": "cat", "max_tokens": 30, "temperature": 0, "stream": )", stream, "}")));
    client.send_no_more();
    EXPECT_THAT(client.read_all(), AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("finish_reason\":\"length")));
  }
}

TEST(HttpConnectionsTest, HealthIsAnsweredWhileAllThreadsAreTaken) {
  ServedTiny tiny({.places = 1, .max_waiting = 8, .context = 48, .runs = false});
  START_OR_SKIP(server, tiny, options());
  std::vector<std::unique_ptr<RawClient>> waiting;
  for (int i = 0; i < 4; ++i) {
    waiting.push_back(std::make_unique<RawClient>(server.port()));
    waiting.back()->send(posted(R"({"prompt": "cat"})"));
  }
  while (tiny.service.n_in_flight() < 2) std::this_thread::yield();
  EXPECT_THAT(answer(server, kHealth), HasSubstr("{\"status\": \"ok\"}"));
  waiting.clear();
}

TEST(HttpConnectionsTest, AClientThatReadsNoAnswersDoesNotHoldTheThreadOfHealth) {
  ServedTiny tiny;
  HttpServer::Options slow = options();
  slow.write_limit = kLong;
  START_OR_SKIP(server, tiny, slow);
  const RawClient flood(server.port());
  std::atomic<bool> is_done = false;
  const std::jthread sends([&] {
    std::string many;
    for (int i = 0; i < 100; ++i) many += "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for (int i = 0; i < 4000; ++i) flood.send(many);  // until the server closes the connection
    is_done = true;
  });
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!is_done && std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_TRUE(is_done);
  EXPECT_THAT(answer(server, kHealth), HasSubstr("{\"status\": \"ok\"}"));
  flood.send_no_more();
}

TEST(HttpConnectionsTest, TheTimeARequestWaitsForAThreadIsNotItsClients) {
  ServedTiny tiny({.places = 1, .max_waiting = 8, .context = 48, .runs = false});
  HttpServer::Options one = options();
  one.max_connections = 1;
  one.request_limit = std::chrono::seconds(1);
  START_OR_SKIP(server, tiny, one);
  auto first = std::make_unique<RawClient>(server.port());
  first->send(posted(R"({"prompt": "cat"})"));
  while (tiny.service.n_in_flight() < 1) std::this_thread::yield();
  const RawClient second(server.port());
  second.send(posted(str(R"({"prompt": ")", std::string(200'000, 'a'), R"("})")));  // more than is read ahead
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  first.reset();
  EXPECT_THAT(second.read_until("}}"), AllOf(HasSubstr("context"), Not(HasSubstr("incomplete_body"))));
}

TEST(HttpConnectionsTest, BeyondTheLimitTheConnectionThatIsSilentForLongestIsClosed) {
  ServedTiny tiny;
  HttpServer::Options few = options();
  few.max_open = 2;
  START_OR_SKIP(server, tiny, few);
  const RawClient first(server.port()), second(server.port());
  EXPECT_THAT(answer(server, kModels), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(first.read_all(), "");
}

TEST(HttpConnectionsTest, BeyondTheLimitOfAnAddressRequestsAreRefusedButHealth) {
  ServedTiny tiny({.places = 1, .max_waiting = 8, .context = 48, .runs = false});
  HttpServer::Options few = options();
  few.max_per_address = 1;
  few.counts_own_address = true;
  START_OR_SKIP(server, tiny, few);
  const RawClient waiting(server.port());
  waiting.send(posted(R"({"prompt": "cat"})"));
  while (tiny.service.n_in_flight() < 1) std::this_thread::yield();
  EXPECT_THAT(answer(server, kModels),
              AllOf(StartsWith("HTTP/1.1 429"), HasSubstr("more than 1 connection")));
  EXPECT_THAT(answer(server, kHealth), StartsWith("HTTP/1.1 200"));
}

TEST(HttpConnectionsTest, ARequestHasExactlyOneHost) {
  ServedTiny tiny;
  START_OR_SKIP(server, tiny, options());
  const auto answer_to = [&](const std::string& hosts) {
    return answer(server, str("GET /health HTTP/1.1\r\n", hosts, "Connection: close\r\n\r\n"));
  };
  EXPECT_THAT(answer_to(""), AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("0 headers Host")));
  EXPECT_THAT(answer_to("Host: localhost\r\nHost: attacker.example\r\n"),
              AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("2 headers Host")));
  EXPECT_THAT(answer_to("Host: localhost\r\n"), StartsWith("HTTP/1.1 200"));
}

TEST(HttpConnectionsTest, AnAllowedHostIsAnsweredBesidesThisMachine) {
  ServedTiny tiny;
  HttpServer::Options named = options();
  named.allowed_hosts = {"models.example"};
  START_OR_SKIP(server, tiny, named);
  const auto status = [&](const std::string& host) {
    return answer(server, str("GET /health HTTP/1.1\r\nHost: ", host, "\r\nConnection: close\r\n\r\n"))
        .substr(9, 3);
  };
  EXPECT_EQ(status("Models.Example:8000"), "200");
  EXPECT_EQ(status("localhost"), "200");
  EXPECT_EQ(status("models.example.attacker.example"), "403");
}

TEST(HttpConnectionsTest, WithKeysOnlyHealthIsAnsweredWithoutOne) {
  ServedTiny tiny;
  HttpServer::Options guarded = options();
  guarded.api_keys = {"first-key-of-the-file", "second-key"};
  START_OR_SKIP(server, tiny, guarded);
  const auto status = [&](const std::string& path, const std::string& header) {
    return answer(server,
                  str("GET ", path, " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n", header, "\r\n"))
        .substr(9, 3);
  };
  EXPECT_EQ(status("/v1/models", ""), "401");
  EXPECT_EQ(status("/v1/models", "Authorization: Bearer second-keY\r\n"), "401");
  EXPECT_EQ(status("/v1/models", "Authorization: Basic second-key\r\n"), "401");
  EXPECT_EQ(status("/v1/models", "Authorization: Bearer second-key\r\n"), "200");
  EXPECT_EQ(status("/metrics", ""), "401");
  EXPECT_EQ(status("/health", ""), "200");
}

}  // namespace
}  // namespace strata
