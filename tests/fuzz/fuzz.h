#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <strata/runtime/assert.h>

/// Defines what libFuzzer calls: `STRATA_FUZZ_TARGET(input) { ... }`, where the input is a string_view.
/// Whatever is thrown, asserted or found by a sanitizer ends the run.
#define STRATA_FUZZ_TARGET(input)                                                     \
  static void strata_fuzz_target(std::string_view input);                             \
  extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) { \
    strata_fuzz_target({reinterpret_cast<const char*>(data), size});                  \
    return 0;                                                                         \
  }                                                                                   \
  static void strata_fuzz_target(std::string_view input)
