#include "support/temp_dir.h"

#include <stdlib.h>

#include <strata/runtime/io/io.h>
#include <strata/runtime/str.h>

namespace strata::test {

TempDir::TempDir() {
  const char* root = ::getenv("TMPDIR");
  path_ = str(root != nullptr ? root : "/tmp", "/strata-test-XXXXXX");
  if (::mkdtemp(path_.data()) == nullptr)
    detail::throw_error(Status::error(Code::io_error, str("creating ", path_)));
}

TempDir::~TempDir() { static_cast<void>(posix_io().remove_all(path_)); }

}  // namespace strata::test
