// The HTTP server as programs see it that do not keep to HTTP.
#include <strata/serve/http_server.h>
#include <strata/serve/local_host.h>

#include <netinet/tcp.h>
#include <poll.h>

#include <atomic>
#include <mutex>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/runtime/rng.h>
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

std::string post(const std::string& body, const std::string& head = "Content-Type: application/json\r\n") {
  return str("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n", head, "Content-Length: ", body.size(),
             "\r\n\r\n", body);
}

class HttpServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto started = HttpServer::start(tiny.service, {.port = 0,
                                                    .max_body_bytes = 4096,
                                                    .max_connections = 6,
                                                    .request_limit = std::chrono::seconds(1),
                                                    .idle_limit = std::chrono::seconds(1),
                                                    .on_request = [this](const auto& line) { note(line); }});
    if (!started.has_value() && started.status().code() == Code::unsupported)
      GTEST_SKIP() << started.status().message();
    server = must(std::move(started));
  }
  std::string answer(const std::string& bytes) const {
    const RawClient client(server->port());
    client.send(bytes);
    return client.read_all();
  }
  bool is_healthy() const {
    return answer("GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
               .find("{\"status\": \"ok\"}") != std::string::npos;
  }

  void note(const HttpServer::AccessLine& line) {
    const std::lock_guard lock(mutex_);
    told_.push_back(str(line.address, " ", line.method, " ", line.target, " ", line.status));
    slowest_ = std::max(slowest_, line.seconds);
  }
  double slowest() {
    const std::lock_guard lock(mutex_);
    return slowest_;
  }
  /// The server's lines about requests, in any order.
  std::vector<std::string> told() {
    const std::lock_guard lock(mutex_);
    return told_;
  }

  ServedTiny tiny;
  std::mutex mutex_;
  std::vector<std::string> told_;
  double slowest_ = 0;
  std::unique_ptr<HttpServer> server;
};

TEST_F(HttpServerTest, EachRequestIsToldWithItsStatus) {
  (void)answer(post(R"({"prompt": "cat", "max_tokens": 2})",
                    "Content-Type: application/json\r\nConnection: close\r\n"));
  (void)answer("GET /v1/nothing?a=%0A HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  server->stop();
  EXPECT_THAT(told(), ::testing::UnorderedElementsAre("127.0.0.1 POST /v1/completions 200",
                                                      "127.0.0.1 GET /v1/nothing?a=%0A 404"));
}

TEST_F(HttpServerTest, AnswersRequestsOneAfterTheOtherOnAConnection) {
  const RawClient client(server->port());
  for (int i = 0; i < 3; ++i) {
    client.send(post(R"({"prompt": "cat", "max_tokens": 2})"));
    EXPECT_THAT(client.read_until("total_tokens"), StartsWith("HTTP/1.1 200 OK\r\n"));
  }
}

TEST_F(HttpServerTest, AStreamIsSentInChunksAsItGrows) {
  const std::string all =
      answer(post(R"({"prompt": "cat", "max_tokens": 9, "stream": true})",
                  "Content-Type: application/json; charset=utf-8\r\nConnection: close\r\n"));
  EXPECT_THAT(all,
              AllOf(HasSubstr("Transfer-Encoding: chunked"), HasSubstr("Content-Type: text/event-stream"),
                    HasSubstr("data: [DONE]\n\n"), HasSubstr("\r\n0\r\n\r\n")));
}

TEST_F(HttpServerTest, WhatIsNoRequestIsRefusedAndTheConnectionClosed) {
  const std::string not_http = answer("hello\r\n\r\n");
  EXPECT_THAT(not_http, AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("invalid_request_error"),
                              HasSubstr("Connection: close")));
  EXPECT_THAT(answer(post("{}", "Content-Type: text/plain\r\n")),
              AllOf(StartsWith("HTTP/1.1 415"), HasSubstr("application/json")));
  EXPECT_THAT(answer(post("{", "Content-Type: application/json\r\n")),
              AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("not the JSON")));
  EXPECT_THAT(answer("PUT /v1/completions HTTP/1.1\r\nHost: localhost\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 405"), HasSubstr("needs POST")));
  EXPECT_THAT(answer("GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 404"), HasSubstr("there is no /nothing")));
  EXPECT_THAT(answer(str("GET /", std::string(9000, 'x'), " HTTP/1.1\r\nHost: localhost\r\n\r\n")),
              StartsWith("HTTP/1.1 414"));
  EXPECT_THAT(answer(post("{}", "Content-Type: multipart/form-data; boundary=x\r\n")),
              StartsWith("HTTP/1.1 415"));
  EXPECT_TRUE(is_healthy());
}

