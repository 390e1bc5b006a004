#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>
#include <string>

#include <strata/parallel/compare_ranks.h>

namespace strata {
namespace {

struct Search {
  std::uintptr_t address;  // in the file whose identifier is wanted
  std::string found;
};

std::size_t padded(std::size_t bytes) { return (bytes + 3) / 4 * 4; }

std::string id_in_notes(const char* notes, std::size_t bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  while (bytes >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) header;
    std::memcpy(&header, notes, sizeof header);
    const char* const name = notes + sizeof header;
    const char* const value = name + padded(header.n_namesz);
    if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
      std::string hex;
      for (std::size_t i = 0; i < header.n_descsz; ++i) {
        const auto byte = static_cast<unsigned char>(value[i]);
        hex += kDigits[byte >> 4];
        hex += kDigits[byte & 15];
      }
      return hex;
    }
    const std::size_t length = sizeof header + padded(header.n_namesz) + padded(header.n_descsz);
    if (length > bytes) return {};
    notes += length;
    bytes -= length;
  }
  return {};
}

int look_into(dl_phdr_info* file, std::size_t, void* data) {
  Search& search = *static_cast<Search*>(data);
  bool contains = false;
  std::string id;
  for (int i = 0; i < file->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = file->dlpi_phdr[i];
    const std::uintptr_t begin = file->dlpi_addr + part.p_vaddr;
    if (part.p_type == PT_LOAD) contains |= search.address >= begin && search.address - begin < part.p_memsz;
    if (part.p_type == PT_NOTE && id.empty())
      id = id_in_notes(reinterpret_cast<const char*>(begin),
                       part.p_memsz);  // NOLINT(performance-no-int-to-ptr)
  }
  if (contains) search.found = id;
  return contains ? 1 : 0;
}

}  // namespace

// Returns the build ID of the program or shared library that contains this function.
std::string build_id() {
  Search search{reinterpret_cast<std::uintptr_t>(&build_id), {}};
  (void)dl_iterate_phdr(&look_into, &search);
  return search.found;
}

}  // namespace strata
