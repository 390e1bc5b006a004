#pragma once

#include <cstdio>
#include <string_view>

#include <strata/text/tokenizer.h>
#include <strata/text/utf8_stream.h>

#include "print.h"

namespace strata::cli {

/// Prints the text of tokens as soon as it consists of complete characters.
class TokenPrinter {
 public:
  TokenPrinter(std::FILE* out, const Tokenizer& tokenizer) : out_(out), tokenizer_(tokenizer) {}
  Status put(std::int32_t id) {
    STRATA_TRY_ASSIGN(const std::string bytes, tokenizer_.decode(std::span(&id, 1)));
    return write(stream_.push(bytes));
  }
  Status write(std::string_view text) {
    print(out_, text);
    if (std::fflush(out_) == 0 && std::ferror(out_) == 0) return Status::ok();
    return Status::error(Code::io_error, "the output could not be written");
  }
  Status finish() { return write(stream_.finish() + "\n"); }

 private:
  std::FILE* out_;
  const Tokenizer& tokenizer_;
  Utf8Stream stream_;
};

}  // namespace strata::cli
