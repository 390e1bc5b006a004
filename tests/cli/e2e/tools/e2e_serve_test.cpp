// `strata serve` answers as `strata generate` does, whatever other clients do, and ends well.
#include <csignal>
#include <memory>
#include <thread>

#include "cli/e2e/adapters/adapter_runs.h"
#include "serve/raw_client.h"

namespace strata::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class CliServeE2e : public AdapterRunsE2e {
 protected:
  void SetUp() override {
    const ProgramResult refused = strata({"serve", "nowhere", "--port", "0"});
    if (refused.err.find("no HTTP server") != std::string::npos) GTEST_SKIP() << "this build has none";
  }
  /// Starts a server and returns it once it answers.
  std::unique_ptr<RunningProgram> serve(const Words& words) {
    Words all = {"serve"};
    all.insert(all.end(), words.begin(), words.end());
    all.insert(all.end(), {"--port", "0"});
    auto program = std::make_unique<RunningProgram>(STRATA_PROGRAM, all, options_);
    if (program->wait_for("at a time")) {
      const std::string& out = program->out();
      const std::size_t at = out.find("http://127.0.0.1:") + 17;
      port_ = std::stoi(out.substr(at, out.find('/', at) - at));
      return program;
    }
    const ProgramResult ended = program->finish();
    throw std::runtime_error("the server ended: " + ended.err);
  }
  void train_run(const Words& more = {}) {
    Words words = {"--out", "run", "train.steps=3"};
    words.insert(words.end(), more.begin(), more.end());
    succeeds(tiny("train", words));
  }
  static std::string request(const std::string& path, const json& body) {
    const std::string text = body.dump();
    return str("POST ", path,
               " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n",
               "Content-Length: ", text.size(), "\r\n\r\n", text);
  }
  std::string answer(const std::string& bytes) const {
    const RawClient client(port_);
    client.send(bytes);
    return client.read_all();
  }
  json body_of(const std::string& bytes) const {
    const std::string all = answer(bytes);
    EXPECT_THAT(all, StartsWith("HTTP/1.1 200 OK"));
    return json::parse(all.substr(all.find("\r\n\r\n") + 4));
  }
  json completed(const json& body) const { return body_of(request("/v1/completions", body)); }
  std::string text_of(const json& body) const { return completed(body)["choices"][0]["text"]; }
  /// The text of all events of a stream.
  static std::string streamed_text(const std::string& response) {
    std::string text;
    for (std::size_t at = response.find("data: {"); at != std::string::npos;
         at = response.find("data: {", at + 1)) {
      const json event = json::parse(response.substr(at + 6, response.find("\n\n", at) - at - 6));
      text += event["choices"][0]["delta"].value("content", "");
    }
    return text;
  }
  std::string generated(const Words& words) {
    Words all = {"generate"};
    all.insert(all.end(), words.begin(), words.end());
    all.push_back("--json");
    const ProgramResult done = strata(all);
    EXPECT_EQ(done.exit_code, 0) << done.err;
    return json::parse(done.out)["text"];
  }

  int port_ = 0;
};

