#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <strata/runtime/status.h>

namespace strata {

/// A file that a command is told to write.
struct OutputFile {
  std::string option;  ///< the option that named it, for messages
  std::string path;
  std::string what;                      ///< names what the command writes, such as "a report of strata"
  std::vector<std::string> inputs = {};  ///< files that the command reads
  bool may_stream = false;               ///< a pipe or a device will do
  bool stands_alone = false;             ///< it is never a file of a run or of a model
};

/// Whether a file that begins so was written by the command before.
using IsOwn = std::function<bool(std::string_view head)>;

/// Checks that the command may write the file: that there is none yet, or an empty one that is not of a run
/// or model, or one that it wrote itself. What belongs to somebody is never replaced. Errors: `invalid`, with
/// what to do, for a file that the command reads, under whichever name, for a folder, and for a file of
/// others.
Status check_output(const OutputFile& output, const IsOwn& is_own);

}  // namespace strata
