#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/graph/program.h>

namespace strata {

/// The same program with more outputs: the experts that each of its routers chooses.
Program with_choices(Program program);

/// What the routers of a model choose in some runs, for a reference that takes the same choices.
class Choices {
 public:
  /// Reads an output of a run by its name; of an i32 output these are the bits.
  using Output = std::function<std::span<const float>(std::string_view name)>;

  /// Adds the outputs of the next run of `program`, which is from with_choices(), to those under `of`.
  void add(const std::string& of, const Program& program, const Output& output);
  /// Writes OUT/choices.safetensors: i32 [runs, routers, tokens, k] for each `of`; no file without routers.
  void write(const std::string& out) const;

 private:
  struct Runs {
    std::vector<std::uint64_t> shape;
    std::vector<std::int32_t> experts;
  };
  std::map<std::string, Runs> runs_;
};

}  // namespace strata