TEST_F(CliServeE2e, TextsAreThoseOfGenerateAndASignalEndsIt) {
  train_run();
  const auto server = serve({"run"});
  EXPECT_THAT(server->out(), AllOf(StartsWith("strata serve: run at http://127.0.0.1:"),
                                   HasSubstr("8 sequences of 32 tokens")));
  const std::string greedy = text_of({{"prompt", "Elizabeth"}, {"temperature", 0}, {"max_tokens", 9}});
  EXPECT_EQ(greedy, generated({"run", "--prompt", "Elizabeth", "--temperature", "0", "--tokens", "9"}));
  EXPECT_EQ(text_of({{"model", "run"},
                     {"prompt", "She was"},
                     {"temperature", 0.9},
                     {"top_k", 30},
                     {"top_p", 0.8},
                     {"seed", 7},
                     {"max_tokens", 12}}),
            generated({"run", "--prompt", "She was", "--temperature", "0.9", "--top-k", "30", "--top-p",
                       "0.8", "--seed", "7", "--tokens", "12"}));
  EXPECT_EQ(text_of({{"prompt", "She was"},
                     {"temperature", 0.9},
                     {"seed", 7},
                     {"max_tokens", 12},
                     {"min_p", 0.05},
                     {"repetition_penalty", 1.5},
                     {"presence_penalty", 0.5},
                     {"frequency_penalty", 1}}),
            generated({"run", "--prompt", "She was", "--temperature", "0.9", "--top-k", "0", "--seed", "7",
                       "--tokens", "12", "--min-p", "0.05", "--repetition-penalty", "1.5",
                       "--presence-penalty", "0.5", "--frequency-penalty", "1"}));
  write("chat.jsonl", R"({"messages": [{"role": "user", "content": "Who?"}]})");
  const std::string said =
      answer(request("/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", "Who?"}}}},
                                              {"temperature", 0},
                                              {"max_tokens", 8},
                                              {"stream", true}}));
  EXPECT_EQ(streamed_text(said),
            generated({"run", "--prompts", "chat.jsonl", "--temperature", "0", "--tokens", "8"}));
  EXPECT_THAT(said, HasSubstr("data: [DONE]"));
  EXPECT_EQ(
      body_of("GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")["data"][0]["id"],
      "run");
  server->send(SIGTERM);
  const ProgramResult ended = server->finish();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, AllOf(HasSubstr("ending the answers that have begun"), HasSubstr("stopped; ")));
  EXPECT_THAT(ended.err + ended.out, ::testing::Not(HasSubstr("Elizabeth"))) << "prompts are not logged";
}

/// A family for each kind of layer that keeps something of a sequence.
class CliServeFamilyE2e : public CliServeE2e, public ::testing::WithParamInterface<const char*> {};

TEST_P(CliServeFamilyE2e, MoreTextsAtOnceThanThereArePlacesAreThoseOfGenerate) {
  Words words = {str("model.family=", GetParam()), "model.layers=4", "model.seq=128", "memory.device=64MiB",
                 "memory.pinned=64MiB"};
  if (std::string_view(GetParam()) == "deepseek_v3") words.push_back("model.experts=6");
  train_run(words);
  const auto server = serve({"run", "--batch", "2", "--queue", "8"});
  const std::vector<std::string> prompts = {"It is a truth", "Elizabeth", "She was not, however,",
                                            "Mr. Darcy", "What"};
  std::vector<std::unique_ptr<RawClient>> clients;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    clients.push_back(std::make_unique<RawClient>(port_));
    clients.back()->send(request("/v1/completions", {{"prompt", prompts[i]},
                                                     {"max_tokens", 30 + 10 * i},
                                                     {"temperature", 0.9},
                                                     {"top_k", 0},
                                                     {"top_p", 1},
                                                     {"seed", i}}));
  }
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const std::string all = clients[i]->read_all();
    ASSERT_THAT(all, StartsWith("HTTP/1.1 200 OK"));
    EXPECT_EQ(json::parse(all.substr(all.find("\r\n\r\n") + 4))["choices"][0]["text"],
              generated({"run", "--prompt", prompts[i], "--temperature", "0.9", "--top-k", "0", "--top-p",
                         "1", "--seed", str(i), "--tokens", str(30 + 10 * i)}));
  }
  server->send(SIGTERM);
  EXPECT_EQ(server->finish().exit_code, 0);
}

INSTANTIATE_TEST_SUITE_P(Families, CliServeFamilyE2e,
                         ::testing::Values("qwen3_5_text", "granitemoehybrid", "nemotron_h", "lfm2",
                                           "deepseek_v3"),
                         [](const auto& test) { return std::string(test.param); });

