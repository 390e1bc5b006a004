#pragma once

#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <strata/runtime/str.h>

#include "command_line.h"

namespace strata::cli::test {

struct Outcome {
  int code;
  std::string out, err;
};

class Stream {
 public:
  Stream() : file_(std::tmpfile()) {}
  ~Stream() { std::fclose(file_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  std::FILE* file() { return file_; }
  std::string text() {
    std::string all;
    std::rewind(file_);
    for (int c = std::fgetc(file_); c != EOF; c = std::fgetc(file_)) all += static_cast<char>(c);
    return all;
  }

 private:
  std::FILE* file_;
};

inline Outcome strata_command(std::vector<std::string> arguments, std::vector<std::string> environment = {}) {
  Stream out, err;
  const int code = run_command_line(std::move(arguments), std::move(environment), out.file(), err.file());
  return {code, out.text(), err.text()};
}

/// A file that is removed at the end of its scope.
class TempFile {
 public:
  TempFile(const std::string& suffix, const std::string& text)
      : path_(str("/tmp/strata_cli_", ::getpid(), suffix)) {
    std::FILE* file = std::fopen(path_.c_str(), "w");
    std::fwrite(text.data(), 1, text.size(), file);
    std::fclose(file);
  }
  ~TempFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace strata::cli::test
