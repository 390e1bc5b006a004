#include "kernel_rates/rates.h"

namespace strata::bench {

std::span<const Layer> layers_of(const Bench& bench) {
  static constexpr Layer kLarge[] = {{"1.2B", 8192, 2048, 16, 5504}, {"6.5B", 8192, 4096, 32, 11008}};
  static constexpr Layer kSmall[] = {{"small", 256, 256, 4, 704}};
  return bench.gpu ? std::span<const Layer>(kLarge) : std::span<const Layer>(kSmall);
}

}  // namespace strata::bench

// Measures the kernels of a training step at the shapes of real layers, on random data and by queued events.
int main(int argc, char** argv) {
  using namespace strata::bench;
  static constexpr Part kParts[] = {{"elementwise", elementwise},
                                    {"gemms", gemms},
                                    {"attention", attention},
                                    {"heads", heads},
                                    {"updates", updates}};
  return run_parts(argc, argv, "Measures the kernels of a training step; lines of JSON on stdout", kParts);
}
