#include "machine_rates/rates.h"

// Measures what strata bench does not: DRAM by number of threads, the link by size of copy, the device's peak
// of bf16 GEMMs on random data, and its attention kernels.
int main(int argc, char** argv) {
  using namespace strata::bench;
  static constexpr Part kParts[] = {{"dram", dram},
                                    {"link", link},
                                    {"peak", peak},
                                    {"matrix", matrix},
                                    {"attention_mma", attention_mma},
                                    {"attention_wgmma", attention_wgmma},
                                    {"attention_cudnn", attention_cudnn}};
  return run_parts(argc, argv, "Measures DRAM, link, GEMM and attention rates; lines of JSON on stdout",
                   kParts);
}
