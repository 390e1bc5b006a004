// The command of a package in which all code is in a library: the one with CUDA if there is one of this
// version, else the one without. Both are found by the run path of this program (cli/CMakeLists.txt).
#include <dlfcn.h>

#include <cstdio>
#include <cstring>

namespace {

constexpr int kFailed = 5;  // kExitIo; nothing of strata is linked here

using Main = int (*)(int, char**);
using Version = const char* (*)();

template <class Function>
Function find(void* library, const char* name) {
  return reinterpret_cast<Function>(::dlsym(library, name));
}

/// The command in the library with CUDA, or null. A run without a GPU has the same bits in both.
Main main_with_cuda() {
  void* const library = ::dlopen("libstrata_cuda.so", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  const auto version = find<Version>(library, "strata_version");
  const auto command = find<Main>(library, "strata_main");
  if (version == nullptr || command == nullptr) return nullptr;
  if (std::strcmp(version(), STRATA_VERSION) == 0) return command;
  static_cast<void>(std::fprintf(stderr,
                                 "strata: the package strata-cuda has version %s, and strata %s: CUDA is "
                                 "not used; pip install strata-cuda==%s\n",
                                 version(), STRATA_VERSION, STRATA_VERSION));
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  Main command = main_with_cuda();
  if (command == nullptr)
    if (void* const library = ::dlopen("libstrata.so", RTLD_NOW | RTLD_LOCAL); library != nullptr)
      command = find<Main>(library, "strata_main");
  if (command != nullptr) return command(argc, argv);
  static_cast<void>(std::fprintf(stderr, "strata: %s\n", ::dlerror()));
  return kFailed;
}