TEST_F(CliServeE2e, OtherClientsDoNotDisturbAText) {
  train_run({"model.seq=256", "train.micro_batch=1", "memory.device=unlimited", "memory.pinned=unlimited"});
  const auto server = serve({"run", "--batch", "2", "--queue", "3", "--max-body", "10KB"});
  const json asked = {{"prompt", "It is a truth"}, {"temperature", 0}, {"max_tokens", 40}};
  const std::string text = text_of(asked);
  EXPECT_EQ(text, generated({"run", "--prompt", "It is a truth", "--temperature", "0", "--tokens", "40"}));
  for (int i = 0; i < 3; ++i) {
    {
      const RawClient leaves(port_);
      leaves.send(request("/v1/completions", {{"prompt", "Darcy"}, {"max_tokens", 240}, {"stream", true}}));
      EXPECT_THAT(leaves.read_until("data: "), HasSubstr("data: "));
    }
    EXPECT_THAT(answer(request("/v1/completions", {{"prompt", std::string(20000, 'x')}})),
                StartsWith("HTTP/1.1 413"));
    EXPECT_THAT(answer("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                       "application/json\r\nContent-Length: 1\r\n\r\n{"),
                AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("invalid_request_error")));
    EXPECT_EQ(text_of(asked), text);
  }
  // More than have places and may wait. Three may wait, and get a place, however late the first pass begins.
  std::vector<std::unique_ptr<RawClient>> many;
  for (int i = 0; i < 8; ++i) {
    many.push_back(std::make_unique<RawClient>(port_));
    many.back()->send(
        request("/v1/completions", {{"prompt", "Darcy"}, {"max_tokens", 200}, {"temperature", 0}}));
  }
  int answered = 0, refused_n = 0;
  for (const auto& client : many) {
    const std::string all = client->read_all();
    answered += all.starts_with("HTTP/1.1 200") ? 1 : 0;
    refused_n +=
        all.starts_with("HTTP/1.1 429") && all.find("Retry-After: 1\r\n") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(answered + refused_n, 8);
  EXPECT_GE(refused_n, 1);
  EXPECT_GE(answered, 3);
  server->send(SIGINT);
  EXPECT_EQ(server->finish().exit_code, 0);
}

TEST_F(CliServeE2e, ASignalLetsAStreamEndAndRefusesOthersAndASecondOneEndsAtOnce) {
  train_run({"model.seq=2048", "train.micro_batch=1", "memory.device=unlimited", "memory.pinned=unlimited"});
  const json asked = {{"messages", {{{"role", "user"}, {"content", "Who?"}}}},
                      {"max_tokens", 1900},
                      {"temperature", 0},
                      {"stream", true}};
  auto server = serve({"run"});
  {
    const RawClient reads(port_);
    reads.send(request("/v1/chat/completions", asked));
    const std::string begin = reads.read_until("content");
    server->send(SIGTERM);
    std::string other;
    while (other.find("503") == std::string::npos && !other.starts_with("HTTP/1.1 4"))
      other = answer(request("/v1/completions", {{"prompt", "a"}, {"max_tokens", 1}}));
    EXPECT_THAT(other, AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("the server is stopping")));
    EXPECT_THAT(begin + reads.read_all(),
                AllOf(HasSubstr("\"finish_reason\":\"length\""), HasSubstr("data: [DONE]")));
    EXPECT_EQ(server->finish().exit_code, 0);
  }
  server = serve({"run", "--drain-seconds", "0"});
  {
    const RawClient reads(port_);
    reads.send(request("/v1/chat/completions", asked));
    (void)reads.read_until("content");
    server->send(SIGTERM);
    EXPECT_THAT(reads.read_all(), HasSubstr("the server is stopping"));
    const ProgramResult ended = server->finish();
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr("1 answer was cut after 0 s"));
  }
  server = serve({"run"});
  const RawClient reads(port_);
  reads.send(request("/v1/chat/completions", asked));
  (void)reads.read_until("content");
  server->send(SIGINT);
  server->wait_for(std::chrono::milliseconds(200));  // or both signals would be one
  server->send(SIGINT);
  EXPECT_EQ(server->finish().exit_code, 128 + SIGINT);
}

TEST_F(CliServeE2e, AModelLargerThanTheDeviceHasTheSameTexts) {
  train_run({"model.family=qwen3", "model.kv_heads=2"});
  const json asked = {{"prompt", "It is a truth"}, {"temperature", 1}, {"seed", 1}, {"max_tokens", 16}};
  std::vector<std::string> texts;
  for (const Words& words : {Words{"run"}, Words{"run", "offload.policy=nvme", "memory.nvme=64MiB"}}) {
    const auto server = serve(words);
    texts.push_back(text_of(asked));
    server->send(SIGTERM);
    EXPECT_EQ(server->finish().exit_code, 0);
  }
  EXPECT_EQ(texts[0], texts[1]);
}

