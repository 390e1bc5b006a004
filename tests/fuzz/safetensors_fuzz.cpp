// A safetensors file: if it opens, every tensor can be read.
#include <strata/runtime/io/safetensors.h>
#include <support/memory_io.h>

#include "fuzz.h"

STRATA_FUZZ_TARGET(input) {
  strata::MemoryIo io;
  io.put("f", input);
  const auto file = strata::SafetensorsFile::open(io, "f");
  if (!file) return;
  std::vector<std::byte> bytes;
  for (const strata::SafetensorsEntry& entry : (*file)->entries()) {
    STRATA_ASSERT(entry.bytes <= input.size(), "a tensor larger than its file", entry.bytes);
    bytes.resize(entry.bytes);
    strata::must((*file)->read(entry.name, bytes));
  }
}
