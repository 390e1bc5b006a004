// Web pages of other origins: what their browsers ask, and what they are told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/runtime/str.h>
#include <strata/serve/http_server.h>

#include "serve/raw_client.h"
#include "serve/served_tiny.h"

namespace strata {
namespace {

using test::RawClient;
using test::ServedTiny;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char *kPage = "http://localhost:3000", *kOther = "https://other.example";

class CrossOriginTest : public ::testing::Test {
 protected:
  void SetUp() override { start({kPage, "https://chat.example"}); }
  void start(const std::vector<std::string>& origins) {
    server.reset();
    auto started = HttpServer::start(
        tiny.service,
        {.port = 0, .max_body_bytes = 4096, .api_keys = {"secret-key"}, .allowed_origins = origins});
    if (!started.has_value() && started.status().code() == Code::unsupported)
      GTEST_SKIP() << started.status().message();
    server = must(std::move(started));
  }
  /// The answer to a request of a page; `head`: what else its browser sends.
  std::string answer(const std::string& method, const std::string& origin, const std::string& head = "",
                     const std::string& body = "") const {
    const RawClient client(server->port());
    client.send(str(method, " /v1/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: ", origin,
                    "\r\nConnection: close\r\n", head,
                    body.empty() ? "" : str("Content-Length: ", body.size(), "\r\n"), "\r\n", body));
    return client.read_all();
  }
  std::string preflight(const std::string& origin) const {
    return answer("OPTIONS", origin,
                  "Access-Control-Request-Method: POST\r\n"
                  "Access-Control-Request-Headers: authorization,content-type,x-stainless-os\r\n");
  }
  std::string post(const std::string& body) const {
    return answer("POST", kPage, "Authorization: Bearer secret-key\r\nContent-Type: application/json\r\n",
                  body);
  }

  ServedTiny tiny;
  std::unique_ptr<HttpServer> server;
};

TEST_F(CrossOriginTest, APreflightOfAnAllowedPageNeedsNoKey) {
  const std::string all = preflight(kPage);
  EXPECT_THAT(all, AllOf(StartsWith("HTTP/1.1 204"),
                         HasSubstr("Access-Control-Allow-Origin: http://localhost:3000\r\n"),
                         HasSubstr("Access-Control-Allow-Methods: GET, POST, OPTIONS\r\n"),
                         HasSubstr("Access-Control-Allow-Headers: authorization,content-type,x-stainless-os"),
                         HasSubstr("Vary: Origin\r\n")));
  EXPECT_THAT(all, Not(HasSubstr("Private-Network")));
  EXPECT_THAT(answer("OPTIONS", kPage,
                     "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: a;b\r\n"
                     "Access-Control-Request-Private-Network: true\r\n"),
              AllOf(HasSubstr("Access-Control-Allow-Headers: Authorization, Content-Type\r\n"),
                    HasSubstr("Access-Control-Allow-Private-Network: true\r\n")));
}

TEST_F(CrossOriginTest, APreflightOfAnotherPageIsRefused) {
  EXPECT_THAT(preflight(kOther),
              AllOf(StartsWith("HTTP/1.1 403"), HasSubstr("'https://other.example' may not use this server"),
                    Not(HasSubstr("Access-Control-Allow-Origin"))));
}

TEST_F(CrossOriginTest, AnswersStreamsAndErrorsMayBeReadByAllowedPages) {
  const auto allowed = HasSubstr("Access-Control-Allow-Origin: http://localhost:3000\r\n");
  EXPECT_THAT(post(R"({"prompt": "cat", "max_tokens": 2})"), AllOf(StartsWith("HTTP/1.1 200"), allowed));
  EXPECT_THAT(post(R"({"prompt": "cat", "max_tokens": 2, "stream": true})"),
              AllOf(StartsWith("HTTP/1.1 200"), allowed, HasSubstr("data: [DONE]")));
  EXPECT_THAT(post("{"), AllOf(StartsWith("HTTP/1.1 400"), allowed));
  EXPECT_THAT(post(std::string(5000, 'x')), AllOf(StartsWith("HTTP/1.1 413"), allowed));
  EXPECT_THAT(answer("POST", kPage), AllOf(StartsWith("HTTP/1.1 401"), allowed));
  EXPECT_THAT(answer("GET", kOther), Not(HasSubstr("Access-Control-Allow-Origin")));
}

TEST_F(CrossOriginTest, AStarIsAnyPageAlsoWhereNoRequestWasRead) {
  start({"*"});
  EXPECT_THAT(preflight(kOther),
              AllOf(StartsWith("HTTP/1.1 204"), HasSubstr("Access-Control-Allow-Origin: *\r\n"),
                    Not(HasSubstr("Vary: "))));
  const RawClient client(server->port());
  client.send("hello\r\n\r\n");
  EXPECT_THAT(client.read_all(),
              AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("Access-Control-Allow-Origin: *\r\n")));
}

TEST_F(CrossOriginTest, WithoutOriginsNothingIsSaidAboutThem) {
  start({});
  EXPECT_THAT(preflight(kPage), AllOf(StartsWith("HTTP/1.1 401"), Not(HasSubstr("Access-Control"))));
  EXPECT_THAT(post(R"({"prompt": "cat", "max_tokens": 2})"),
              AllOf(StartsWith("HTTP/1.1 200"), Not(HasSubstr("Access-Control")), Not(HasSubstr("Vary"))));
}

TEST_F(CrossOriginTest, TextsThatAreNoOriginsAreNamed) {
  for (const char* bad : {"localhost", "http://", "://a", "http://a/", "http://A.example", "http://*.example",
                          "null", "http://a b", ""})
    EXPECT_THAT(std::string(HttpServer::check({.port = 0, .allowed_origins = {bad}}).message()),
                HasSubstr(str("--allow-origin ", bad, ": an origin is a scheme and a host")));
  for (const char* good : {"*", "http://localhost:3000", "https://chat.example", "http://[::1]:80"})
    EXPECT_TRUE(HttpServer::check({.port = 0, .allowed_origins = {good}}).is_ok()) << good;
}

}  // namespace
}  // namespace strata
