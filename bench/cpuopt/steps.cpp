// Runs steps of one optimizer over parameters and gradients from files, so that other programs can check the
// result (bench/peers/optimizer_ulps.py, which describes the files' shapes). One tensor, all f32.

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <strata/simd/isa.h>
#include <strata/simd/norm.h>
#include <strata/cpuopt/update.h>
#include <strata/runtime/str.h>

namespace strata::bench {
namespace {

Result<std::vector<float>> read_floats(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return Status::error(Code::io_error, str(path, ": cannot be read"));
  const auto bytes = static_cast<std::size_t>(file.tellg());
  if (bytes == 0 || bytes % sizeof(float) != 0)
    return Status::error(Code::invalid,
                         str(path, " has ", bytes, " bytes; expected a positive multiple of 4"));
  std::vector<float> values(bytes / sizeof(float));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(bytes));
  if (!file) return Status::error(Code::io_error, str(path, ": cannot be read"));
  return values;
}

Status write_floats(const std::string& path, const std::vector<float>& values) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(float)));
  file.close();
  return file ? Status::ok() : Status::error(Code::io_error, str(path, ": cannot be written"));
}

void step(const cpuopt::OptimizerParams& params, const cpuopt::UpdateBlock& block, std::int64_t n) {
  const cpuopt::UpdateStep constants = cpuopt::make_update_step(params);
  if (params.optimizer != cpuopt::Optimizer::lamb) return cpuopt::update_block(constants, block, n, {});
  std::vector<double> masters(static_cast<std::size_t>(simd::norm_partial_count(n))),
      directions(masters.size());
  cpuopt::lamb_moments_block(constants, block, n, {}, masters.data(), directions.data());
  const float trust = cpuopt::lamb_trust_ratio(simd::tree_sum(masters), simd::tree_sum(directions));
  cpuopt::lamb_apply_block(constants, trust, block, n);
}

struct Options {
  std::string optimizer, isa = "auto", params, grads, out;
  cpuopt::OptimizerParams settings;
};

Status run(Options options) {
  STRATA_TRY_ASSIGN(options.settings.optimizer, cpuopt::optimizer_named(options.optimizer));
  STRATA_TRY(cpuopt::validate(options.settings));
  STRATA_TRY_ASSIGN(const simd::CpuIsa isa, simd::select_isa(options.isa));
  STRATA_TRY(simd::use_isa(isa));
  STRATA_TRY_ASSIGN(std::vector<float> p, read_floats(options.params));
  STRATA_TRY_ASSIGN(const std::vector<float> grads, read_floats(options.grads));
  if (grads.size() % p.size() != 0)
    return Status::error(Code::invalid,
                         str(options.grads, " has ", grads.size(), " values; expected a multiple of the ",
                             p.size(), " values of ", options.params));
  const cpuopt::MomentSet moments = cpuopt::moments_of(options.settings);
  std::vector<float> m(moments.first ? p.size() : 0), v(moments.second ? p.size() : 0);
  cpuopt::UpdateBlock block;
  block.param = p.data();
  if (moments.first) block.m.values = m.data();
  if (moments.second) block.v.values = v.data();
  for (std::size_t at = 0; at < grads.size(); at += p.size(), ++options.settings.step) {
    block.g = grads.data() + at;
    step(options.settings, block, std::ssize(p));
  }
  return write_floats(options.out, p);
}

}  // namespace
}  // namespace strata::bench

int main(int argc, char** argv) {
  strata::bench::Options options;
  CLI::App app("Runs one optimizer over raw f32 files and writes the parameters after all gradients");
  app.add_option("--optimizer", options.optimizer, "its name; a wrong one is refused with all names")
      ->required();
  app.add_option("--params", options.params, "n values")->required();
  app.add_option("--grads", options.grads, "n values per step, steps in sequence")->required();
  app.add_option("--out", options.out, "n values")->required();
  app.add_option("--lr", options.settings.lr);
  app.add_option("--beta1", options.settings.beta1);
  app.add_option("--beta2", options.settings.beta2);
  app.add_option("--eps", options.settings.eps);
  app.add_option("--weight-decay", options.settings.weight_decay);
  app.add_option("--momentum", options.settings.momentum);
  app.add_flag("--nesterov", options.settings.nesterov);
  app.add_option("--isa", options.isa, "auto scalar sse42 avx2 avx512");
  CLI11_PARSE(app, argc, argv);
  if (const strata::Status status = strata::bench::run(options); !status.is_ok()) {
    fmt::print(stderr, "cpuopt_steps: {}\n", status.message());
    return 2;
  }
  return 0;
}
