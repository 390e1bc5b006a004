#include "mpi/mpi_library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstring>

#include <strata/runtime/str.h>

namespace strata::detail {

Result<const MpiApi*> load_mpi(std::span<const std::string> paths) {
  std::string tried;
  for (const std::string& path : paths) {
    tried += str(tried.empty() ? "" : ", ", path);
    if (::access(path.c_str(), R_OK) != 0) continue;
    void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* const why = ::dlerror();  // NOLINT(concurrency-mt-unsafe): its text is of this thread
      return Status::error(Code::unsupported, str("MPI cannot be loaded; is openmpi-bin installed? ", why));
    }
    void* const symbol = ::dlsym(library, kMpiEntryName);
    if (symbol == nullptr)
      return Status::error(Code::unsupported, str(path, " does not define ", kMpiEntryName));
    MpiEntry entry = nullptr;
    std::memcpy(&entry, &symbol, sizeof entry);
    return entry();
  }
  return Status::error(Code::unsupported, str("MPI needs libstrata_mpi.so, which is in none of: ", tried));
}

}  // namespace strata::detail
