#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <strata/report/event_file.h>
#include <strata/train/observer.h>
#include <strata/train/run_folder.h>
#include <strata/infer/pair_figures.h>

#include "outputs/metrics_pipe.h"

namespace strata {
struct TrainConfig;
}  // namespace strata

namespace strata::detail {

/// Where the figures of a run go besides its folder's metrics: TensorBoard's events, a file for Prometheus, a
/// command, and the report. A problem with one of them is a warning, and ends that one; training goes on.
class MetricsSinks final : public MetricsListener {
 public:
  /// All that it is given outlives it.
  MetricsSinks(const TrainConfig& config, RunFolder& folder, Io& io, Observer& observer);
  ~MetricsSinks() override;

  void on_step(const MetricsLine& line) override;
  void on_validation(const Validation& validation) override;
  void on_sample(std::int64_t step, std::string_view text) override;
  /// At the end of the run, once its summary is written: the command may end, and the last report is written.
  void finish();

 private:
  void stop(const char* what, const Status& why);
  void add_pairs(const PairFigures& pairs, std::string_view where);
  void add_histograms(const MetricsLine& line);
  void write_histogram(std::string_view tag);
  void write_event(std::int64_t step);
  void send(std::string_view line);
  void write_prometheus();
  void write_report();

  const TrainConfig& config_;
  RunFolder& folder_;
  Io& io_;
  Observer& observer_;
  std::unique_ptr<EventFile> events_;
  std::vector<double> limits_, counts_;  // the arrays of a histogram, reused
  std::unique_ptr<MetricsPipe> pipe_;
  bool has_prometheus_ = false, has_report_ = false;
  MetricsLine last_;
  double val_loss_ = 0;
  std::int64_t prometheus_ns_ = 0, report_ns_ = 0, report_cost_ns_ = 0;
};

}  // namespace strata::detail