TEST_F(HttpServerTest, LinesOfWhatCannotBeReadHaveTheAddressAndTheirOwnTime) {
  (void)answer("hello\r\n\r\n");
  (void)answer(str("GET /", std::string(9000, 'x'), " HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  (void)answer("GET /health HTTP/9.1\r\nHost: localhost\r\n\r\n");
  const std::vector<std::string> lines = told();
  ASSERT_EQ(lines.size(), 3U);
  for (const std::string& line : lines) EXPECT_THAT(line, StartsWith("127.0.0.1 "));
  EXPECT_LT(slowest(), 60) << "not the time since the machine began";
}

TEST_F(HttpServerTest, APostWithoutABodyIsAnsweredWithoutWaitingForOne) {
  EXPECT_THAT(
      answer("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\r\n"),
      AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("not the JSON")));
}

TEST_F(HttpServerTest, ARequestForTheNameOfAnotherMachineIsRefused) {
  const auto status = [&](const std::string& host) {
    return answer(str("GET /health HTTP/1.1\r\nHost: ", host, "\r\nConnection: close\r\n\r\n")).substr(9, 3);
  };
  EXPECT_EQ(status("attacker.example"), "403");
  EXPECT_EQ(status(str("127.0.0.1.attacker.example:", server->port())), "403");
  EXPECT_EQ(status(str("127.0.0.1:", server->port())), "200");
  EXPECT_EQ(status("LocalHost"), "200");
  EXPECT_EQ(status(str("[::1]:", server->port())), "200");
  EXPECT_THAT(
      answer("POST /v1/completions HTTP/1.1\r\nHost: attacker.example\r\nContent-Length: 2\r\n\r\n{}"),
      AllOf(StartsWith("HTTP/1.1 403"), HasSubstr("host_not_allowed")));
}

TEST(LocalHostTest, OnlyNamesThatAlwaysMeanThisMachineAreItsOwn) {
  for (const char* own :
       {"localhost", "LOCALHOST:80", "a.localhost", "127.0.0.1", "127.9.9.9:1", "::1", "[::1]:8"})
    EXPECT_TRUE(is_this_machine(own)) << own;
  for (const char* other : {"", ":", "[", "[]", "0.0.0.0", "127.example", "localhost.example", ".localhost",
                            "::2", "[::2]:80", "1127.0.0.1", "xlocalhost"})
    EXPECT_FALSE(is_this_machine(other)) << other;
}

TEST_F(HttpServerTest, ABodyThatIsTooLargeIsRefusedHoweverItIsSent) {
  const std::string large = str(R"({"prompt": ")", std::string(100000, 'x'), "\"}");
  EXPECT_THAT(answer(post(large)), AllOf(StartsWith("HTTP/1.1 413"), HasSubstr("larger than 4096 bytes")));
  EXPECT_THAT(answer("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     "Content-Length: 99999999999999999999999\r\n\r\n{"),
              StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(
      answer(str("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 "Transfer-Encoding: chunked\r\n\r\n2000\r\n",
                 std::string(0x2000, 'x'), "\r\n0\r\n\r\n")),
      StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(answer("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                     "application/json\r\nExpect: 100-continue\r\n"
                     "Content-Length: 5000\r\n\r\n"),
              StartsWith("HTTP/1.1 413"));
  EXPECT_TRUE(is_healthy());
}

TEST_F(HttpServerTest, ABodyWhoseLengthIsUnclearIsRefusedAtOnce) {
  const auto answer_to = [&](const std::string& headers) {
    return answer(
        str("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n", headers,
            "\r\n\r\n{\"prompt\": \"cat\"}"));
  };
  for (const char* length : {"-1", "many", "+17", "1 7"})
    EXPECT_THAT(answer_to(str("Content-Length: ", length)),
                AllOf(StartsWith("HTTP/1.1 400"), HasSubstr(str("Content-Length is '", length, "'"))));
  EXPECT_THAT(answer_to("Content-Length: 17\r\nContent-Length: 3"), HasSubstr("more than one header"));
  EXPECT_THAT(answer_to("Content-Length: 17\r\nTransfer-Encoding: chunked"), HasSubstr("not both"));
  EXPECT_THAT(answer_to("Content-Length: 17\r\nTransfer-Encoding: gzip"), HasSubstr("only chunked is known"));
}

TEST_F(HttpServerTest, WhatTheTransportRefusesIsCountedAtItsEndpoint) {
  EXPECT_THAT(answer(post(std::string(5000, 'x'))), StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(answer(post("{}", "Content-Type: text/plain\r\n")), StartsWith("HTTP/1.1 415"));
  EXPECT_THAT(answer("hello\r\n\r\n"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(answer("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
              AllOf(HasSubstr(R"(requests_total{endpoint="/v1/completions",status="413"} 1)"),
                    HasSubstr(R"(requests_total{endpoint="/v1/completions",status="415"} 1)"),
                    HasSubstr(R"(requests_total{endpoint="other",status="400"} 1)")));
}

TEST_F(HttpServerTest, AHeadThatIsTooLongIsRefused) {
  std::string lines = "GET /health HTTP/1.1\r\nHost: localhost\r\n";
  for (int i = 0; i < 20000; ++i) lines += str("a", i, ": b\r\n");
  EXPECT_THAT(answer(lines + "\r\n"), Not(HasSubstr("HTTP/1.1 200")));
  EXPECT_TRUE(is_healthy());
}

TEST_F(HttpServerTest, AClientThatSendsSlowlyOrNothingIsClosedInTime) {
  const auto begin = std::chrono::steady_clock::now();
  const RawClient silent(server->port()), slow(server->port()), half(server->port());
  half.send(post(R"({"prompt": "cat"})").substr(0, 90));
  {
    const std::jthread drips([&](const std::stop_token& stop) {
      slow.send("GET /health HTTP/1.1\r\nHost: localhost\r\n");
      while (!stop.stop_requested()) {
        slow.send("a: b\r\n");
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    });
    EXPECT_EQ(silent.read_all(), "");
    EXPECT_THAT(slow.read_all(), Not(HasSubstr("200 OK")));
    EXPECT_THAT(half.read_all(), Not(HasSubstr("200 OK")));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
  EXPECT_TRUE(is_healthy());
}

TEST_F(HttpServerTest, AClientThatLeavesMakesRoomForOthers) {
  for (int i = 1; i <= 3; ++i) {
    {
      const RawClient leaves(server->port());
      leaves.send(post(R"({"prompt": "cat", "max_tokens": 45, "n": 6, "temperature": 0})"));
      while (tiny.service.load().active == 0) std::this_thread::yield();
    }
    while (tiny.service.n_in_flight() > 0 || tiny.service.load().active > 0) std::this_thread::yield();
    EXPECT_THAT(tiny.get("/metrics").body,
                HasSubstr(str("requests_total{endpoint=\"/v1/completions\",status=\"499\"} ", i, "\n")));
  }
  EXPECT_LT(tiny.service.load().done.tokens, 3U * 6 * 45);
}

TEST_F(HttpServerTest, MoreConnectionsThanThreadsAreServedInTurn) {
  std::vector<std::jthread> clients;
  std::atomic<int> served = 0;
  for (int i = 0; i < 20; ++i) clients.emplace_back([&] { served += is_healthy() ? 1 : 0; });
  clients.clear();
  EXPECT_EQ(served, 20);
}

/// Connections that the system keeps for a listening socket of this process until they are accepted; 0: there
/// is none at this port.
unsigned backlog_of(int port) {
  for (int socket = 0; socket < 1024; ++socket) {
    int listens = 0;
    socklen_t size = sizeof(listens);
    sockaddr_in address{};
    socklen_t length = sizeof(address);
    if (::getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) continue;
    if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) continue;
    tcp_info info{};
    size = sizeof(info);
    if (ntohs(address.sin_port) != port || ::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
      continue;
    return info.tcpi_sacked;  // the limit of the backlog if the socket listens
  }
  return 0;
}

TEST_F(HttpServerTest, ConnectionsThatArriveAtTheSameTimeAreKeptUntilTheyAreAccepted) {
  EXPECT_GE(backlog_of(server->port()), 128U) << "the system resets those that find no room";
}

TEST_F(HttpServerTest, AnyBytesLeaveTheServerAlive) {
  const std::string request =
      post(R"({"prompt": "cat", "max_tokens": 1})",
           "Content-Type: application/json\r\nRange: bytes=0-1,2-3\r\nAccept-Encoding: gzip\r\n");
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Rng rng(seed, 3);
    std::string bytes = request;
    for (std::uint64_t i = 0; i < 1 + rng.below(90, 6); ++i)
      bytes[rng.below(2 * i, bytes.size())] = static_cast<char>(rng.u32(2 * i + 1) & 0xFFU);
    const RawClient client(server->port());
    client.send(bytes);
    ::pollfd nothing{};
    (void)::poll(&nothing, 0, 1);
  }
  const std::string ranges = [] {
    std::string all = "bytes=0-1";
    while (all.size() < 8000) all += ",0-1";
    return all;
  }();
  EXPECT_THAT(
      answer(post(R"({"prompt": "cat", "max_tokens": 1})",
                  str("Content-Type: application/json\r\nConnection: close\r\nRange: ", ranges, "\r\n"))),
      AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("total_tokens")))
      << "there are no ranges of answers";
  EXPECT_TRUE(is_healthy());
}

TEST_F(HttpServerTest, AStopEndsAnswersThatAreBeingSentAndClosesTheOthers) {
  const RawClient reads(server->port()), idle(server->port()), half(server->port());
  half.send("GET /hea");
  reads.send(post(R"({"prompt": "cat", "max_tokens": 40, "stream": true})"));
  const std::string begin = reads.read_until("data: ");
  tiny.stop();
  server->stop();
  EXPECT_THAT(begin + reads.read_all(), HasSubstr("data: [DONE]"));
  EXPECT_EQ(idle.read_all(), "");
  EXPECT_EQ(half.read_all(), "");
}

TEST_F(HttpServerTest, APortThatIsTakenIsNamed) {
  const auto second = HttpServer::start(tiny.service, {.port = server->port()});
  EXPECT_EQ(second.status().code(), Code::io_error);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(str("127.0.0.1:", server->port(), " cannot be bound: Address already in use")));
  EXPECT_EQ(HttpServer::check({.port = server->port()}), second.status());
  EXPECT_TRUE(HttpServer::check({.port = 0}).is_ok());
}

}  // namespace
}  // namespace strata
