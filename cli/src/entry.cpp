#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "command_line.h"
#include "entry.h"

// If the caller closed a standard stream, the next file opened, for example a checkpoint, would get its
// descriptor, and printed text would go there. Opens /dev/null in the opposite direction, so that using the
// stream is an error and not silently lost.
static void hold_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) < 0)
      static_cast<void>(::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY));
}

extern "C" int strata_main(int argc, char** argv) {
  hold_standard_streams();
  ::signal(SIGPIPE,
           SIG_IGN);           // a closed pipe becomes an error of the write instead of ending the run
  ::signal(SIGXFSZ, SIG_IGN);  // the same for a file beyond `ulimit -f`
  std::vector<std::string> environment;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable)
    environment.emplace_back(*variable);
  return strata::cli::run_command_line(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc),
                                       std::move(environment), stdout, stderr);
}
