// Tests the files that a run writes for other programs and for people, beside its metrics.
#include <cmath>
#include <filesystem>

#include "cli/e2e/e2e_fixture.h"
#include "report/event_reader.h"

namespace strata::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CliOutputsE2e : public CliE2e {
 protected:
  Words run(const Words& words) const {
    Words all = tiny("train", {"--out", "run", "train.steps=12", "train.eval_every=5", "log.sample_every=6"});
    all.insert(all.end(), words.begin(), words.end());
    return all;
  }
  std::size_t n_events() const {
    std::size_t n = 0;
    if (std::filesystem::exists(file("run/tensorboard")))
      for (const auto& entry : std::filesystem::directory_iterator(file("run/tensorboard")))
        n += entry.is_regular_file();
    return n;
  }
  std::vector<nlohmann::json> lines(const std::string& name) const {
    std::vector<nlohmann::json> all;
    const std::string text = read_all(file(name));
    for (std::size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
      all.push_back(nlohmann::json::parse(text.substr(at, end - at)));
    return all;
  }
};

TEST_F(CliOutputsE2e, ACommandReadsEveryStepValidationAndSample) {
  const ProgramResult result = strata(run({"log.command=cat > lines.jsonl"}));
  ASSERT_EQ(result.exit_code, 0) << result.output();
  std::size_t steps = 0, validations = 0, samples = 0;
  for (const auto& line : lines("lines.jsonl")) {
    validations += line.contains("val_loss");
    samples += line.contains("sample");
    steps += line.contains("loss");
  }
  EXPECT_EQ(steps, 12u);
  EXPECT_GE(validations, 2u);
  EXPECT_GE(samples, 1u);
  const auto metrics = lines("run/metrics.jsonl");
  EXPECT_EQ(lines("lines.jsonl")[3]["loss_bits"], metrics[3]["loss_bits"]);
}

TEST_F(CliOutputsE2e, ACommandThatFailsOrEndsEarlyDoesNotEndTheRun) {
  const ProgramResult fails = strata(run({"log.command=cat > /dev/null; exit 7"}));
  EXPECT_EQ(fails.exit_code, 0);
  EXPECT_THAT(fails.output(), HasSubstr("ended with exit code 7"));
  const ProgramResult ends = strata(run({"--overwrite", "log.command=true"}));
  EXPECT_EQ(ends.exit_code, 0) << ends.output();
  EXPECT_EQ(lines("run/metrics.jsonl").size(), 14u);
}

TEST_F(CliOutputsE2e, PrometheusReadsTheLastStep) {
  ASSERT_EQ(strata(run({str("log.prometheus=", file("strata.prom"))})).exit_code, 0);
  const std::string text = read_all(file("strata.prom"));
  EXPECT_THAT(text, AllOf(HasSubstr("strata_step{run=\"run\"} 12\n"), HasSubstr("# TYPE strata_loss gauge\n"),
                          HasSubstr("strata_used_bytes{run=\"run\",tier=\"device\"} "),
                          HasSubstr("strata_wait_seconds{run=\"run\",cause=\"nvme\"} ")));
  EXPECT_FALSE(std::filesystem::exists(file("strata.prom.part")));
  const ProgramResult nowhere = strata(run({"--overwrite", "log.prometheus=/nowhere/strata.prom"}));
  EXPECT_EQ(nowhere.exit_code, 0);
  EXPECT_THAT(nowhere.output(), HasSubstr("log.prometheus stops, training goes on"));
}

TEST_F(CliOutputsE2e, EventsAreThoseOfOneRun) {
  ASSERT_EQ(strata(run({"log.tensorboard=true"})).exit_code, 0);
  EXPECT_EQ(n_events(), 1u);
  ASSERT_EQ(strata(run({"--overwrite"})).exit_code, 0);
  EXPECT_EQ(n_events(), 0u) << "an overwritten run leaves none";
}

TEST_F(CliOutputsE2e, HistogramsShowTheNormOfEveryLayer) {
  const auto events_of = [&] {
    const auto folder = std::filesystem::directory_iterator(file("run/tensorboard"));
    return event_histograms(folder->path().string());
  };
  ASSERT_EQ(strata(run({"log.tensorboard=true", "log.histograms=true", "train.grad_accum=2"})).exit_code, 0);
  auto histograms = events_of();
  EXPECT_EQ(histograms["gradient/norm_by_layer"].size(), 12u);
  std::size_t steps = 0;
  for (const nlohmann::json& line : metrics("run")) {
    if (!line.contains("grad_norm")) continue;
    const EventHistogram& layers = histograms["gradient/norm_by_layer"][line["step"]];
    double square_sum = 0;
    for (const double norm : layers.counts) square_sum += norm * norm;
    EXPECT_NEAR(std::sqrt(square_sum), line["grad_norm"].get<double>(), 1e-4) << "of all layers together";
    EXPECT_EQ(layers.min, -1.5) << "the embedding is before layer 0";
    EXPECT_EQ(layers.counts.size(), 1u + 1 + 2 + 1)
        << "an empty interval, two layers, what is before and behind";
    double tensors = 0;
    for (const double n : histograms["gradient/tensor_norms"][line["step"]].counts) tensors += n;
    EXPECT_GT(tensors, 10);
    ++steps;
  }
  EXPECT_EQ(steps, 12u);
  ASSERT_EQ(strata(run({"--overwrite", "log.tensorboard=true"})).exit_code, 0);
  EXPECT_TRUE(events_of().empty());
  const ProgramResult alone = strata(run({"--overwrite", "log.histograms=true"}));
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.err, HasSubstr("log.histograms = true, but log.tensorboard"));
}

TEST_F(CliOutputsE2e, TheReportIsWrittenAtTheEndAndOnRequest) {
  ASSERT_EQ(strata(run({"log.report_every=1h", "log.trace=4-5"})).exit_code, 0);
  EXPECT_THAT(read_all(file("run/report.html")),
              AllOf(HasSubstr("finished"), HasSubstr("Lanes of traced steps")));
  EXPECT_EQ(strata({"report", "run", "--out", "page.html"}).exit_code, 0);
  EXPECT_EQ(strata({"report", "run", "--svg", "pictures"}).exit_code, 0);
  EXPECT_THAT(read_all(file("pictures/loss.svg")), HasSubstr("<svg xmlns="));
  const ProgramResult text = strata({"report", "run", "--text"});
  EXPECT_THAT(text.out, AllOf(HasSubstr("Loss, nats per token"), HasSubstr("computing")));
  EXPECT_EQ(strata({"report", "nowhere"}).exit_code, 2);
}

TEST_F(CliOutputsE2e, RunsAreCompared) {
  ASSERT_EQ(strata(run({})).exit_code, 0);
  Words other = tiny("train", {"--out", "other", "train.steps=12", "train.eval_every=5", "log.sample_every=6",
                               "memory.pinned=3MiB"});
  ASSERT_EQ(strata(other).exit_code, 0);
  const ProgramResult compared = strata({"compare", "run", "other"});
  EXPECT_THAT(compared.out,
              AllOf(HasSubstr("memory.pinned"), HasSubstr("the same bits in all 12 common steps"),
                    HasSubstr("states  the same bits at the end")));
  EXPECT_EQ(strata({"compare", "run"}).exit_code, 2);
}

}  // namespace
}  // namespace strata::test
