#include <sys/ioctl.h>
#include <unistd.h>

#include <vector>

#include <strata/report/chart.h>
#include <strata/report/report_page.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/io/output_file.h>
#include <strata/runtime/str.h>

#include "exit_code.h"
#include "print.h"
#include "verbs/verbs.h"

namespace strata::cli {
namespace {

int terminal_columns(std::FILE* to) {
  winsize size{};
  const bool known = ::ioctl(::fileno(to), TIOCGWINSZ, &size) == 0 && size.ws_col > 20;
  return known ? size.ws_col : 80;
}

Status write_pictures(const Args& args, Io& io, const std::vector<RunRecord>& runs) {
  const auto is_own = [](std::string_view head) {
    return head.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\"");
  };
  const std::vector<Chart> charts = charts_of(runs);
  for (const Chart& chart : charts)
    STRATA_TRY(
        check_output({"--svg", str(args.svg_dir, "/", chart.id, ".svg"), "a chart of strata"}, is_own));
  STRATA_TRY(io.make_dirs(args.svg_dir));
  for (const Chart& chart : charts) {
    const std::string file = str(args.svg_dir, "/", chart.id, ".svg");
    STRATA_TRY(write_text_atomically(io, file, chart_svg(chart, true)));
    if (!args.text) print(args.out, file + "\n");
  }
  return {};
}

// Runs whose folders have the same name are told apart by their paths.
Result<std::vector<RunRecord>> read_runs(const std::vector<std::string>& folders) {
  std::vector<RunRecord> runs;
  for (const std::string& folder : folders) {
    STRATA_TRY_ASSIGN(RunRecord run, read_run_record(posix_io(), folder));
    for (std::size_t i = 0; i < runs.size(); ++i)
      if (runs[i].name == run.name) {
        runs[i].name = folders[i];
        run.name = folder;
      }
    runs.push_back(std::move(run));
  }
  return runs;
}

Status report(const Args& args) {
  Io& io = posix_io();
  STRATA_TRY_ASSIGN(const std::vector<RunRecord> runs, read_runs(args.items));
  if (!args.svg_dir.empty()) STRATA_TRY(write_pictures(args, io, runs).annotate("--svg"));
  if (args.text) {
    print(args.out, report_text(runs, terminal_columns(args.out)));
    return {};
  }
  if (!args.svg_dir.empty() && args.out_file == "-") return {};
  const std::string file = args.out_file != "-"     ? args.out_file
                           : args.items.size() == 1 ? args.items.front() + "/report.html"
                                                    : std::string("report.html");
  STRATA_TRY(check_output({"--out", file, "a report of strata"}, [](std::string_view head) {
    return head.starts_with("<!DOCTYPE html>") && head.find(" - strata</title>") != std::string_view::npos;
  }));
  STRATA_TRY(write_text_atomically(io, file, report_html(runs)));
  print(args.out, file + "\n");
  return {};
}

}  // namespace

int run_compare(const Args& args) {
  if (args.items.size() < 2)
    return print_error(args, "compare",
                       Status::error(Code::invalid, "name two runs or more: strata compare RUN RUN"));
  const auto runs = read_runs(args.items);
  if (!runs.has_value()) return print_error(args, "compare", runs.status());
  print(args.out, comparison_text(*runs));
  return kExitOk;
}

int run_report(const Args& args) {
  const Status status = report(args);
  return status.is_ok() ? static_cast<int>(kExitOk) : print_error(args, "report", status);
}

}  // namespace strata::cli