TEST_F(CliServeE2e, TheNameOfAModelChoosesAnAdapter) {
  make_base("base");
  for (const std::string name : {"a", "b"}) {
    succeeds(run_of("run-" + name, {"train.dtype=f32", "optim.lr=0.05",
                                    "train.seed=" + std::string(name == "a" ? "2" : "3")}));
    succeeds({"export", "run-" + name, "--out", "adapter-" + name, "--format", "peft"});
  }
  const Words adapters = {"base", "--adapter", "a=adapter-a", "--adapter", "b=adapter-b"};
  const auto server = serve(adapters);
  EXPECT_THAT(server->out(), HasSubstr("base with a, b at "));
  EXPECT_EQ(body_of("GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")["data"].size(),
            3U);
  std::vector<std::string> texts;
  for (const std::string name : {"a", "b", "base"}) {
    const json done =
        completed({{"model", name}, {"prompt", "It is"}, {"temperature", 0}, {"max_tokens", 12}});
    EXPECT_EQ(done["model"], name);
    texts.push_back(done["choices"][0]["text"]);
    write("prompt.jsonl",
          json{{"prompt", "It is"}, {"adapter", name == "base" ? json() : json(name)}}.dump());
    Words words = adapters;
    words.insert(words.end(), {"--prompts", "prompt.jsonl", "--temperature", "0", "--tokens", "12"});
    EXPECT_EQ(texts.back(), generated(words)) << name;
  }
  EXPECT_NE(texts[0], texts[2]);
  EXPECT_THAT(answer(request("/v1/completions", {{"model", "c"}, {"prompt", "a"}})),
              StartsWith("HTTP/1.1 404"));
}

TEST_F(CliServeE2e, MistakesAreReportedBeforeItServes) {
  train_run();
  const auto server = serve({"run", "--name", "mine"});
  EXPECT_THAT(server->out(), StartsWith("strata serve: mine at "));
  const auto mistake = [&](Words words) {
    words.insert(words.begin(), "serve");
    words.insert(words.end(), {"--port", "0"});
    return refused(words);
  };
  EXPECT_THAT(mistake({"nowhere"}), HasSubstr("nowhere does not exist"));
  EXPECT_THAT(mistake({"run", "--context", "33"}),
              HasSubstr("--context 33: the model supports 32 positions"));
  EXPECT_THAT(mistake({"run", "--max-body", "much"}), HasSubstr("--max-body: "));
  EXPECT_THAT(mistake({"run", "--max-body", "2GiB"}), HasSubstr("--max-body 2GiB: at most 1GiB"));
  EXPECT_THAT(mistake({"run", "--allow-origin", "chat.example"}),
              HasSubstr("--allow-origin chat.example: an origin is a scheme and a host"));
  EXPECT_THAT(mistake({"run", "parallel.tp=2"}), HasSubstr("strata serve runs on one rank"));
}

TEST_F(CliServeE2e, AnAddressThatCannotBeBoundIsReportedBeforeTheModelIsRead) {
  train_run();
  const auto server = serve({"run"});
  const ProgramResult taken = strata({"serve", "nowhere", "--port", str(port_)});
  EXPECT_EQ(taken.exit_code, 5);
  EXPECT_THAT(taken.err, HasSubstr(str("127.0.0.1:", port_,
                                       " cannot be bound: Address already in use; choose "
                                       "another port with --port")));
  const ProgramResult foreign = strata({"serve", "nowhere", "--host", "192.0.2.1", "--port", "0"});
  EXPECT_EQ(foreign.exit_code, 5);
  EXPECT_THAT(foreign.err, HasSubstr("192.0.2.1:0 cannot be bound: "));
  EXPECT_THAT(strata({"serve", "nowhere", "--host", "no name", "--port", "0"}).err,
              HasSubstr("the address 'no name' is unknown: "));
}

}  // namespace
}  // namespace strata::test
