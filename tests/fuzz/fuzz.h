#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <strata/runtime/assert.h>

/// Defines the entry point of libFuzzer: `STRATA_FUZZ_TARGET(input) { ... }`, where `input` is a string_view.
/// An exception, a failed assertion or a sanitizer report ends the run.
#define STRATA_FUZZ_TARGET(input)                                                     \
  static void strata_fuzz_target(std::string_view input);                             \
  extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) { \
    strata_fuzz_target({reinterpret_cast<const char*>(data), size});                  \
    return 0;                                                                         \
  }                                                                                   \
  static void strata_fuzz_target(std::string_view input)
