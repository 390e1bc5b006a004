#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

/// The measurements of measure_machine(), and how it reports progress.
struct MeasureOptions {
  std::vector<std::string> environment;  ///< "NAME=value"; determines a run's share of the cores
  std::vector<std::string> nvme_dirs{};  ///< directories of the NVMe tier; none: it is not measured
  bool quick = false;                    ///< a fifth of the time, less exact
  std::string backend = "host";          ///< the compute device: "host" or "cuda"
  int gpu = 0;                           ///< which GPU, if it is one
  std::function<void(std::string_view what)> report = [](std::string_view) {};
};

}  // namespace strata
