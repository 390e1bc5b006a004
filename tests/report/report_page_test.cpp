// The page of a run: its data is that of metrics.jsonl, and it needs nothing else.
#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include <strata/report/chart.h>
#include <strata/report/report_page.h>

#include "report/run_fixture.h"
#include "support/temp_dir.h"

namespace strata {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using PageJson = nlohmann::json;

PageJson data_of(const std::string& page) {
  constexpr std::string_view kMark = "id=\"data\">";
  const std::size_t begin = page.find(kMark) + kMark.size();
  return PageJson::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

// A figure of a step in the page, whose series may be one figure for all, or figures and how often they are
// repeated.
PageJson at(const PageJson& series, std::size_t i) {
  if (!series.is_object()) return series.is_array() ? series[i] : series;
  const PageJson& repeat = series["repeat"];
  std::size_t k = 0;
  for (std::size_t seen = repeat[1]; seen <= i; seen += repeat[k + 1].get<std::size_t>()) k += 2;
  return repeat[k];
}

TEST(ReportPage, EveryChartHasTheFiguresOfMetrics) {
  const test::TempDir dir;
  test::write_run(dir.path() + "/run", 300);
  const RunRecord run = must(read_run_record(posix_io(), dir.path() + "/run"));
  const PageJson data = data_of(report_html({run}));
  const PageJson& of_run = data["runs"][0];
  const std::string metrics = must(read_text(posix_io(), dir.path() + "/run/metrics.jsonl", 1 << 24));
  std::size_t i = 0, validations = 0;
  for (std::size_t begin = 0, end = 0; (end = metrics.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    const PageJson line = PageJson::parse(metrics.substr(begin, end - begin));
    if (line.contains("val_loss")) {
      EXPECT_EQ(of_run["validations"][validations][0], line["step"]);
      EXPECT_EQ(of_run["validations"][validations++][1].get<double>(), line["val_loss"].get<double>());
      continue;
    }
    EXPECT_EQ(of_run["steps"][i], line["step"]);
    for (const char* name : {"loss", "grad_norm", "lr", "tokens_per_s", "step_s", "compute_s"})
      EXPECT_EQ(at(of_run["series"][name], i).get<double>(), line[name].get<double>()) << name;
    for (const char* group : {"exposed_wait_s", "used_bytes", "moved_bytes"})
      for (const auto& [name, value] : line[group].items())
        EXPECT_EQ(at(of_run["series"][std::string(group) + "." + name], i).get<double>(), value.get<double>())
            << name;
    ++i;
  }
  EXPECT_EQ(i, 300u);
  EXPECT_EQ(validations, 3u);
  EXPECT_TRUE(of_run["series"]["moved_bytes.h2d"].is_object()) << "the first step moves less";
  EXPECT_TRUE(of_run["series"]["moved_bytes.d2h"].is_number());
}

TEST(ReportPage, ChartsNameSeriesThatThePageHas) {
  const test::TempDir dir;
  test::write_run(dir.path() + "/run", 30);
  const RunRecord run = must(read_run_record(posix_io(), dir.path() + "/run"));
  const PageJson data = data_of(report_html({run}));
  int lines = 0;
  for (const Chart& chart : charts_of({run}))
    for (const Chart::Line& line : chart.lines) {
      if (line.series.empty() || line.series == "val_loss") continue;
      EXPECT_TRUE(data["runs"][0]["series"].contains(line.series)) << line.series;
      ++lines;
    }
  EXPECT_GT(lines, 8);
}

TEST(ReportPage, NeedsNoNetworkAndNoOtherFile) {
  const test::TempDir dir;
  test::write_run(dir.path() + "/run", 30);
  const std::string page = report_html({must(read_run_record(posix_io(), dir.path() + "/run"))});
  for (const char* reference : {"http://", "https://", "src=", "@import", "url("})
    EXPECT_THAT(page, Not(HasSubstr(reference)));
  EXPECT_THAT(page, HasSubstr("It is a &lt;truth&gt; &amp; so on"));
  EXPECT_THAT(page, HasSubstr("lang=\"en\""));
}

TEST(ReportPage, TextsOfARunCannotLeaveTheirPlace) {
  const test::TempDir dir;
  test::write_run(dir.path() + "/run", 5);
  RunRecord run = must(read_run_record(posix_io(), dir.path() + "/run"));
  run.name = "<!--<script>";
  run.samples[0].text = "</pre><script>alert(1)</script>";
  const std::string page = report_html({run});
  EXPECT_EQ(data_of(page)["runs"][0]["name"], run.name);
  std::size_t scripts = 0;
  for (std::size_t at = page.find("<script"); at != std::string::npos; at = page.find("<script", at + 1))
    ++scripts;
  EXPECT_EQ(scripts, 2U) << "that of the page and its data";
  EXPECT_EQ(page.find("<!--"), std::string::npos);
  EXPECT_THAT(page,
              HasSubstr("Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
                        "script-src 'sha256-"));
}

TEST(ReportPage, ARunOfPairsShowsItsAccuracyAndCallsItsLossByItsName) {
  const test::TempDir dir;
  test::write_run(dir.path() + "/run", 3);
  RunRecord run = must(read_run_record(posix_io(), dir.path() + "/run"));
  run.settings.push_back({"train.objective", "\"dpo\"", "--task dpo"});
  run.series.push_back({"accuracy", {0.5, 0.625, 0.75}});
  run.validations = {{3, 0.5, 0.875}};
  const auto charts = charts_of({run});
  EXPECT_EQ(charts.front().title, "Loss of the pairs");
  EXPECT_EQ(charts.front().unit, "");
  const auto found =
      std::find_if(charts.begin(), charts.end(), [](const Chart& c) { return c.id == "accuracy"; });
  ASSERT_NE(found, charts.end());
  EXPECT_EQ(found->lines.at(1).y, std::vector<double>{0.875}) << "of the validation";
  EXPECT_THAT(report_html({run}), HasSubstr("<dt>accuracy</dt><dd>0.75</dd>"));
}

TEST(ReportPage, ASampleWithABrokenByteIsShown) {
  const test::TempDir dir;
  test::write_run(dir.path() + "/run", 5);
  RunRecord run = must(read_run_record(posix_io(), dir.path() + "/run"));
  run.samples[0].text = "tea \xff for two";
  EXPECT_THAT(report_html({run}), HasSubstr("tea \ufffd for two"));
}

TEST(ReportPage, OfTenThousandStepsHasLessThanTwoMegabytes) {
  const test::TempDir dir;
  test::write_run(dir.path() + "/run", 10000);
  EXPECT_LT(report_html({must(read_run_record(posix_io(), dir.path() + "/run"))}).size(), 2000000u);
}

// A name that two regions share does not tell them apart.
TEST(ReportPage, OfSeveralRunsHasRegionsWithNamesOfTheirOwn) {
  const test::TempDir dir;
  std::vector<RunRecord> runs;
  for (const char* name : {"/first", "/second"}) {
    test::write_run(dir.path() + name, 30);
    runs.push_back(must(read_run_record(posix_io(), dir.path() + name)));
  }
  const std::string page = report_html(runs);
  std::set<std::string> names;
  for (const char* mark : {"role=\"region\" aria-label=\"", "<section aria-labelledby=\""})
    for (std::size_t at = page.find(mark); at != std::string::npos; at = page.find(mark, at + 1)) {
      const std::size_t begin = at + std::string_view(mark).size();
      std::string name = page.substr(begin, page.find('"', begin) - begin);
      name[0] = static_cast<char>(
          std::tolower(static_cast<unsigned char>(name[0])));  // a section has its title's name
      EXPECT_TRUE(names.insert(name).second) << name;
    }
  EXPECT_THAT(names, ::testing::IsSupersetOf({"memory of first", "memory of second"}));
}

TEST(ReportPage, OfSeveralRunsComparesThem) {
  const test::TempDir dir;
  test::write_run(dir.path() + "/first", 120);
  test::write_run(dir.path() + "/second", 120, 0.75, "256");
  const std::vector<RunRecord> runs = {must(read_run_record(posix_io(), dir.path() + "/first")),
                                       must(read_run_record(posix_io(), dir.path() + "/second"))};
  const std::string page = report_html(runs);
  EXPECT_THAT(page, HasSubstr("50.0 % longer"));
  EXPECT_THAT(page, HasSubstr("<code>model.seq</code>"));
  EXPECT_THAT(page, HasSubstr("the same bits in all 120 common steps"));
  EXPECT_EQ(data_of(page)["runs"].size(), 2u);
  EXPECT_THAT(report_text(runs, 80), HasSubstr("a step takes 1.5"));
  const std::string text = comparison_text(runs);
  EXPECT_THAT(text, HasSubstr("losses  the same bits in all 120 common steps"));
  EXPECT_THAT(text, HasSubstr("model.seq"));
  EXPECT_THAT(text, HasSubstr("plan and end: no difference"));
}

TEST(ReportPage, OfARunWithoutAStepSaysSo) {
  const test::TempDir dir;
  must(write_text_atomically(posix_io(), dir.path() + "/config.resolved.toml",
                             "[train]\nsteps = 5 # default\n"));
  const RunRecord run = must(read_run_record(posix_io(), dir.path()));
  EXPECT_THAT(report_html({run}), HasSubstr("No step has ended yet."));
  EXPECT_THAT(report_text({run}, 80), Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace strata
